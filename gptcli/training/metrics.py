"""metrics.jsonl, the source of truth: one JSON object for each logged step and evaluation.

Floats are printed so that they are read back exactly; JSON has no NaN and no infinity, so they become null (such as the
gradient norm of an update that float16 overflow skipped). The names are TensorBoard's.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

from gptcli.checkpoints import names
from gptcli.storage import AppendLog
from gptcli.training.events import EvalMetrics, Event, SampleDrawn, StepMetrics


def scalars(event: Event) -> dict[str, float]:
    """The named figures of an event; empty if it has none."""
    if isinstance(event, StepMetrics):
        return {
            "train/loss": event.loss,
            "train/lr": event.lr,
            "train/grad_norm": event.grad_norm,
            "train/skipped": event.skipped,
            "perf/tok_per_sec": event.tokens_per_second,
        }
    if isinstance(event, EvalMetrics):
        # exp overflows a float above 709 nats; a model is never that wrong, an exploding one might be.
        perplexity = math.exp(min(event.loss, 700.0))
        return {"val/loss": event.loss, "val/ppl": perplexity, "val/bpb": event.bits_per_byte}
    return {}


class MetricsLog:
    """Writes events into a run's metrics.jsonl."""

    def __init__(self, run: Path, keep_bytes: int) -> None:
        """Open the log, cut to the length that the checkpoint names from which training goes on."""
        self._log = AppendLog(run / names.METRICS, keep_bytes)

    def write(self, event: Event) -> None:
        """Append the event if it has figures or text."""
        if figures := scalars(event):
            assert isinstance(event, StepMetrics | EvalMetrics)
            line = {"step": event.step, "seconds": round(event.seconds, 3)} | {
                name: value if math.isfinite(value) else None for name, value in figures.items()
            }
            self._log.append(json.dumps(line, allow_nan=False))
        elif isinstance(event, SampleDrawn):
            self._log.append(json.dumps({"step": event.step, "sample": event.text}, ensure_ascii=False))

    def sync(self) -> int:
        """Flush to the disk; the length in bytes."""
        return self._log.sync()

    def close(self) -> None:
        self._log.close()
