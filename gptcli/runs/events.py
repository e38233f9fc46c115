"""The events of a training: plain data for displays, logs and callers of the library."""

from __future__ import annotations

from dataclasses import dataclass

from gptcli.checkpoints.checkpoint import Progress
from gptcli.runs.budget import StopReason
from gptcli.runs.plan import Plan


@dataclass(frozen=True)
class Preparing:
    """Progress of preparing the data."""

    stage: str
    """ "hashing", "reading", "training tokenizer" or "encoding"."""
    done_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class Planned:
    """Everything is decided; training begins next."""

    plan: Plan


@dataclass(frozen=True, kw_only=True)
class StepMetrics:
    """A logged update."""

    step: int
    """Finished updates."""
    loss: float
    """Loss of the update's batch, in nats per token."""
    lr: float
    grad_norm: float
    tokens_per_second: float
    seconds: float
    """Training time so far, over all sessions of the run."""
    skipped: int
    """Updates skipped so far, after a float16 overflow or as spikes."""
    spikes: int = 0
    """Updates skipped so far as spikes."""
    experts: tuple[float, float] | None = None
    """Balance loss (1: tokens are spread evenly) and the largest share of choices that one expert got."""


@dataclass(frozen=True)
class Heartbeat:
    """A sign of life after a while without other events; not logged."""

    step: int


@dataclass(frozen=True)
class EvalProgress:
    """Progress of an evaluation; not logged."""

    step: int
    done: int
    """Windows scored so far."""
    total: int


@dataclass(frozen=True, kw_only=True)
class EvalMetrics:
    """A finished evaluation on the validation split."""

    step: int
    loss: float
    """Nats per token."""
    bits_per_byte: float
    best_loss: float
    """The lowest loss so far, this one included."""
    best_step: int
    seconds: float
    """Training time so far."""


@dataclass(frozen=True)
class CheckpointSaved:
    """A checkpoint is complete on the disk."""

    step: int


@dataclass(frozen=True)
class SaveFailed:
    """A write failed, which is no reason to end training."""

    step: int
    message: str
    """A sentence for the user."""
    checkpoint: bool = False
    """Whether it was a checkpoint that could not be written. These are logged."""


@dataclass(frozen=True)
class SampleDrawn:
    """A short text from the model in its present state."""

    step: int
    text: str


@dataclass(frozen=True)
class Note:
    """A sentence for the user, such as the choice of a fallback."""

    text: str


@dataclass(frozen=True, kw_only=True)
class RunFinished:
    """The end of a session: its last event."""

    step: int
    tokens: int
    seconds: float
    stopped: StopReason
    val_loss: float | None
    """The last validation loss."""
    best_val_loss: float | None
    best_step: int | None

    @classmethod
    def after(cls, progress: Progress, stopped: StopReason, *, seconds: float) -> RunFinished:
        """The end of a session with these counters."""
        return cls(
            step=progress.step,
            tokens=progress.tokens,
            seconds=seconds,
            stopped=stopped,
            val_loss=progress.val_loss,
            best_val_loss=progress.best_val_loss,
            best_step=progress.best_step,
        )


Event = (
    Preparing
    | Planned
    | StepMetrics
    | Heartbeat
    | EvalProgress
    | EvalMetrics
    | CheckpointSaved
    | SaveFailed
    | SampleDrawn
    | Note
    | RunFinished
)
