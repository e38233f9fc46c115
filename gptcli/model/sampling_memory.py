"""Peak memory of sampling, estimated from a config before it starts."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gptcli.config import ModelConfig
from gptcli.model.cost import cache_bytes, parameter_count
from gptcli.model.memory import FLOAT32, KERNELS, Peak, experts_at_once

CHOICE_BYTES = 32
"""Bytes per id of the vocabulary to choose a token: logits, filtered and sorted ones, and float64 probabilities."""


@dataclass(frozen=True)
class SamplingMemory(Peak):
    """Peak memory of sampling in bytes, by purpose."""

    parameters: int
    loading: int
    """CPU: pages of the weights file and transposed matrices. The heap keeps them to the end."""
    cache: int
    """Keys and values of every layer, allocated for the full context."""
    activations: int
    """The prefill; later passes have one token per sequence."""
    logits: int
    process: int
    kernels: int


def sampling_memory(
    config: ModelConfig, batch_size: int, length: int, dtype: torch.dtype, device_type: str, process: int = 0
) -> SamplingMemory:
    """Peak memory of generating `batch_size` texts at once from a prompt of `length` tokens, with weights in `dtype`.

    `process` is as in `training_memory`.
    """
    item = dtype.itemsize
    row = batch_size * length * config.n_embd * item
    parameters = parameter_count(config)
    at_once = config.n_expert and device_type == "cuda"
    experts = experts_at_once(config, batch_size * length, item, 0) if at_once else 0
    return SamplingMemory(
        parameters=item * parameters,
        loading=FLOAT32 * parameters if device_type == "cpu" else 0,
        cache=batch_size * cache_bytes(config, item),
        activations=10 * row + experts,  # residual stream, its norm, the MLP before and after GELU
        logits=batch_size * CHOICE_BYTES * config.vocab_size,
        process=process,
        kernels=KERNELS[device_type],
    )


def sample_bytes(config: ModelConfig, dtype: torch.dtype) -> int:
    """Bytes per sequence while sampling: its keys and values, and the choice of its next token."""
    return cache_bytes(config, dtype.itemsize) + CHOICE_BYTES * config.vocab_size
