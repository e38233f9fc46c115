"""Fit the law of expected losses (`gptcli/runs/expected.py`) to the trainings of docs/recipes.jsonl.

Prints the constants, the error of each training, and the errors on each text when the law is fitted to the others.

    python -m benchmarks.law docs/recipes.jsonl
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.recipes import SHAPES
from gptcli.runs.expected import Law

MEMORIZED = 1.05
"""Last loss as a multiple of the best one, from which on a training has memorized its text."""
WEIGHT_OF_MEMORIZED = 0.4
"""Weight of such a training: the law must say that it is bad, not how bad."""
HUBER = 0.03
"""Relative error from which on errors count linearly."""
PRIOR = 3e-4
"""Weight of the squared distance from `START`, in logarithms."""
START = Law(
    level=0.6,
    size=0.1,
    size_power=0.4,
    text=0.05,
    text_power=0.4,
    length=0.15,
    length_power=0.5,
    shrink=4.0,
    harm=0.6,
    passes=12.0,
    passes_text=0.3,
    passes_size=-0.4,
    relief=7.0,
)
SIGNED = {"passes_size"}
"""Constants that may be negative; the others are positive and fitted by their logarithms."""


@dataclass(frozen=True)
class Example:
    """A training of the grid as the law sees it."""

    name: str
    text: str
    size: int
    parameters: float
    tokens: float
    steps: float
    passes: float
    dropout: float
    ratio: float
    """The last validation loss as a multiple of the n-gram model's."""
    weight: float
    processor_seconds: float
    bits_per_byte: float


def example(row: dict[str, Any]) -> Example:
    bits_per_byte = row["final"] * row["best_bits_per_byte"] / row["best"]
    text = f"{row['text']} {row['size'] / 1000:,.0f} KB"
    return Example(
        name=f"{text}, {row['shape']}, {row['passes']:g} passes, dropout {row['dropout']:g}",
        text=row["text"],
        size=row["size"],
        parameters=row["parameters"] - row["vocab_size"] * SHAPES[row["shape"]].n_embd,
        tokens=row["train_tokens"],
        steps=row["steps"],
        passes=row["steps"] * row["tokens_per_step"] / row["train_tokens"],
        dropout=row["dropout"],
        ratio=bits_per_byte / row["ngram_bits_per_byte"],
        weight=WEIGHT_OF_MEMORIZED if row["final"] > MEMORIZED * row["best"] else 1.0,
        processor_seconds=row["processor_seconds"],
        bits_per_byte=bits_per_byte,
    )


def read(path: Path) -> list[Example]:
    """The trainings of the grid with the usual weight decay."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [example(row) for row in rows if row["weight_decay"] == 0.1]


def fit(examples: Sequence[Example]) -> Law:
    """The law with the least errors of the logarithm of the ratio."""
    names = [field.name for field in fields(Law)]
    start = torch.tensor([_coded(name, getattr(START, name)) for name in names], dtype=torch.float64)
    weights = _column(examples, "weight")
    ratio = torch.log(_column(examples, "ratio"))

    def fitted_from(coded: Tensor) -> tuple[float, Tensor]:
        coded.requires_grad_()
        optimizer = torch.optim.LBFGS([coded], max_iter=2000, line_search_fn="strong_wolfe")

        def closure() -> Tensor:
            optimizer.zero_grad()
            errors = torch.log(ratios(_law(names, coded), examples)) - ratio
            huber = torch.nn.functional.huber_loss(errors, torch.zeros_like(errors), reduction="none", delta=HUBER)
            loss = (weights * huber).sum() + PRIOR * ((coded - start) ** 2).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        optimizer.step(closure)  # type: ignore[no-untyped-call]
        return closure().item(), coded.detach()

    generator = torch.Generator().manual_seed(0)
    noise = [0.3 * torch.randn(start.shape, generator=generator, dtype=torch.float64) for _ in range(3)]
    _, best = min((fitted_from(start + one) for one in [torch.zeros_like(start), *noise]), key=lambda found: found[0])
    return Law(**{name: float(value) for name, value in zip(names, _decoded(names, best), strict=True)})


def ratios(law: Any, examples: Sequence[Example]) -> Tensor:
    """The law's ratios of trainings (n,), as `Law.ratio` computes them, for constants that are tensors."""
    N, U, S, P, d = (_column(examples, name) for name in ("parameters", "tokens", "steps", "passes", "dropout"))
    harmless = law.passes * (1 + law.passes_text * 1e5 / U) * (N / 1e5) ** law.passes_size * torch.exp(law.relief * d)
    effective = N * torch.exp(-law.shrink * d)
    return (
        law.level
        + law.size * (effective / 1e5) ** -law.size_power
        + law.text * (U / 1e5) ** -law.text_power
        + law.length * (S / 300) ** -law.length_power
        + law.harm * torch.log1p((P / harmless) ** 12) / 12
    )


def _column(examples: Sequence[Example], name: str) -> Tensor:
    return torch.tensor([getattr(one, name) for one in examples], dtype=torch.float64)


def _coded(name: str, value: float) -> float:
    return value if name in SIGNED else math.log(value)


def _decoded(names: Sequence[str], coded: Tensor) -> list[Tensor]:
    return [value if name in SIGNED else value.exp() for name, value in zip(names, coded, strict=True)]


class _Constants:
    """The constants of a law as tensors."""

    def __init__(self, values: dict[str, Tensor]) -> None:
        self.__dict__.update(values)


def _law(names: Sequence[str], coded: Tensor) -> _Constants:
    return _Constants(dict(zip(names, _decoded(names, coded), strict=True)))


def errors_of(law: Law, examples: Sequence[Example]) -> list[float]:
    """Relative errors of the expected losses."""
    expected = (law.ratio(one.parameters, one.tokens, one.steps, one.passes, one.dropout) for one in examples)
    return [ratio / one.ratio - 1 for ratio, one in zip(expected, examples, strict=True)]


def regrets(law: Law, examples: Sequence[Example]) -> list[tuple[str, float]]:
    """How much worse the law's choice is than the best training of the same text that takes no longer.

    For each text and each training of it, the time of that training is the budget.
    """
    found = []
    for text, size in sorted({(one.text, one.size) for one in examples}):
        of_text = [one for one in examples if (one.text, one.size) == (text, size)]
        for budget in sorted(one.processor_seconds for one in of_text)[1:]:
            within = [one for one in of_text if one.processor_seconds <= budget]
            chosen = min(
                within, key=lambda one: law.ratio(one.parameters, one.tokens, one.steps, one.passes, one.dropout)
            )
            best = min(within, key=lambda one: one.ratio)
            found.append((f"{text} {size / 1000:,.0f} KB in {budget:,.0f} s", chosen.ratio / best.ratio - 1))
    return found


def _in_words(errors: Sequence[float]) -> str:
    sizes = [abs(error) for error in errors]
    return f"median {statistics.median(sizes):.1%}, largest {max(sizes):.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    examples = read(parser.parse_args().results)
    law = fit(examples)
    write: Callable[[str], int] = sys.stdout.write
    write("".join(f"    {name}={value:.4g},\n" for name, value in asdict(law).items()))
    for one, error in zip(examples, errors_of(law, examples), strict=True):
        write(f"{one.name}: {one.bits_per_byte:.3f} bits per byte, law {error:+.1%}\n")
    useful = [one for one in examples if one.weight == 1]
    write(f"{len(useful)} trainings that did not memorize: {_in_words(errors_of(law, useful))}\n")
    for text in sorted({one.text for one in examples}):
        others = fit([one for one in examples if one.text != text])
        held_out = [one for one in examples if one.text == text]
        errors = errors_of(others, [one for one in held_out if one.weight == 1])
        worst = max(regrets(others, held_out), key=lambda regret: regret[1], default=("", 0.0))
        mean = statistics.fmean(regret for _, regret in regrets(others, held_out))
        write(f"fitted without {text}: {_in_words(errors)}; choice worse by {mean:.1%} in the mean, ")
        write(f"at most {worst[1]:.1%} ({worst[0]})\n")


if __name__ == "__main__":
    main()
