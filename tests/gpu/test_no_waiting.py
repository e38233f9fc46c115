"""A training step never makes the host wait for the GPU: it would idle while the next kernels are prepared.

Without a GPU tests/gpu/test_fake_cuda.py finds such operations, except in the backward pass.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.gpu.small_trainer import small_trainer, step

CASES: dict[str, dict[str, Any]] = {
    "AdamW": {"optim__optimizer": "adamw"},
    "Muon": {"optim__optimizer": "muon"},
    "float16": {"train__dtype": "float16"},
    "float32": {"train__dtype": "float32"},
    "spikes": {"optim__skip_spikes": 6.0},
    "micro-batches": {"train__micro_batch_size": 4},
    "checkpointing": {"train__activation_checkpointing": True},
    "dropout": {"model__dropout": 0.1},
    "large vocabulary": {"vocabulary": 50257},
    "experts": {"model__n_expert": 4},
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_a_step_does_not_wait(name: str) -> None:
    if not torch.cuda.is_available():
        pytest.skip("this machine has no CUDA GPU")
    trainer = small_trainer(torch.device("cuda"), **CASES[name])
    for _ in range(3):  # the first steps allocate and choose kernels
        step(trainer)
    torch.cuda.set_sync_debug_mode("error")
    for _ in range(3):
        step(trainer)


@pytest.mark.gpu
def test_control_a_value_that_is_read() -> None:
    if not torch.cuda.is_available():
        pytest.skip("this machine has no CUDA GPU")
    trainer = small_trainer(torch.device("cuda"))
    update = step(trainer)
    torch.cuda.set_sync_debug_mode("error")
    with pytest.raises(RuntimeError, match="synchroniz"):
        trainer.figures(update)
