"""How much memory training and sampling take, told before they start, and how much the machine has left.

The figures are peaks: on a CPU the resident memory of the whole process, on CUDA and MPS what tensors allocate on the
device. They are sums over what autograd keeps, read off the model's operations one by one (the tests compare them with
measured peaks), for the plain program: `torch.compile` keeps fewer activations, and its compiler takes memory of its
own.

Letters: B sequences, T tokens, C width, H heads. A "row" is B·T·C numbers, one per element of the residual stream.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

import torch

from gptcli.config import ModelConfig
from gptcli.machine import resident_memory
from gptcli.model.cache import cache_bytes
from gptcli.model.gpt import parameter_count, parameter_shapes
from gptcli.model.loss import CHUNK_LOGITS, held_tokens

FLOAT32 = 4
"""Bytes; parameters, gradients, optimizer state and the residual stream are float32 whatever the products are in."""

KERNELS = {"cpu": 28 << 20, "cuda": 32 << 20, "mps": 0}
"""Bytes that the first step adds once: oneDNN's code and threads' buffers on a CPU, cuBLAS's workspace on CUDA."""

ALLOCATOR_SHARE = {"cpu": 0.4, "cuda": 0.0, "mps": 0.0}
"""Heap fragmentation, as a share of what is allocated and freed in a step. Measured with glibc between 0.26 (64
sequences of `small`) and 0.6 (16 of them in half precision). CUDA's figure counts tensors only, so it has none."""

RECOMPUTING_SHARE = {"cpu": 1.3, "cuda": 0.0, "mps": 0.0}
"""The same where blocks are computed again, which allocates and frees all of a block's tensors once for each of them.
Measured between 1.1 and 1.5 (docs/log.md)."""

CHOICE_BYTES = 32
"""What choosing a token takes for each id of the vocabulary: logits, kept, sorted ones, and float64 probabilities."""

HEAP_BLOCK = 32 << 20
"""Bytes from which on glibc maps and unmaps a block at every use, which made updates of `small` with 64 sequences at
once slower than with 8, for five times the memory (docs/log.md). The inside of the MLP is the largest activation."""

CUDA_RESERVE = 0.9
"""Share of a GPU's free memory that a plan may use: the caching allocator needs some room to cut its blocks."""


class _Peak:
    """The most memory that something takes; the fields are its parts, in bytes."""

    process: int

    @property
    def total(self) -> int:
        """The peak."""
        total: int = sum(vars(self).values())
        return total

    @property
    def needed(self) -> int:
        """What must still be free: the peak without what the process has already."""
        return self.total - self.process


@dataclass(frozen=True)
class TrainingMemory(_Peak):
    """Bytes that training takes at its peak, by what they are for."""

    parameters: int
    gradients: int
    optimizer: int
    """AdamW's two moments; Muon keeps one for the matrices inside the blocks, which is less."""
    casts: int
    """Copies of the weight matrices in the half-size format; 0 in float32."""
    activations: int
    """What the forward pass keeps for the backward pass, and the first temporaries of that."""
    loss: int
    allocator: int
    """Holes in the heap; see `ALLOCATOR_SHARE`."""
    process: int
    """CPU: the interpreter and its libraries, as resident now, before the model is built. Else 0."""
    kernels: int


@dataclass(frozen=True)
class SamplingMemory(_Peak):
    """Bytes that sampling takes at its peak, by what they are for."""

    parameters: int
    loading: int
    """CPU: the weights file, whose pages are resident beside the model, and its turned matrices. Counted to the end,
    since the heap keeps it."""
    cache: int
    """Keys and values of every layer, allocated for the whole context."""
    activations: int
    """The pass over the prompt; later passes have one token per sequence."""
    logits: int
    process: int
    kernels: int


def training_memory(
    config: ModelConfig,
    micro_batch_size: int,
    dtype: torch.dtype,
    device_type: str,
    process: int | None = None,
    *,
    recompute: bool = False,
) -> TrainingMemory:
    """Peak memory of training with `micro_batch_size` full windows at once, products in `dtype`, AdamW.

    With `recompute` a block keeps only its input for the backward pass.

    `process` is the resident memory to start from; None measures this process, so call it before the model is built.
    """
    parameters = FLOAT32 * parameter_count(config)
    activations = _activations(config, micro_batch_size, dtype.itemsize, device_type, recompute)
    loss = _loss(config, micro_batch_size * config.block_size, dtype.itemsize, device_type)
    return TrainingMemory(
        parameters=parameters,
        gradients=parameters,
        optimizer=2 * parameters,
        casts=_casts(config, dtype.itemsize),
        activations=activations,
        loss=loss,
        allocator=int((RECOMPUTING_SHARE if recompute else ALLOCATOR_SHARE)[device_type] * (activations + loss)),
        process=_process(device_type, process, trains=True),
        kernels=KERNELS[device_type],
    )


def sampling_memory(
    config: ModelConfig, batch_size: int, length: int, dtype: torch.dtype, device_type: str, process: int | None = None
) -> SamplingMemory:
    """Peak memory of generating `batch_size` texts at once after a prompt of `length` tokens, weights in `dtype`."""
    item = dtype.itemsize
    row = batch_size * length * config.n_embd * item
    parameters = parameter_count(config)
    return SamplingMemory(
        parameters=item * parameters,
        loading=FLOAT32 * parameters if device_type == "cpu" else 0,
        cache=batch_size * cache_bytes(config, item),
        activations=10 * row,  # residual stream, its norm, the MLP before and after GELU
        logits=batch_size * CHOICE_BYTES * config.vocab_size,
        process=_process(device_type, process, trains=False),
        kernels=KERNELS[device_type],
    )


def sample_bytes(config: ModelConfig, dtype: torch.dtype) -> int:
    """Bytes that each of many texts takes while they are sampled: its keys and values, and the choice of its token."""
    return cache_bytes(config, dtype.itemsize) + CHOICE_BYTES * config.vocab_size


def largest_micro_batch(
    config: ModelConfig,
    batch_size: int,
    free_bytes: int,
    dtype: torch.dtype,
    device_type: str,
    *,
    recompute: bool = False,
) -> int | None:
    """The largest divisor of `batch_size` that trains within `free_bytes` more memory; None if even 1 does not.

    On a CPU more at once than keeps an activation below `HEAP_BLOCK` gains nothing, and is not taken.
    """
    usable = free_bytes * (CUDA_RESERVE if device_type == "cuda" else 1.0)
    inside = FLOAT32 * config.mlp_rows * config.block_size
    most = max(1, (HEAP_BLOCK - 1) // inside) if device_type == "cpu" else batch_size
    for size in range(min(batch_size, most), 0, -1):
        if (
            batch_size % size == 0
            and training_memory(config, size, dtype, device_type, 0, recompute=recompute).needed <= usable
        ):
            return size
    return None


def _activations(config: ModelConfig, sequences: int, item: int, device_type: str, recompute: bool) -> int:
    """Bytes that the forward pass up to the final norm keeps for the backward pass; `item` is the products' size."""
    row = sequences * config.block_size * config.n_embd
    dropout = config.dropout > 0
    # Two inputs of norms in float32; their outputs and attention's, for the weight gradients.
    block = row * (2 * FLOAT32 + 2 * item) + _all_heads(config, sequences) * item
    block += _attention(config, sequences, item, device_type) + _mlp(config, sequences, item)
    # The normed inputs of an RMSNorm before they meet the weights.
    normed = row * FLOAT32 if config.norm == "rmsnorm" else 0
    block += 2 * normed
    if dropout:
        mask = 1 if device_type == "cuda" else item  # bytes per decision; elsewhere kept in the output's format
        block += row * mask * (1 + (config.n_expert_active if config.n_expert else 1))
    # The output of the final norm, with pre-norm its input too; the dropout mask of the embeddings.
    edges = row * (item + FLOAT32 * dropout) + (row * FLOAT32 + normed if config.norm_placement == "pre" else 0)
    inside = sequences * config.block_size * config.mlp_rows * item  # the gradient of the MLP's inside
    return (config.n_layer * row * FLOAT32 + block if recompute else config.n_layer * block) + edges + inside


def _attention(config: ModelConfig, sequences: int, item: int, device_type: str) -> int:
    """Bytes that a block's attention keeps between its two projections."""
    row = _all_heads(config, sequences)
    shared = row * config.kv_heads // config.n_head  # the keys, and the values
    projected, qk = row + 2 * shared, row + shared
    # Each head's queries and keys before they meet the weights of their norm, in half precision their copies too.
    normed = qk * FLOAT32 * (1 if item == FLOAT32 else 2) if config.qk_norm else 0
    if device_type == "mps" or (device_type == "cpu" and config.dropout):
        # No fused kernel: queries, keys and values of every head, the probabilities, with dropout also its mask and
        # product; in float32.
        scores = sequences * config.n_head * config.block_size**2  # (B, H, T, T)
        kept = 3 * row * FLOAT32 + (3 if config.dropout else 1) * scores * FLOAT32
        return kept + normed + (projected * item if config.qk_norm and item == FLOAT32 else 0)
    turned = qk * item if config.qk_norm or config.position == "rope" else 0  # others than those projected
    mask = config.block_size**2 * item if config.sliding_window else 0
    return projected * item + turned + normed + mask


def _all_heads(config: ModelConfig, sequences: int) -> int:
    """Numbers in the queries of all heads."""
    return sequences * config.block_size * config.n_head * config.head_width


def _mlp(config: ModelConfig, sequences: int, item: int) -> int:
    """Bytes that a block's MLP keeps."""
    # Before and after the nonlinearity; SwiGLU: gate and value, the gate's SiLU, their product.
    kept = (4 if config.mlp == "swiglu" else 2) * config.mlp_inner * item
    if config.n_expert:  # each expert's copies of the tokens that chose it, its results, and those weighted
        kept = config.n_expert_active * (kept + config.n_embd * (2 * item + FLOAT32))
    return sequences * config.block_size * kept


def _loss(config: ModelConfig, tokens: int, item: int, device_type: str) -> int:
    """Bytes of the loss at its peak: logits and their gradient, whole or for a chunk (see `next_token_loss`)."""
    V, C, limit = config.vocab_size, config.n_embd, CHUNK_LOGITS[device_type]
    wide = (3 if config.logit_softcap else 2) * FLOAT32  # of a logit: before and after the softmax, the slope of a cap
    narrow = item if item < FLOAT32 else 0
    if tokens * V <= limit:
        return tokens * V * (wide + narrow)
    held = min(tokens, held_tokens(max(1, limit // V), C))
    gradients = tokens * C * item + V * C * (FLOAT32 + narrow)  # of hidden states and weights
    return limit * wide + held * V * narrow + gradients


def _casts(config: ModelConfig, item: int) -> int:
    if item == FLOAT32:
        return 0
    shapes = parameter_shapes(config).items()
    return item * sum(shape.numel() for name, shape in shapes if len(shape) == 2 and name != "wpe.weight")


def _process(device_type: str, process: int | None, *, trains: bool) -> int:
    """Resident bytes on a CPU, with what AdamW loads at its first step (80 MB) if the process `trains`; else 0."""
    if device_type != "cpu":
        return 0
    if process is not None:
        return process
    if trains:
        importlib.import_module("torch._dynamo")
    return resident_memory()
