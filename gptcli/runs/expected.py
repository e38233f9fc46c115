"""The validation loss to expect of a training: a law fitted to small trainings on little text.

The form follows Hoffmann et al. 2022 (arXiv:2203.15556): a level that the text sets, and terms that fall with the size
of the model, the length of the training and the size of the text. A penalty is added for memorizing, as in Lovelace et
al. 2026 (arXiv:2605.01640): beyond a number of passes that grows with dropout, reading a text again does harm.
docs/recipes.md has the trainings, the fit and its errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

FEWEST_CHARACTERS = 2_500
"""Characters of the shortest text of the trainings: on less, no more passes are harmless than on that."""


@dataclass(frozen=True)
class Law:
    """Constants of the law; `python -m benchmarks.law` fits them to docs/recipes.jsonl.

    The ratio of a loss to that of the n-gram model (`ngrams.py`) is, with N parameters apart from the embedding, U
    characters of training text, S updates times the characters of a token, P passes and dropout d:

        level + size (N' / 1e5)^-size_power + text (U / 1e5)^-text_power + length (S / 300)^-length_power
              + harm log(1 + (P / P*)^12) / 12

    with N' = N exp(-shrink d), since dropout takes capacity, and the harmless passes
    P* = passes (1 + passes_text 1e5 / U) (N / 1e5)^passes_size exp(relief d).
    """

    level: float
    size: float
    size_power: float
    text: float
    text_power: float
    length: float
    length_power: float
    shrink: float
    harm: float
    passes: float
    passes_text: float
    passes_size: float
    relief: float

    def ratio(self, parameters: float, characters: float, steps: float, passes: float, dropout: float) -> float:
        """The expected loss as a multiple of the n-gram model's."""
        harmless = self.harmless_passes(parameters, characters, dropout)
        effective = parameters * math.exp(-self.shrink * dropout)
        return float(
            self.level
            + self.size * (effective / 1e5) ** -self.size_power
            + self.text * (characters / 1e5) ** -self.text_power
            + self.length * (steps / 300) ** -self.length_power
            + self.harm * math.log1p((passes / harmless) ** 12) / 12
        )

    def harmless_passes(self, parameters: float, characters: float, dropout: float) -> float:
        """Passes over a text from which on the model memorizes it."""
        of_text = 1 + self.passes_text * 1e5 / max(FEWEST_CHARACTERS, characters)
        of_model = (parameters / 1e5) ** self.passes_size * math.exp(self.relief * dropout)
        return float(self.passes * of_text * of_model)


LAW = Law(
    level=0.2275,
    size=0.1418,
    size_power=0.3935,
    text=0.3945,
    text_power=0.07415,
    length=0.1874,
    length_power=0.4847,
    shrink=8.228,
    harm=0.6205,
    passes=12.67,
    passes_text=0.1061,
    passes_size=-0.272,
    relief=6.165,
)
