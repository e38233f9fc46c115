"""The figures of an update: as tensors on the device, and as numbers."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from gptcli.model.experts import ExpertLoad


@dataclass(frozen=True)
class Update:
    """One update of the weights. Its tensors are on the device; reading them waits for it (see `Trainer.figures`)."""

    loss: Tensor
    """Loss of the batch before the update, in nats per token, ()."""
    grad_norm: Tensor
    """Gradient norm before clipping, ()."""
    lr: float
    spread: ExpertLoad | None
    """How tokens were spread over experts; None for a model without experts."""


@dataclass(frozen=True)
class Figures:
    """The figures of an update as numbers; `loss`, `grad_norm` and `lr` as in `Update`."""

    loss: float
    grad_norm: float
    lr: float
    skipped: int
    """Updates skipped so far: float16 overflows and spikes."""
    spikes: int = 0
    """Updates skipped so far as spikes."""
    experts: tuple[float, float] | None = None
    """Balance loss (1: spread evenly) and largest share of one expert; None for a model without experts."""
