"""A report on a model's shape: parameters, activations, memory and FLOPs. No weights are needed.

Letters: B sequences, T tokens, C width, H heads, D head width, L layers, V vocabulary.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch

from gptcli.config import DtypeName, ModelConfig
from gptcli.generation.placement import decoding_dtype
from gptcli.machine import process_memory
from gptcli.model.cost import FLOPS_FORMULA, cache_bytes, forward_flops, parameter_shapes, training_flops
from gptcli.model.devices import choose_device, choose_dtype
from gptcli.model.memory import SamplingMemory, TrainingMemory, sampling_memory, training_memory

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
class Parameters:
    total: int
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
    kind: str = "model"


def describe_model(
    name: str,
    config: ModelConfig,
    batch_size: int,
    length: int,
    dtype_name: DtypeName | None = None,
    *,
    samples: int = 1,
    activation_checkpointing: bool = False,
) -> ModelReport:
    """A report on a model's shape, for `batch_size` sequences of `length` tokens on this machine's device.

    `dtype_name` is the dtype of training (None: the one that training would choose), `samples` the number of texts
    sampled at once.
    """
    device = choose_device("auto")
    chosen = choose_dtype(dtype_name, device, config.n_embd)
    sampling_dtype = decoding_dtype(None, device, config.n_embd)
    process = process_memory(device.type, trains=True)
    training = training_memory(
        *(config, batch_size, chosen.dtype, device.type, process), activation_checkpointing=activation_checkpointing
    )
    sampling = sampling_memory(config, samples, length, sampling_dtype, device.type, process)
    return ModelReport(
        name=name,
        config=config.model_dump(),
        parameters=parameters(config),
        activations=activations(config, batch_size, length),
        memory=Memory(
            device=device.type,
            dtype=chosen.name,
            training_sequences=batch_size,
            training=training,
            training_total=training.total,
            sampling_sequences=samples,
            sampling=sampling,
            sampling_total=sampling.total,
            cache_per_token=cache_bytes(config, sampling_dtype.itemsize, tokens=1),
        ),
        flops=Flops(length, forward_flops(config, length), training_flops(config, length)),
    )


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
    return Parameters(total, tuple(parts))


def activations(config: ModelConfig, batch_size: int, length: int) -> tuple[Stage, ...]:
    """The shapes of what flows through the model, in its order."""
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
        Stage("h.*.attn weights", (B, H, T, T), L, "attention of each token to each other"),
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
