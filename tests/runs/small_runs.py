"""Trainings that take a fraction of a second: a dataset of a few thousand characters and a tiny model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any

import torch

from gptcli.checkpoints.checkpoint import newest_checkpoint
from gptcli.config.values import nest
from gptcli.dataset.folder import Dataset
from gptcli.dataset.preparing import tokenize
from gptcli.runs import session
from gptcli.runs.decision import decide
from gptcli.runs.events import EvalProgress, Event
from gptcli.runs.plan import Plan, plan_for
from gptcli.runs.request import Request

CPU = torch.device("cpu")

FLAGS: dict[str, Any] = {
    "model.n_layer": 1, "model.n_head": 2, "model.n_embd": 16, "model.block_size": 16, "model.dropout": 0.1,
    "optim.optimizer": "adamw", "optim.lr": 0.01, "optim.warmup_steps": 2,
    "train.batch_size": 4, "train.micro_batch_size": 4, "train.max_steps": 20, "train.dtype": "float32",
    "train.eval_every": 10, "train.save_every": 10, "train.log_every": 1, "train.device": "cpu", "train.compile": "off",
}  # fmt: skip
"""The settings of every small run, unless a test states others."""


def small_dataset(folder: Path, text: str, val_fraction: float | None = None) -> Dataset:
    """A character dataset `folder`/data of a text."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "book.txt").write_text(text, encoding="utf-8", newline="")
    return tokenize(folder / "book.txt", folder / "data", val_fraction=val_fraction).dataset


def request(flags: Mapping[str, Any] | None = None, **options: Any) -> Request:
    """A request with FLAGS; `flags` adds to them, and None removes one."""
    return Request(**{"preset": "nano", "family": "gpt2", "flags": nest(FLAGS | dict(flags or {})), **options})


def plan(dataset: Dataset, path: Path, flags: Mapping[str, Any] | None = None, **options: Any) -> Plan:
    """The plan of a run at `path`; raises its refusal."""
    asked = request(flags, out=path, **options)
    made = plan_for(asked, decide(asked), dataset, CPU)
    if made.refusal:
        raise made.refusal
    return made


def run(
    dataset: Dataset,
    path: Path,
    flags: Mapping[str, Any] | None = None,
    *,
    stop_after: int | None = None,
    **options: Any,
) -> list[Event]:
    """Train, and stop after `stop_after` updates of this session and what is due then; the events."""
    return carry_out(plan(dataset, path, flags, **options), stop_after=stop_after)


def carry_out(
    made: Plan, *, stop_after: int | None = None, stop_when: Callable[[Event | None], bool] | None = None
) -> list[Event]:
    """Carry out a plan; the events.

    A stop is asked for after `stop_after` updates, or where `stop_when` is true for the last event.
    """
    events: list[Event] = []
    asked = count()

    def should_stop() -> bool:
        last = events[-1] if events else None
        if stop_when is not None:
            return stop_when(last)
        is_evaluating = isinstance(last, EvalProgress) and last.done < last.total
        return stop_after is not None and not is_evaluating and next(asked) >= stop_after

    for event in session.carry_out(made, should_stop):
        events.append(event)
    return events


def lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a run's metrics.jsonl."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    text = (path / "metrics.jsonl").read_text(encoding="utf-8")
    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def without_times(line: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in line.items() if key not in ("seconds", "perf/tok_per_sec")}


def series(path: Path, name: str) -> dict[int, Any]:
    """Values of one figure by step; fails where a step has two."""
    found: dict[int, Any] = {}
    for line in lines(path):
        if name in line:
            assert line["step"] not in found, f"{name} was logged twice at step {line['step']}"
            found[line["step"]] = line[name]
    return found


def end_state(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The content of a run's newest checkpoint without times: plain values, and tensors."""
    checkpoint, skipped = newest_checkpoint(path)
    assert checkpoint is not None
    assert skipped == {}
    progress = asdict(checkpoint.progress)
    del progress["seconds"], progress["metrics_bytes"]
    tensors = {
        f"{part}.{name}": tensor
        for part in ("model", "optimizer", "random")
        for name, tensor in getattr(checkpoint.state, part).items()
    }
    return {"progress": progress, "scaler": checkpoint.state.scaler, "threads": checkpoint.state.threads}, tensors


def assert_same_end(one: Path, other: Path, *, leaving_out: tuple[str, ...] = ()) -> None:
    """Fails unless two runs ended in the same state, bit for bit; `leaving_out` names counters that may differ."""
    (values, tensors), (other_values, other_tensors) = end_state(one), end_state(other)
    for name in leaving_out:
        del values["progress"][name], other_values["progress"][name]
    assert values == other_values
    assert tensors.keys() == other_tensors.keys()
    different = [name for name in tensors if not torch.equal(tensors[name], other_tensors[name])]
    assert different == []
