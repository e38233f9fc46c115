"""Settings with which a training that does not fit into memory would fit."""

from __future__ import annotations

import torch

from gptcli.config import RunConfig, build_config
from gptcli.config.presets import PRESETS
from gptcli.model.cost import parameter_count
from gptcli.model.memory import largest_micro_batch

SHAPE = tuple(f"model.{name}" for name in ("n_layer", "n_head", "n_embd", "block_size"))
"""Settings that a preset cannot change where they are stated."""


def way_to_fit(config: RunConfig, free: int, dtype: torch.dtype, device_type: str, *, can_choose: bool) -> str:
    """A sentence with the settings that fit into `free` bytes, those first that leave the result as it is.

    `can_choose`: the run can have the shape of another preset.
    """

    def fitting(config: RunConfig, *, checkpointing: bool) -> int | None:
        batch_size = config.train.batch_size
        return largest_micro_batch(
            config.model, batch_size, free, dtype, device_type, activation_checkpointing=checkpointing
        )

    if size := fitting(config, checkpointing=config.train.activation_checkpointing):
        return f"Use `train.micro_batch_size = {size}`: the result is the same."
    if size := fitting(config, checkpointing=True):
        both = "`train.activation_checkpointing = true`"
        if (config.train.micro_batch_size or 1) > size:
            both += f" and `train.micro_batch_size = {size}`"
        return f"Use {both}: the result is the same, in more time."
    others = [build_config(name, vocab_size=config.model.vocab_size) for name in PRESETS if can_choose]
    smaller = [other for other in others if parameter_count(other.model) < parameter_count(config.model)]
    for other in sorted(smaller, key=lambda other: parameter_count(other.model), reverse=True):
        if fitting(other, checkpointing=config.train.activation_checkpointing):
            return f"Use a smaller model: `preset = {other.preset}` fits."
    return "Use a smaller model: lower `model.n_layer`, `model.n_embd` or `model.block_size`."
