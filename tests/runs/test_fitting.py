"""The hint for a training that does not fit into memory names settings that do."""

from __future__ import annotations

import pytest
import torch

from gptcli.config import RunConfig, build_config
from gptcli.model.memory import training_memory
from gptcli.runs.fitting import way_to_fit

FLOAT32 = torch.float32


def config(preset: str, **train: object) -> RunConfig:
    return build_config(preset, {"train": train}, vocab_size=65)


def needed(config: RunConfig, size: int, *, checkpointing: bool = False) -> int:
    """Bytes that `size` sequences at once need, with what the estimate of the fitting size keeps free."""
    memory = training_memory(config.model, size, FLOAT32, "cpu", 0, activation_checkpointing=checkpointing)
    return int(1.2 * memory.needed)


def hint(config: RunConfig, free: int, *, can_choose: bool = True) -> str:
    return way_to_fit(config, free, FLOAT32, "cpu", can_choose=can_choose)


def test_first_a_smaller_micro_batch() -> None:
    large = config("small", micro_batch_size=64)
    assert "`train.micro_batch_size = " in hint(large, needed(large, 4))


def test_then_activation_checkpointing() -> None:
    gpt2 = config("gpt2")
    free = needed(gpt2, 1, checkpointing=True)
    assert free < training_memory(gpt2.model, 1, FLOAT32, "cpu", 0).needed, "it makes a difference"
    assert hint(gpt2, free) == "Use `train.activation_checkpointing = true`: the result is the same, in more time."
    both = hint(config("gpt2", micro_batch_size=8), free)
    assert "`train.activation_checkpointing = true` and `train.micro_batch_size = " in both


def test_then_the_largest_preset_that_fits() -> None:
    large = config("gpt2-xl")
    free = needed(config("gpt2-medium"), 1)
    assert "`preset = gpt2-medium`" in hint(large, free)
    assert "preset" not in hint(large, free, can_choose=False)
    assert "`model.n_layer`" in hint(large, free, can_choose=False)


@pytest.mark.parametrize("free", [0, 1_000_000])
def test_last_any_smaller_model(free: int) -> None:
    assert "`model.n_layer`" in hint(config("nano"), free)
