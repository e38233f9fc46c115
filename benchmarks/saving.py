"""The cost of saving while a model trains: how long training pauses, how much work it is in all, and the memory.

A GPT-2 on random characters, on a CPU, with AdamW; each session in a process of its own. Some updates are followed by a
checkpoint, some by an evaluation of one window that improves and so writes best weights, most by neither. A *pause* is
the time between two updates, less that after an update with neither: as time on the clock, and as processor time of the
thread that trains, which says more on a busy machine (with OMP_NUM_THREADS=1; more threads are not counted). *Work* is
the processor time of the whole process beyond that of the updates, per checkpoint and best weights. A second session
resumes the run.

    OMP_NUM_THREADS=1 python -m benchmarks.saving [--layers 10] [--width 512] [--rounds 3]
    OMP_NUM_THREADS=1 python -m benchmarks.saving --against ../other-checkout    # in turn with another gptcli
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

EVERY = 6
"""Updates between two checkpoints; evaluations come half-way between them."""
STEPS = 4 * EVERY
CHARACTERS = "abcdefghijklmnopqrstuvwxyz .,\n"


@dataclass(frozen=True)
class _Clocks:
    """The clock, and the processor time of this thread and of this process, in seconds."""

    wall: float
    thread: float
    process: float

    @classmethod
    def now(cls) -> _Clocks:
        return cls(time.perf_counter(), time.thread_time(), time.process_time())


@dataclass(frozen=True)
class _Update:
    """An update of the weights."""

    step: int
    began: _Clocks
    ended: _Clocks


def _updates(spans: list[_Update]) -> float:
    """Processor time of the updates from the third on, by that of the training thread."""
    return sum(span.ended.thread - span.began.thread for span in spans[2:])


def session(out: str, shape: dict[str, int], steps: int) -> dict[str, float]:
    """Train up to `steps` updates in this process; medians in seconds, and the peak of memory in GB."""
    from benchmarks.measure import peak_memory
    from gptcli import api
    from gptcli.runs.events import EvalMetrics, Event
    from gptcli.training.trainer import Trainer

    spans: list[_Update] = []
    plain = Trainer.step

    def timed(self: Trainer, *arguments: Any) -> Any:
        began = _Clocks.now()
        update = plain(self, *arguments)
        spans.append(_Update(self.completed_steps, began, _Clocks.now()))
        return update

    Trainer.step = timed  # type: ignore[assignment, method-assign]
    improved: list[int] = []

    def on_event(event: Event) -> None:
        if isinstance(event, EvalMetrics) and event.best_step == event.step:
            improved.append(event.step)

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
    gaps = {one.step: (one.ended, other.began) for one, other in itertools.pairwise(spans)}
    after_save = [gap for step, gap in gaps.items() if step % EVERY == 0]
    after_best = [gap for step, gap in gaps.items() if step % EVERY == EVERY // 2 and step in improved]
    after_neither = [gap for step, gap in gaps.items() if step % (EVERY // 2)]

    def pause(some: list[tuple[_Clocks, _Clocks]], clock: str) -> float:
        usual, ours = (
            [getattr(end, clock) - getattr(begin, clock) for begin, end in kind] for kind in (after_neither, some)
        )
        return median(ours) - median(usual) if ours else math.nan

    return {
        "checkpoint: pause": pause(after_save, "wall"),
        "checkpoint: pause, processor": pause(after_save, "thread"),
        "best weights: pause": pause(after_best, "wall"),
        "best weights: pause, processor": pause(after_best, "thread"),
        "work per checkpoint": (spans[-1].ended.process - spans[2].began.process - _updates(spans)) / len(after_save),
        "session": ended - began,
        "peak memory": peak_memory() / 1e9,
    }


def rounds(shape: dict[str, int], count: int, versions: list[Path]) -> dict[str, dict[str, float]]:
    """Medians over `count` sessions of each version of gptcli and kind, in turn."""
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(count):
        for version in versions:
            with tempfile.TemporaryDirectory() as folder:
                chance = random.Random(1)
                (Path(folder) / "book.txt").write_text("".join(chance.choices(CHARACTERS, k=100_000)))
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
        shown = ", ".join(
            f"{key} {value:.3f} {'GB' if key == 'peak memory' else 's'}" for key, value in figures.items()
        )
        sys.stdout.write(f"{name}: {shown}\n")


if __name__ == "__main__":
    main()
