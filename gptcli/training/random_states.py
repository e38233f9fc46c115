"""The states of the random generators that training draws from: dropout, and nothing else."""

from __future__ import annotations

import torch
from torch import Tensor


def random_states(device: torch.device) -> dict[str, Tensor]:
    """States of the random generators that training draws from, by device type."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return states


def restore_random_states(states: dict[str, Tensor], device: torch.device) -> None:
    """Restore what `random_states` gave; a state of another kind of device is left out."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
    elif device.type == "mps" and "mps" in states:
        torch.mps.set_rng_state(states["mps"])
