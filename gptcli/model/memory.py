"""Peak memory of training, estimated from a config before it starts; `sampling_memory.py` has that of sampling.

On a CPU a peak is the resident memory of the whole process, on CUDA and MPS what tensors allocate on the device. The
estimates are sums over what autograd keeps, operation by operation (the tests compare them with measured peaks), for
training without `torch.compile`: it keeps fewer activations, but the compiler takes memory itself.

Letters: B sequences, T tokens, C width, H heads. A "row" is B·T·C numbers, one per element of the residual stream.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gptcli.config import ModelConfig
from gptcli.model.attention import cuda_takes_groups
from gptcli.model.cost import gathered_parameters, parameter_count, parameter_shapes
from gptcli.model.grouping import block_count, block_rows, has_grouped_kernel
from gptcli.model.loss import PLAIN_LOGITS, chunk_sizes, held_tokens

FLOAT32 = 4
"""Bytes; parameters, gradients, optimizer state and the residual stream are float32 whatever the dtype of products."""

KERNELS = {"cpu": 28 << 20, "cuda": 32 << 20, "mps": 0}
"""Bytes that the first step adds once: oneDNN's code and threads' buffers on a CPU, cuBLAS's workspace on CUDA."""

ALLOCATOR_SHARE = {"cpu": 0.4, "cuda": 0.0, "mps": 0.0}
"""Heap fragmentation, as a share of what is allocated and freed in a step. Measured with glibc between 0.26 (64
sequences of `small`) and 0.6 (16 of them in half precision). CUDA's figure counts tensors only."""

CHECKPOINTING_SHARE = {"cpu": 1.3, "cuda": 0.0, "mps": 0.0}
"""The same with activation checkpointing, which allocates and frees all of a block's tensors once for each block.
Measured between 1.1 and 1.5 (docs/log.md)."""

HEAP_BLOCK = 32 << 20
"""Bytes from which on glibc maps and unmaps a block at every use, which made updates of `small` with 64 sequences at
once slower than with 8, for five times the memory (docs/log.md). The inside of the MLP is the largest activation."""

CUDA_RESERVE = 0.9
"""Share of a GPU's free memory that a plan may use, since the caching allocator needs room for its blocks."""


class Peak:
    """A peak of memory; the fields are its parts, in bytes."""

    process: int

    @property
    def total(self) -> int:
        """The peak."""
        total: int = sum(vars(self).values())
        return total

    @property
    def needed(self) -> int:
        """Memory that must still be free: the peak without what the process already holds."""
        return self.total - self.process


@dataclass(frozen=True)
class TrainingMemory(Peak):
    """Peak memory of training in bytes, by purpose."""

    parameters: int
    gradients: int
    optimizer: int
    """AdamW's two moments: an upper bound for Muon, which keeps one for the matrices inside the blocks."""
    casts: int
    """Copies of the weight matrices in a 16-bit dtype; 0 in float32."""
    activations: int
    """Activations kept for the backward pass, and the first temporaries of the backward pass."""
    loss: int
    gathered: int
    """Whole weights and gradients that ranks with sharded weights hold beside their own; else 0."""
    allocator: int
    """Heap fragmentation; see `ALLOCATOR_SHARE`."""
    process: int
    """CPU: resident memory of the process before the model is built. Elsewhere 0."""
    kernels: int


def training_memory(
    config: ModelConfig,
    micro_batch_size: int,
    dtype: torch.dtype,
    device_type: str,
    process: int = 0,
    *,
    activation_checkpointing: bool = False,
    shards: int = 1,
) -> TrainingMemory:
    """Peak memory of training on micro-batches of full context windows, with products in `dtype` and AdamW.

    `process` is the resident memory of the process before the model is built (see `machine.process_memory`).
    `shards`: ranks that share the weights; the result is for one of them.
    """
    parameters = -(-FLOAT32 * parameter_count(config) // shards)
    activations = _activations(config, micro_batch_size, dtype.itemsize, device_type, activation_checkpointing)
    loss = _loss(config, micro_batch_size * config.block_size, dtype.itemsize, device_type)
    casts = _casts(config, dtype.itemsize, device_type)  # recomputed with the blocks where nothing else keeps them
    share = (CHECKPOINTING_SHARE if activation_checkpointing else ALLOCATOR_SHARE)[device_type]
    return TrainingMemory(
        parameters=parameters,
        gradients=parameters,
        optimizer=2 * parameters,
        casts=casts // config.n_layer if shards > 1 and activation_checkpointing else casts,
        activations=activations,
        loss=loss,
        gathered=FLOAT32 * gathered_parameters(config) if shards > 1 else 0,
        allocator=int(share * (activations + loss)),
        process=process,
        kernels=KERNELS[device_type],
    )


def usable(free_bytes: int, device_type: str) -> float:
    """The part of the free memory that a plan may use."""
    return free_bytes * (CUDA_RESERVE if device_type == "cuda" else 1.0)


def largest_micro_batch(
    config: ModelConfig,
    batch_size: int,
    free_bytes: int,
    dtype: torch.dtype,
    device_type: str,
    *,
    activation_checkpointing: bool = False,
    shards: int = 1,
) -> int | None:
    """The largest divisor of `batch_size` that trains within `free_bytes` more memory; None if even 1 does not fit.

    On a CPU no activation reaches `HEAP_BLOCK`, beyond which larger micro-batches are no faster.
    """
    most_bytes = usable(free_bytes, device_type)
    inside = FLOAT32 * config.mlp_rows * config.block_size
    most = max(1, (HEAP_BLOCK - 1) // inside) if device_type == "cpu" else batch_size

    def needed(size: int) -> int:
        checkpointing = activation_checkpointing
        memory = training_memory(
            config, size, dtype, device_type, activation_checkpointing=checkpointing, shards=shards
        )
        return memory.needed

    sizes = range(min(batch_size, most), 0, -1)
    return next((size for size in sizes if batch_size % size == 0 and needed(size) <= most_bytes), None)


def _activations(config: ModelConfig, sequences: int, item: int, device_type: str, checkpointing: bool) -> int:
    """Bytes kept for the backward pass by the forward pass up to the final norm, with `item` bytes per product."""
    row = sequences * config.block_size * config.n_embd
    dropout = config.dropout > 0
    # Two inputs of norms in float32; for the weight gradients, the outputs of norms and attention.
    block = row * (2 * FLOAT32 + 2 * item) + _all_heads(config, sequences) * item
    block += _attention(config, sequences, item, device_type) + _mlp(config, sequences, item, device_type)
    # The normed inputs of an RMSNorm before its weights.
    normed = row * FLOAT32 if config.norm == "rmsnorm" else 0
    block += 2 * normed
    if dropout:
        mask = 1 if device_type == "cuda" else item  # bytes per decision; elsewhere in the output's dtype
        block += row * mask * (1 + (config.n_expert_active if config.n_expert else 1))
    # The output of the final norm, with pre-norm its input too; the dropout mask of the embeddings.
    edges = row * (item + FLOAT32 * dropout) + (row * FLOAT32 + normed if config.norm_placement == "pre" else 0)
    inside = sequences * config.block_size * config.mlp_rows * item  # the gradient of the MLP's inside
    return (config.n_layer * row * FLOAT32 + block if checkpointing else config.n_layer * block) + edges + inside


def _attention(config: ModelConfig, sequences: int, item: int, device_type: str) -> int:
    """Bytes that a block's attention keeps between its two projections."""
    row = _all_heads(config, sequences)
    shared = row * config.n_kv_head // config.n_head  # the keys, and the values
    projected, qk = row + 2 * shared, row + shared
    # Each head's normed queries and keys before the weights of the norm, in a 16-bit dtype also their copies.
    normed = qk * FLOAT32 * (1 if item == FLOAT32 else 2) if config.qk_norm else 0
    if stores_scores(config, device_type):
        # Queries, keys and values of every head and the probabilities in float32, with dropout also its mask and
        # product.
        scores = sequences * config.n_head * config.block_size**2  # (B, H, T, T)
        kept = 3 * row * FLOAT32 + (3 if config.dropout else 1) * scores * FLOAT32
        return kept + normed + (projected * item if config.qk_norm and item == FLOAT32 else 0)
    turned = config.qk_norm or config.position == "rope"  # queries and keys are tensors of their own
    if device_type == "cuda" and _expands_heads(config, item):
        kept = (3 if turned else 2) * row  # keys and values of every head, and the queries
        keeps_projected = not turned or (config.qk_norm and item == FLOAT32)
    else:
        kept, keeps_projected = qk if turned else 0, True  # the values are a part of the projection
    mask = config.block_size**2 * item if config.sliding_window else 0
    return (kept + projected * keeps_projected) * item + normed + mask


def stores_scores(config: ModelConfig, device_type: str) -> bool:
    """Whether training stores the T × T matrix of each head: where torch has no fused kernel for attention."""
    return device_type == "mps" or (device_type == "cpu" and config.dropout > 0)


def _expands_heads(config: ModelConfig, item: int) -> bool:
    """Whether training on CUDA copies keys and values for each head; assumed where torch sees no card."""
    if config.n_kv_head in (1, config.n_head):  # a single head is expanded without a copy
        return False
    if not torch.cuda.is_available():
        return True
    dtype = torch.float32 if item == FLOAT32 else torch.float16  # bfloat16 has the same kernels wherever it is fast
    masked = config.sliding_window is not None
    case = (torch.device("cuda"), dtype, config.head_dim)
    return not cuda_takes_groups(*case, decodes=False, masked=masked, dropout=config.dropout, trains=True)


def _all_heads(config: ModelConfig, sequences: int) -> int:
    """Elements of the queries of all heads."""
    return sequences * config.block_size * config.n_head * config.head_dim


_KEPT_BY_MLP = {"gelu": 2, "relu": 1, "relu2": 2, "swiglu": 4}
"""Tensors as wide as the MLP's inside: before and after the nonlinearity, of ReLU only its result; of SwiGLU the gate
and the value, the gate's SiLU and their product."""


def _mlp(config: ModelConfig, sequences: int, item: int, device_type: str) -> int:
    """Bytes that a block's MLP keeps."""
    kept = _KEPT_BY_MLP[config.mlp] * config.mlp_width * item
    if not config.n_expert:
        return sequences * config.block_size * kept
    if device_type == "cuda":
        return experts_at_once(config, sequences * config.block_size, item, kept)
    # Each expert's copies of its tokens, its results, and the weighted results.
    kept = config.n_expert_active * (kept + config.n_embd * (2 * item + FLOAT32))
    return sequences * config.block_size * kept


def experts_at_once(config: ModelConfig, tokens: int, item: int, kept: int) -> int:
    """Bytes that the experts of a block keep on CUDA, with `kept` bytes inside the MLP for each row."""
    C, E, M = config.n_embd, config.n_expert, tokens * config.n_expert_active
    cuda, dtype = torch.device("cuda"), torch.float32 if item == FLOAT32 else torch.bfloat16
    kernel = torch.cuda.is_available() and has_grouped_kernel(cuda, dtype, C, config.mlp_width)
    block = block_rows(M, E, kernel=kernel)
    blocks = block_count(M, E, block)
    copies = E if kernel else blocks  # of an expert's weights
    matrices = copies * C * (config.mlp_rows + config.mlp_width) * item
    return blocks * block * (kept + C * item) + M * C * item + matrices  # rows in blocks, and the results


def _loss(config: ModelConfig, tokens: int, item: int, device_type: str) -> int:
    """Bytes of the loss at its peak: logits and their gradient, whole or for a chunk (see `next_token_loss`)."""
    V, C = config.vocab_size, config.n_embd
    wide = (3 if config.logit_softcap else 2) * FLOAT32  # per logit: before and after the softmax, the slope of a cap
    narrow = item if item < FLOAT32 else 0
    if tokens * V <= PLAIN_LOGITS[device_type]:
        return tokens * V * (wide + narrow)
    chunks = chunk_sizes(torch.device(device_type), V)
    held = min(tokens, held_tokens(chunks.rows, C))
    gradients = tokens * C * item + V * C * (FLOAT32 + narrow)  # of hidden states and weights
    return chunks.columns * (min(tokens, chunks.rows) * wide + held * narrow) + gradients


def _casts(config: ModelConfig, item: int, device_type: str) -> int:
    if item == FLOAT32:
        return 0
    matrices = {name: shape for name, shape in parameter_shapes(config).items() if len(shape) == 2}
    elsewhere = ".experts." if device_type == "cuda" else None  # counted with the activations
    cast = (name for name in matrices if name != "wpe.weight" and not (elsewhere and elsewhere in name))
    return item * sum(matrices[name].numel() for name in cast)
