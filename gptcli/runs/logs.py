"""metrics.jsonl, the source of truth: one JSON object for each logged step, evaluation and sample.

Floats are read back exactly. NaN and infinity, which JSON lacks, become null (such as the gradient norm of an update
skipped after a float16 overflow). The names are those of TensorBoard.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from pathlib import Path

from gptcli.checkpoints import names
from gptcli.errors import StorageError
from gptcli.model.loss import perplexity
from gptcli.runs.events import EvalMetrics, Event, Resumed, SampleDrawn, SaveFailed, StepMetrics
from gptcli.storage import AppendLog
from gptcli.untrusted import strict_json

MOST_LOSSES = 2048
"""Earlier losses of each kind that a run shows at most when it resumes."""
LONGEST_LINE = 2**16
"""Bytes before and after the name of a loss in which its line is looked for."""
LARGEST_LOSS = 1e6
"""Nats per token; a larger one is damage."""


def scalars(event: Event) -> dict[str, float]:
    """The figures of an event by name; empty if it has none."""
    if isinstance(event, StepMetrics):
        layers = event.layers
        norms = {"activations": layers.activations, "gradients": layers.gradients} if layers else {}
        experts = zip(("train/expert_balance", "train/expert_load"), event.experts or (), strict=False)
        return {
            "train/loss": event.loss,
            "train/lr": event.lr,
            "train/grad_norm": event.grad_norm,
            "train/skipped": event.skipped,
            "perf/tok_per_sec": event.tokens_per_second,
            **dict(experts),
            **{f"{name}/{layer}": norm for name, found in norms.items() for layer, norm in enumerate(found)},
        }
    if isinstance(event, EvalMetrics):
        parts = {f"val/loss/{name}": loss for name, loss in event.parts.items()}
        return {"val/loss": event.loss, "val/ppl": perplexity(event.loss), "val/bpb": event.bits_per_byte, **parts}
    return {}


def spread_losses(log: bytes, name: str, last_step: int) -> list[tuple[int, float]]:
    """Steps of a log and their losses called `name`: of many at most `MOST_LOSSES`, evenly spread.

    Damaged lines are skipped. The log of a million steps is searched once, and few of its lines are parsed.
    """
    found: list[tuple[int, float]] = []
    key, distance, begin = json.dumps(name).encode(), len(log) // MOST_LOSSES + 1, 0
    while (at := log.find(key, begin)) >= 0:
        begin = at + distance
        before, after = log[max(0, at - LONGEST_LINE) : at], log[at : at + LONGEST_LINE]
        with suppress(ValueError, KeyError, TypeError, OverflowError):
            line = strict_json(before.rpartition(b"\n")[2] + after.partition(b"\n")[0])
            step, loss = int(line["step"]), float(line[name])
            if 0 <= step <= last_step and 0 <= loss <= LARGEST_LOSS:
                found.append((step, loss))
    return found


class MetricsLog:
    """The log of a run, opened for appending."""

    def __init__(self, run: Path, keep_bytes: int) -> None:
        """Open the log, cut to the length that the checkpoint names."""
        self._log = AppendLog(run / names.METRICS, keep_bytes)
        self._behind = False

    def resumed(self, step: int) -> Resumed:
        """The losses up to a step that the log had when it was opened; they can be taken once."""
        kept = self._log.take_kept()
        return Resumed(step, *(spread_losses(kept, name, step) for name in ("train/loss", "val/loss")))

    def write(self, event: Event) -> None:
        """Append the event if it has figures or text.

        Raises StorageError at the first of several failed writes; the lines are kept and written as soon as possible.
        """
        if figures := scalars(event):
            assert isinstance(event, StepMetrics | EvalMetrics)
            line = {"step": event.step, "seconds": round(event.seconds, 3)} | {
                name: value if math.isfinite(value) else None for name, value in figures.items()
            }
            self._append(json.dumps(line, allow_nan=False))
        elif isinstance(event, SaveFailed) and event.checkpoint:
            self._append(json.dumps({"step": event.step, "save_failed": True}))
        elif isinstance(event, SampleDrawn):
            self._append(json.dumps({"step": event.step, "sample": event.text}, ensure_ascii=False))

    def _append(self, line: str) -> None:
        try:
            self._log.append(line)
            self._behind = False
        except StorageError:
            if not self._behind:  # reported once, not with every line
                self._behind = True
                raise

    def length(self) -> int:
        """The length in bytes; raises StorageError while a line is unwritten."""
        return self._log.length()

    def flush(self) -> None:
        """Flush what was written to the disk, from any thread."""
        self._log.flush()

    def close(self) -> None:
        self._log.close()
