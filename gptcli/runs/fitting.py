"""Fitting a training to the machine: its dtype, its micro-batch, its memory; and what would fit where it does not."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gptcli.config import RunConfig, build_config, with_train
from gptcli.config.presets import PRESETS
from gptcli.machine import process_memory
from gptcli.model.cost import parameter_count
from gptcli.model.devices import DtypeChoice, choose_dtype
from gptcli.model.memory import TrainingMemory, largest_micro_batch, training_memory, usable
from gptcli.runs.followers import free_memory_of_each
from gptcli.runs.team import ALONE_TEAM, Team
from gptcli.training.ranks import ALONE, Ranks

SHAPE = tuple(f"model.{name}" for name in ("n_layer", "n_head", "n_embd", "block_size"))
"""Settings that a preset cannot change where they are stated."""


@dataclass(frozen=True)
class Fitted:
    """A config with the dtype and micro-batch for a machine."""

    config: RunConfig
    dtype: DtypeChoice
    memory: TrainingMemory
    free: int
    """Bytes of free memory."""
    fits: bool
    """Whether there is enough of it. A GPU's is only known once it is used."""


def fit_to_machine(config: RunConfig, device: torch.device, team: Team = ALONE_TEAM) -> Fitted:
    """The config with the dtype, with the micro-batch of each rank, and whether several ranks shard the weights.

    Raises DeviceError for a dtype that the device cannot train in.
    """
    dtype, free = choose_dtype(config.train.dtype, device, config.model.n_embd), free_memory_of_each(device, team)
    if team.ranks.size == 1:
        return _fitted(config, device, dtype, free)
    if config.train.parallel is None:
        replicated = _fitted(with_train(config, parallel="replicated"), device, dtype, free, team)
        if replicated.memory.needed <= usable(free, device.type):
            return replicated
        config = with_train(config, parallel="fsdp")
    return _fitted(config, device, dtype, free, team)


def _fitted(config: RunConfig, device: torch.device, dtype: DtypeChoice, free: int, team: Team = ALONE_TEAM) -> Fitted:
    train, part = config.train, team.ranks.largest_part(config.train.batch_size)
    shards = _shards(config, team.ranks)
    checkpointing = train.activation_checkpointing
    micro_batch_size = train.micro_batch_size or largest_micro_batch(
        config.model, part, free, dtype.dtype, device.type, activation_checkpointing=checkpointing, shards=shards
    )
    micro_batch_size = min(micro_batch_size or 1, part)
    memory = training_memory(
        config.model,
        micro_batch_size,
        dtype.dtype,
        device.type,
        process_memory(device.type, trains=True),
        activation_checkpointing=checkpointing,
        shards=shards,
    )
    fits = device.type != "cpu" or memory.needed <= free
    return Fitted(with_train(config, dtype=dtype.name, micro_batch_size=micro_batch_size), dtype, memory, free, fits)


def _shards(config: RunConfig, ranks: Ranks) -> int:
    """Ranks that share the weights."""
    return ranks.size if config.train.parallel == "fsdp" else 1


def way_to_fit(
    config: RunConfig, free: int, dtype: torch.dtype, device_type: str, ranks: Ranks = ALONE, *, can_choose: bool
) -> str:
    """A sentence with the settings that fit into `free` bytes of each rank, those first that leave the result as it is.

    `can_choose`: the run can have the shape of another preset.
    """

    def fitting(config: RunConfig, *, checkpointing: bool) -> int | None:
        part, shards = ranks.largest_part(config.train.batch_size), _shards(config, ranks)
        return largest_micro_batch(
            config.model, part, free, dtype, device_type, activation_checkpointing=checkpointing, shards=shards
        )

    if size := fitting(config, checkpointing=config.train.activation_checkpointing):
        return f"Use `train.micro_batch_size = {size}`: the result is the same."
    sharded = with_train(config, parallel="fsdp")
    if ranks.size > 1 and fitting(sharded, checkpointing=config.train.activation_checkpointing):
        return "Use `train.parallel = fsdp`: the result is the same up to rounding."
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
