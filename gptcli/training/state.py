"""The state of a training: what must be stored to continue it exactly."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass
class TrainerState:
    """A trainer's state between two updates. The tensors are the trainer's own, not copies."""

    step: int
    """Finished updates."""
    model: dict[str, Tensor]
    """Weights by parameter name."""
    optimizer: dict[str, Tensor]
    random: dict[str, Tensor]
    """States of torch's random generators by device type."""
    scaler: dict[str, Any] = field(default_factory=dict)
    """The loss scaler's numbers; empty unless training runs in float16."""
    threads: int = 1
    """CPU threads of torch: another number of threads rounds differently."""
    compiled: bool = False
    """Whether torch.compile made the kernels, which round differently too."""
    ranks: int = 1
    """Processes that trained together: another number of them rounds differently."""


def random_states(device: torch.device) -> dict[str, Tensor]:
    """The states of the random generators that training draws from, by device type."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return states


def restore_random_states(states: dict[str, Tensor], device: torch.device) -> None:
    """Restore states from `random_states`; states of other device types are ignored."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
    elif device.type == "mps" and "mps" in states:
        torch.mps.set_rng_state(states["mps"])
