"""A report on a model's shape: parameters, activations, memory and FLOPs. No weights are needed.

Letters: B sequences, T tokens, C width, H heads, D head width, L layers, V vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from gptcli.config import DtypeName, ModelConfig
from gptcli.errors import DeviceError, UsageError
from gptcli.generation.placement import decoding_dtype
from gptcli.machine import process_memory
from gptcli.model.cost import (
    FLOPS_FORMULA,
    active_parameters,
    cache_bytes,
    forward_flops,
    forward_flops_by_part,
    parameter_shapes,
    parameters_by_part,
    recomputed_flops,
    training_flops,
)
from gptcli.model.devices import choose_device, choose_dtype, dtype_name, torch_dtype
from gptcli.model.memory import TrainingMemory, stores_scores, training_memory
from gptcli.model.sampling_memory import SamplingMemory, sampling_memory
from gptcli.report.lengths import Lengths, describe_lengths

NONLINEARITIES = {"gelu": "GELU", "relu": "ReLU", "relu2": "ReLU²", "swiglu": "SwiGLU"}


@dataclass(frozen=True)
class Part:
    """A parameter tensor. The same tensor in every block and expert is one part with `copies`."""

    name: str
    """Its name in the model; `h.*` stands for every block, `experts.*` for every expert."""
    shape: tuple[int, ...]
    copies: int
    count: int
    """Parameters in all copies."""
    share: float
    """Share of all parameters of the model."""


@dataclass(frozen=True)
class Share:
    """Share of a part of the model in a total."""

    name: str
    count: int
    share: float


@dataclass(frozen=True)
class Parameters:
    total: int
    active: int
    """Without the experts that a token does not pass through."""
    subtotals: tuple[Share, ...]
    """Embeddings, attention, MLP, norms and head; a head that shares the token embedding has none."""
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Stage:
    """An activation on the way from ids to logits, named after the module that outputs it, if there is one."""

    name: str
    shape: tuple[int, ...]
    copies: int
    what: str


@dataclass(frozen=True)
class Memory:
    """Peak memory in bytes on `device`, with products in `dtype`."""

    device: str
    dtype: DtypeName
    activation_checkpointing: bool
    """Whether training keeps the activations of one block at a time and recomputes them in the backward pass."""
    training_sequences: int
    """Sequences in a micro-batch."""
    training: TrainingMemory
    training_total: int
    sampling_sequences: int
    sampling: SamplingMemory
    sampling_total: int
    cache_per_token: int
    """Bytes of the key-value cache per token of a sequence."""


@dataclass(frozen=True)
class Flops:
    """Floating-point operations per token in a sequence of `length` tokens."""

    length: int
    forward_per_token: int
    training_per_token: int
    recomputed_per_token: int
    """FLOPs that activation checkpointing adds to training; 0 without it."""
    parts: tuple[Share, ...]
    """The forward pass by part."""
    formula: str = FLOPS_FORMULA


@dataclass(frozen=True)
class ModelReport:
    name: str
    config: dict[str, Any]
    """`ModelConfig` as plain values."""
    parameters: Parameters
    activations: tuple[Stage, ...]
    memory: Memory
    flops: Flops
    lengths: Lengths
    kind: str = "model"


@dataclass(frozen=True)
class Basis:
    """Settings for which memory and FLOPs are computed; None leaves one to the recipe and the machine."""

    batch_size: int | None = None
    """Sequences in a micro-batch, and texts sampled at once."""
    length: int | None = None
    """Tokens per sequence."""
    device: str = "auto"
    """A device, which this machine need not have."""
    dtype: DtypeName | None = None


def describe_model(
    name: str, config: ModelConfig, basis: Basis, *, sequences: int, activation_checkpointing: bool = False
) -> ModelReport:
    """A report on a model's shape. `sequences` is the size of a micro-batch where `basis` states none.

    Raises UsageError for a length beyond the context or an unknown device, DeviceError for a dtype that the device
    cannot train in.
    """
    length = within_context(basis.length, config.block_size)
    batch_size, samples = basis.batch_size or sequences, basis.batch_size or 1
    device_type, dtype, sampling_dtype = _dtypes(basis, config.n_embd)
    process = process_memory(device_type, trains=True)
    training = training_memory(
        *(config, batch_size, dtype, device_type, process), activation_checkpointing=activation_checkpointing
    )
    sampling = sampling_memory(config, samples, length, sampling_dtype, device_type, process)
    return ModelReport(
        name=name,
        config=config.model_dump(),
        parameters=parameters(config),
        activations=activations(config, batch_size, length, device_type),
        memory=Memory(
            device=device_type,
            dtype=dtype_name(dtype),
            activation_checkpointing=activation_checkpointing,
            training_sequences=batch_size,
            training=training,
            training_total=training.total,
            sampling_sequences=samples,
            sampling=sampling,
            sampling_total=sampling.total,
            cache_per_token=cache_bytes(config, sampling_dtype.itemsize, tokens=1),
        ),
        flops=flops(config, length, activation_checkpointing=activation_checkpointing),
        lengths=describe_lengths(config, dtype, sampling_dtype, device_type),
    )


def within_context(length: int | None, context: int) -> int:
    """`length`, or the whole context if it is None; raises UsageError for more than the context."""
    if length is not None and length > context:
        raise UsageError(f"`length = {length}` is more than the context of {context:,} tokens.", "Use a smaller one.")
    return length or context


def _dtypes(basis: Basis, n_embd: int) -> tuple[str, torch.dtype, torch.dtype]:
    """The type of a device, and the dtypes of training and of sampling there.

    torch cannot be asked about a device that this machine does not have: a CUDA GPU is taken for one with bfloat16
    units.
    """
    try:
        device = choose_device(basis.device)
    except DeviceError:
        device_type = torch.device(basis.device).type
        default = torch.bfloat16 if device_type == "cuda" else torch.float32
        dtype = default if basis.dtype is None else torch_dtype(basis.dtype)
        return device_type, dtype, dtype
    dtype = choose_dtype(basis.dtype, device, n_embd).dtype
    return device.type, dtype, decoding_dtype(None, device, n_embd)


def flops(config: ModelConfig, length: int, *, activation_checkpointing: bool = False) -> Flops:
    """The FLOPs of a token in a sequence of `length` tokens."""
    forward = forward_flops(config, length)
    return Flops(
        length=length,
        forward_per_token=forward,
        training_per_token=training_flops(config, length),
        recomputed_per_token=recomputed_flops(config, length) if activation_checkpointing else 0,
        parts=_shares(forward_flops_by_part(config, length)),
    )


def _shares(counts: Mapping[Any, int]) -> tuple[Share, ...]:
    total = sum(counts.values())
    return tuple(Share(name, count, count / total) for name, count in counts.items())


def parameters(config: ModelConfig) -> Parameters:
    """The table of parts. A head that shares the token embedding is not in it."""
    shapes: dict[str, tuple[int, ...]] = {}
    copies: dict[str, int] = {}
    for full_name, shape in parameter_shapes(config).items():
        name = re.sub(r"(^h|\.experts)\.\d+\.", r"\1.*.", full_name)
        shapes[name] = tuple(shape)
        copies[name] = copies.get(name, 0) + 1
    counts = {name: copies[name] * torch.Size(shape).numel() for name, shape in shapes.items()}
    total = sum(counts.values())
    parts = (Part(name, shape, copies[name], counts[name], counts[name] / total) for name, shape in shapes.items())
    return Parameters(total, active_parameters(config), _shares(parameters_by_part(config)), tuple(parts))


def activations(config: ModelConfig, batch_size: int, length: int, device_type: str) -> tuple[Stage, ...]:
    """The shapes of what flows through the model in training, in its order."""
    C, H, L = config.n_embd, config.n_head, config.n_layer
    D, G = config.head_dim, config.n_kv_head
    B, T = batch_size, length
    stream, experts = (B, T, C), config.n_expert_active if config.n_expert else 1
    inside = (B, T, config.mlp_rows)
    mlp = "h.*.mlp.experts.*." if config.n_expert else "h.*.mlp."
    position = {
        "learned": [Stage("wpe", (T, C), 1, "position embeddings, added")],
        "sinusoidal": [Stage("sinusoids", (T, C), 1, "positions as sines and cosines, added")],
        "rope": [],
        "none": [],
    }
    rotated = "queries by head" + (", rotated by position" if config.position == "rope" else "")
    weights = "attention of each token to each other"
    if not stores_scores(config, device_type):
        weights += ", in pieces: the kernel is fused and stores no T × T matrix"
    router = [Stage("h.*.mlp.router", (B, T, config.n_expert), L, "a probability for each expert")]
    before, after = ("norm before", "the sum") if config.norm_placement == "pre" else ("norm after", "the normed sum")
    return (
        Stage("ids", (B, T), 1, "token ids"),
        Stage("wte", stream, 1, "token embeddings"),
        *position[config.position],
        Stage("h.*.ln_1", stream, L, f"{before} attention"),
        Stage("h.*.attn.c_attn", (B, T, sum(config.qkv_rows)), L, "queries, keys and values"),
        Stage("h.*.attn q", (B, H, T, D), L, rotated),
        Stage("h.*.attn k, v", (B, G, T, D), L, "keys and values by head"),
        Stage("h.*.attn weights", (B, H, T, T), L, weights),
        Stage("h.*.attn heads", (B, H, T, D), L, "weighted values by head"),
        Stage("h.*.attn.c_proj", stream, L, "attention's output"),
        Stage("h.*.ln_2", stream, L, f"{before} the MLP"),
        *(router if config.n_expert else []),
        Stage(f"{mlp}c_fc", inside, L * experts, f"inside the MLP, around {NONLINEARITIES[config.mlp]}"),
        Stage(f"{mlp}c_proj", stream, L * experts, "the MLP's output"),
        Stage("h.*", stream, L, f"{after}: output of the block"),
        *([Stage("ln_f", stream, 1, "final norm")] if config.norm_placement == "pre" else []),
        Stage("logits", (B, T, config.vocab_size), 1, "a score for each id"),
    )
