"""The cost of saving while a model trains: how long training pauses, how much time it loses in all, and the memory.

A GPT-2 on random characters, on a CPU, in a process of its own for each session. Steps of three kinds alternate: with a
checkpoint, with an evaluation that improves and so writes best weights, and with neither. A *pause* is the time between
two updates beyond that of a step with neither; the time *lost* is that of the whole session beyond as many undisturbed
updates. `resumed` repeats it in a session that resumes the run.

    python -m benchmarks.saving [--layers 10] [--width 512] [--micro-batch 2] [--rounds 3]
    python -m benchmarks.saving --rounds 3 --against ../other-checkout      # in turn with another version of gptcli
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

EVERY = 6
"""Updates between two checkpoints; evaluations come half-way between them."""
STEPS = 4 * EVERY
CHARACTERS = "abcdefghijklmnopqrstuvwxyz .,\n"


def session(out: str, shape: dict[str, int], steps: int) -> dict[str, float]:
    """Train up to `steps` updates in this process; medians in seconds, and the peak of memory in bytes."""
    from benchmarks.measure import peak_memory
    from gptcli import api
    from gptcli.runs.events import EvalMetrics, Event
    from gptcli.training.trainer import Trainer

    spans: list[tuple[int, float, float, float, float]] = []
    plain = Trainer.step

    def timed(self: Trainer, *arguments: Any) -> Any:
        began, processor = time.perf_counter(), time.process_time()
        update = plain(self, *arguments)
        spans.append((self.completed_steps, began, time.perf_counter(), processor, time.process_time()))
        return update

    Trainer.step = timed  # type: ignore[assignment, method-assign]
    evaluated: list[int] = []

    def on_event(event: Event) -> None:
        if isinstance(event, EvalMetrics) and event.best_step == event.step:
            evaluated.append(event.step)

    settings = {
        "model.n_layer": shape["layers"], "model.n_embd": shape["width"], "model.n_head": 8, "model.block_size": 64,
        "train.batch_size": shape["micro_batch"], "train.micro_batch_size": shape["micro_batch"],
        "train.dtype": "float32", "train.device": "cpu", "train.max_steps": steps, "train.log_every": 1,
        "train.save_every": EVERY, "train.eval_every": EVERY // 2, "optim.lr": 1e-4, "optim.schedule": "constant",
        "optim.optimizer": "adamw", "train.eval_tokens": 64,
    }  # fmt: skip
    began = time.perf_counter()
    api.train("book.txt", out, preset="nano", family="gpt2", settings=settings, on_event=on_event)
    ended = time.perf_counter()
    gaps = {step: after[1] - before[2] for before, after in itertools.pairwise(spans) for step in [before[0]]}
    update = median(end - start for _, start, end, _, _ in spans[2:])
    work = median(end - start for _, _, _, start, end in spans[2:])
    quiet = median(gap for step, gap in gaps.items() if step % (EVERY // 2))
    saved = [gap for step, gap in gaps.items() if step % EVERY == 0]
    best = [gap for step, gap in gaps.items() if step % EVERY and step % (EVERY // 2) == 0 and step in evaluated]
    first, last = spans[2], spans[-1]
    counted = len(spans) - 3
    return {
        "update": update,
        "checkpoint pause": median(saved) - quiet,
        "best weights pause": median(best) - quiet if best else float("nan"),
        "lost per checkpoint": (last[2] - first[2] - counted * (update + quiet)) / max(1, len(saved)),
        "processor per checkpoint": (last[4] - first[4] - counted * work) / max(1, len(saved)),
        "session": ended - began,
        "peak memory": float(peak_memory()),
    }


def rounds(shape: dict[str, int], count: int, versions: list[Path]) -> dict[str, dict[str, float]]:
    """Medians over `count` sessions of each version of gptcli and kind, in turn."""
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(count):
        for version in versions:
            with tempfile.TemporaryDirectory() as folder:
                chance = random.Random(1)
                (Path(folder) / "book.txt").write_text("".join(chance.choices(CHARACTERS, k=200_000)))
                for kind, steps in (("new", STEPS), ("resumed", 2 * STEPS)):
                    call = [sys.executable, __file__, "--session", json.dumps([shape, steps])]
                    paths = os.pathsep.join([str(version), str(Path(__file__).parents[1])])
                    done = subprocess.run(
                        call, cwd=folder, env=os.environ | {"PYTHONPATH": paths}, stdout=subprocess.PIPE, check=True
                    )
                    found.setdefault(f"{version.name}, {kind}", []).append(json.loads(done.stdout))
    return {name: {key: median(row[key] for row in rows) for key in rows[0]} for name, rows in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=10)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--micro-batch", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", type=Path, action="append", default=[])
    parser.add_argument("--session")
    stated = parser.parse_args()
    if stated.session:
        shape, steps = json.loads(stated.session)
        sys.stdout.write(json.dumps(session("run", shape, steps)))
        return
    shape = {"layers": stated.layers, "width": stated.width, "micro_batch": stated.micro_batch}
    versions = [Path(__file__).resolve().parents[1], *(path.resolve() for path in stated.against)]
    for name, figures in rounds(shape, stated.rounds, versions).items():
        shown = "  ".join(
            f"{key} {value / 1e9:.2f} GB" if key == "peak memory" else f"{key} {value:.3f} s"
            for key, value in figures.items()
        )
        sys.stdout.write(f"{name}: {shown}\n")


if __name__ == "__main__":
    main()
