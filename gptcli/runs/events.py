"""What the training loop tells: plain data, consumed by the display, the metrics log and TensorBoard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gptcli.checkpoints.checkpoint import Progress

StopReason = Literal["max_steps", "max_time", "patience", "interrupted"]


@dataclass(frozen=True, kw_only=True)
class StepMetrics:
    """One logged update. `step` counts finished updates; the loss is of that update's batch, in nats per token."""

    step: int
    loss: float
    lr: float
    grad_norm: float
    tokens_per_second: float
    seconds: float
    """Training time so far, over all sessions of the run."""
    skipped: int
    """Updates that were skipped so far, after a float16 overflow or as spikes."""
    spikes: int = 0
    """Those of them whose loss or gradient norm stood out."""
    experts: tuple[float, float] | None = None
    """Of a model with experts: the balance loss (1: tokens are spread evenly), and the largest share of choices that
    one expert got."""


@dataclass(frozen=True)
class Heartbeat:
    """Training is alive, though nothing else was told for a while; not logged."""

    step: int


@dataclass(frozen=True, kw_only=True)
class EvalMetrics:
    """One pass over the validation text."""

    step: int
    loss: float
    """Nats per token."""
    bits_per_byte: float
    best_loss: float
    """The lowest so far, this one included."""
    best_step: int
    seconds: float
    """Training time so far."""


@dataclass(frozen=True)
class CheckpointSaved:
    """A checkpoint is complete on the disk."""

    step: int


@dataclass(frozen=True)
class SaveFailed:
    """The disk refused something that is no reason to end training."""

    step: int
    message: str
    """A sentence for the user."""


@dataclass(frozen=True)
class SampleDrawn:
    """A short text from the model as it is."""

    step: int
    text: str


@dataclass(frozen=True)
class Note:
    """Something worth one line, such as a fallback."""

    text: str


@dataclass(frozen=True, kw_only=True)
class RunFinished:
    """The end: the last event."""

    step: int
    tokens: int
    seconds: float
    stopped: StopReason
    signum: int
    """The signal that interrupted; 0 if none did."""
    val_loss: float | None
    """The last validation loss."""
    best_val_loss: float | None
    best_step: int | None

    @classmethod
    def after(cls, progress: Progress, stopped: StopReason, *, seconds: float, signum: int = 0) -> RunFinished:
        """The end of a session that came so far."""
        return cls(
            step=progress.step,
            tokens=progress.tokens,
            seconds=seconds,
            stopped=stopped,
            signum=signum,
            val_loss=progress.val_loss,
            best_val_loss=progress.best_val_loss,
            best_step=progress.best_step,
        )


Event = StepMetrics | Heartbeat | EvalMetrics | CheckpointSaved | SaveFailed | SampleDrawn | Note | RunFinished
