"""The choice of a model against the best of a small grid, on a text that the law was not fitted to.

For each preset and dropout, the number of updates is the one for which the law expects the lowest loss in the time; the
preset that the law chooses is also trained half and twice as long. Time is processor time on one thread.

    python -m benchmarks.choices TEXT --size 200000 --seconds 60
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.recipes import piece
from benchmarks.vocabularies import planned, seconds_per_step, trainer_of
from gptcli.config.presets import PRESETS
from gptcli.model.cost import inner_parameters
from gptcli.runs.choosing import DROPOUTS, step_counts
from gptcli.runs.expected import LAW
from gptcli.runs.ngrams import text_bits_per_byte
from gptcli.runs.rhythm import epoch_steps

COMPARED = ("nano", "tiny", "mini")


@dataclass(frozen=True)
class Training:
    """A training of the grid, and the ratio of losses that the law expects."""

    preset: str
    dropout: float
    steps: int
    expected: float


def trainings(content: bytes, seconds: float) -> Iterator[Training]:
    """The trainings to compare."""
    found: list[Training] = []
    for preset in COMPARED:
        plan = planned(content, preset, "char", 1000)
        longest = int(seconds / seconds_per_step(plan))
        config, tokens = plan.config, plan.dataset.train.tokens
        inner = inner_parameters(config.model)
        per_pass = epoch_steps(config, plan.dataset)
        counts = step_counts(longest)
        for dropout in DROPOUTS:
            expected = [LAW.ratio(inner, tokens, steps, steps / per_pass, dropout) for steps in counts]
            found.append(Training(preset, dropout, counts[expected.index(min(expected))], min(expected)))
        recipe = PRESETS[preset]["train"]
        if "epochs" in recipe:  # the preset as such
            dropout = PRESETS[preset]["model"].get("dropout", 0.0)
            steps = min(recipe["max_steps"], math.ceil(recipe["epochs"] * per_pass), longest)
            found.append(Training(preset, dropout, steps, LAW.ratio(inner, tokens, steps, steps / per_pass, dropout)))
        found += [
            Training(preset, one.dropout, steps, LAW.ratio(inner, tokens, steps, steps / per_pass, one.dropout))
            for one in [min(found, key=lambda training: training.expected)]
            for steps in (one.steps // 2, 2 * one.steps)
            if one.preset == preset and steps <= longest
        ]
    yield from dict.fromkeys(found)


def bits_per_byte(content: bytes, training: Training) -> float:
    """The last validation loss of a training."""
    settings = {"model.dropout": training.dropout}
    plan = planned(content, training.preset, "char", training.steps, settings)
    trainer = trainer_of(plan)
    for _ in range(training.steps):
        trainer.step()
    val = plan.dataset.val
    return trainer.evaluate() / math.log(2) * val.tokens / val.bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--size", type=int, default=200_000, help="bytes taken from the text")
    parser.add_argument("--seconds", type=float, default=60.0, help="processor seconds of a training")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    content = piece(options.text, options.size)
    level = text_bits_per_byte(planned(content, "nano", "char", 1).dataset)
    results = []
    for training in trainings(content, options.seconds):
        loss = bits_per_byte(content, training)
        results.append((loss, training))
        line = vars(training) | {"expected": round(level * training.expected, 4), "bits_per_byte": round(loss, 4)}
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    best, _ = min(results, key=lambda result: result[0])
    chosen, training = min(results, key=lambda result: result[1].expected)
    sys.stdout.write(f"chosen: {training}, {chosen / best - 1:.1%} above the best of {len(results)}\n")


if __name__ == "__main__":
    main()
