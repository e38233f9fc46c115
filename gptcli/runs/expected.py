"""The validation loss to expect of a training: a law fitted to small trainings on little text.

The form follows Hoffmann et al. 2022 (arXiv:2203.15556): a level that the text sets, and terms that fall with the size
of the model, the length of the training and the size of the text. Repeating a text helps less and less (Muennighoff et
al. 2023, arXiv:2305.16264), and in this regime of small texts harms in the end: beyond a number of passes that grows
with dropout, a model memorizes. docs/recipes.md has the trainings, the fit and its errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Law:
    """Constants of the law; `python -m benchmarks.law` fits them to docs/recipes.jsonl.

    The ratio of a loss to that of the n-gram model (`ngrams.py`) is, with N parameters apart from the embedding, U
    tokens of training text, S updates, P passes and dropout d:

        level + size (N / 1e5)^-size_power + text (U / 1e5)^-text_power + length (S' / 300)^-length_power
              + harm log²(1 + (P / P*)^6) / 36

    with S' = S exp(-drag d²) and P* = passes (U / 1e5)^passes_text (N / 1e5)^passes_size exp(relief d).
    """

    level: float
    size: float
    size_power: float
    text: float
    text_power: float
    length: float
    length_power: float
    drag: float
    harm: float
    passes: float
    passes_text: float
    passes_size: float
    relief: float

    def ratio(self, parameters: float, tokens: float, steps: float, passes: float, dropout: float) -> float:
        """The expected loss as a multiple of the n-gram model's."""
        harmless = self.harmless_passes(parameters, tokens, dropout)
        effective = steps * math.exp(-self.drag * dropout**2)
        return float(
            self.level
            + self.size * (parameters / 1e5) ** -self.size_power
            + self.text * (tokens / 1e5) ** -self.text_power
            + self.length * (effective / 300) ** -self.length_power
            + self.harm * (math.log1p((passes / harmless) ** 6) / 6) ** 2
        )

    def harmless_passes(self, parameters: float, tokens: float, dropout: float) -> float:
        """Passes over a text from which on the model memorizes it."""
        of_text = (tokens / 1e5) ** self.passes_text * (parameters / 1e5) ** self.passes_size
        return float(self.passes * of_text * math.exp(self.relief * dropout))


LAW = Law(
    level=0.753,
    size=0.116,
    size_power=0.359,
    text=0.040,
    text_power=0.341,
    length=0.068,
    length_power=0.865,
    drag=10.0,
    harm=0.425,
    passes=11.2,
    passes_text=-0.172,
    passes_size=-0.237,
    relief=5.9,
)
