"""Loss spikes: updates whose loss or gradient norm is far above its recent mean.

PaLM skipped such updates where clipping did not help (Chowdhery et al. 2022, section 5.1), by hand, restarting from a
checkpoint; here they are skipped before the weights change. Nothing waits for the device.
"""

from __future__ import annotations

import torch
from torch import Tensor

WINDOW = 100
"""Updates that the running mean and deviation cover; none is skipped before this many were seen."""

STATE = ("mean", "variance", "seen", "skipped")
"""Tensors of a guard that are saved."""


class SpikeGuard:
    """Detects values more than `sigma` deviations above their running mean.

    A spike enters the statistics clipped to the limit: one spike does not hide the next, but the limit rises with each,
    so that updates are soon accepted again when the loss has risen for good.
    """

    def __init__(self, sigma: float, device: torch.device) -> None:
        self.sigma = sigma
        self.mean = torch.zeros(2, device=device)  # (2,): loss and norm
        self.variance = torch.zeros(2, device=device)  # (2,)
        self.seen = torch.zeros((), device=device)  # ()
        self.skipped = torch.zeros((), device=device)  # ()

    def stands_out(self, loss: Tensor, norm: Tensor) -> Tensor:
        """Whether an update is a spike by its loss or gradient norm, both (): bool (). Updates the statistics.

        Non-finite values are left to the optimizer's own check: no spike, statistics unchanged.
        """
        values = torch.stack([loss.float(), norm.float()])  # (2,)
        limit = self.mean + self.sigma * self.variance.sqrt()  # (2,)
        finite, ready = torch.isfinite(values).all(), self.seen >= WINDOW
        spike = finite & ready & (values > limit).any()
        counted = torch.where(ready, torch.minimum(values, limit), values)
        weight = 1 / (self.seen + 1).clamp(max=WINDOW)  # a plain mean at first, then an exponential one
        distance = counted - self.mean
        variance = (1 - weight) * (self.variance + weight * distance**2)
        self.mean = torch.where(finite, self.mean + weight * distance, self.mean)
        self.variance = torch.where(finite, variance, self.variance)
        self.seen = self.seen + finite
        self.skipped = self.skipped + spike
        return spike

    def tensors(self) -> dict[str, Tensor]:
        """The state to save."""
        return {f"spikes.{name}": getattr(self, name) for name in STATE}

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Restore state from `tensors`; a run that was trained without a guard so far starts a new one."""
        for name in STATE if "spikes.seen" in tensors else ():
            setattr(self, name, tensors[f"spikes.{name}"].to(self.mean.device))
