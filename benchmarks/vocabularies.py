"""Characters against BPE vocabularies: bits per byte after the same processor time on the same text.

Each training has the shape and recipe of a preset and as many updates as fit into the time, measured first; it uses
one thread and float32. Validation scores the whole held-out part, or its first million tokens.

    python -m benchmarks.vocabularies TEXT --size 500000 --seconds 120 --preset tiny char 1024 4096
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.recipes import piece
from gptcli.runs.plan import Plan, make_plan
from gptcli.runs.request import new_request
from gptcli.training import runtime
from gptcli.training.trainer import Trainer

WARM_UP, MEASURED = 3, 12
MOST_PASSES = 8.0
"""Passes over the text at most: more would only memorize it."""


def planned(
    content: bytes, preset: str, vocabulary: str, steps: int, settings: Mapping[str, object] | None = None
) -> Plan:
    """The plan of a training on a text with characters (`char`) or a BPE vocabulary of that size."""
    tokenizer = {"tokenizer.kind": "char"} if vocabulary == "char" else {"tokenizer.vocab_size": int(vocabulary)}
    fixed = {"train.max_steps": steps, "train.device": "cpu", "train.dtype": "float32", **tokenizer}
    settings = {**fixed, **(settings or {})}
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        text.write_bytes(content)
        return make_plan(new_request(text, out=Path(folder) / "run", preset=preset, settings=settings), dry_run=True)


def trainer_of(plan: Plan) -> Trainer:
    runtime.prepare(plan.device, deterministic=False)
    return Trainer(plan.config, plan.dataset, plan.device)


def seconds_per_step(plan: Plan) -> float:
    """Processor seconds of an update, after a few that warm up."""
    trainer = trainer_of(plan)
    for _ in range(WARM_UP):
        trainer.step()
    begun = time.process_time()
    for _ in range(MEASURED):
        trainer.step()
    return (time.process_time() - begun) / MEASURED


def measure(content: bytes, preset: str, vocabulary: str, seconds: float) -> dict[str, Any]:
    """Train for that processor time; the loss in bits per byte and how it came about."""
    pace = seconds_per_step(planned(content, preset, vocabulary, 1000))
    probe = planned(content, preset, vocabulary, 1)
    per_step = probe.config.train.batch_size * probe.config.model.block_size
    steps = max(1, min(int(seconds / pace), int(MOST_PASSES * probe.dataset.train.tokens / per_step)))
    plan = planned(content, preset, vocabulary, steps)
    trainer = trainer_of(plan)
    begun = time.process_time()
    for _ in range(steps):
        trainer.step()
    spent, val = time.process_time() - begun, plan.dataset.val
    return {
        "bytes": len(content),
        "preset": preset,
        "vocabulary": vocabulary,
        "entries": plan.dataset.tokenizer.vocab_size,
        "bytes_per_token": round(val.bytes / val.tokens, 3),
        "steps": steps,
        "passes": round(steps * per_step / plan.dataset.train.tokens, 2),
        "processor_seconds": round(spent, 1),
        "bits_per_byte": round(trainer.evaluate() / math.log(2) * val.tokens / val.bytes, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("vocabularies", nargs="+", metavar="char|ENTRIES")
    parser.add_argument("--size", type=int, default=1_000_000, help="bytes taken from the text")
    parser.add_argument("--seconds", type=float, default=120.0, help="processor seconds of a training")
    parser.add_argument("--preset", default="tiny")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    content = piece(options.text, options.size)
    for vocabulary in options.vocabularies:
        result = measure(content, options.preset, vocabulary, options.seconds)
        sys.stdout.write(json.dumps({"text": options.text.name} | result) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
