"""Trainers of small models on any device, over random tokens."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.gpu.setting import trainer_of
from gptcli.training.trainer import Trainer
from gptcli.training.update import Update

SETTINGS: dict[str, dict[str, Any]] = {
    "cpu": {"model.n_layer": 2, "model.n_head": 2, "model.n_embd": 16, "model.block_size": 16, "train.batch_size": 4},
    "cuda": {"model.n_layer": 4, "train.batch_size": 16},
}


def small_trainer(device: torch.device, *, vocabulary: int = 101, **changes: Any) -> Trainer:
    """A trainer of `tiny`, smaller on a CPU; `changes` are settings with two underscores for the dot."""
    settings = {"train.max_steps": 1000, "train.compile": "off", **SETTINGS[device.type]}
    stated = settings | {name.replace("__", "."): value for name, value in changes.items()}
    return trainer_of("tiny", vocabulary, stated, device)


def step(trainer: Trainer) -> Update:
    """One update."""
    update = trainer.step()
    assert update is not None, "nothing asked to stop"
    return update
