"""Next-token cross-entropy that never stores all logits of a large vocabulary.

For 8 sequences of 1,024 tokens and GPT-2's 50,257 ids the logits take 1.6 GB, and their gradient as much again. The
chunked form computes logits, loss and gradient for some tokens at a time and keeps only the gradients with respect to
hidden states and weights: no more arithmetic than the plain form, and a small part of its memory. The gradient in the
forward pass follows Liger Kernel (Hsu et al. 2024, arXiv:2410.10989).

Letters: N tokens, C width, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from gptcli.model.devices import product_dtype
from gptcli.model.fused_loss import fused_kernel

PLAIN_LOGITS = {"cpu": 2**23, "cuda": 2**24, "mps": 2**25}
"""Largest number of logits for which the plain form is used, by device type; on a CPU and on MPS also of a chunk."""
CARD_BYTES_PER_LOGIT = 256
"""Bytes of the card's memory per logit of a chunk on CUDA. A logit takes two float32 numbers, so that the logits of a
chunk take up to a thirty-second of the memory."""
UNKNOWN_CARD = 16 << 30
"""Bytes of a card's memory, assumed by estimates where torch sees no card."""
CHUNK_STEP = 128
"""Chunks on CUDA have a multiple of this number of tokens, the height of a tile of a matrix product."""
COLUMN_STEP = 64
"""On CUDA products with the head have a multiple of this number of columns: tensor cores need rows that are aligned to
16 bytes, and GPT-2's 50,257 ids are an odd number."""

MAX_EXPONENT = 709.0
"""Largest exponent whose exponential is a float."""


def perplexity(loss: float) -> float:
    """The number of equally likely choices that has this loss in nats per token: e to its power, or infinity."""
    return math.exp(loss) if loss < MAX_EXPONENT else math.inf


def loss_in_words(loss: float, bits_per_byte: float | None = None) -> str:
    """A loss in nats per token as text, with its perplexity, and with the bits per byte that it is, where given."""
    bits = "" if bits_per_byte is None else f", {bits_per_byte:.2f} bits per byte"
    return f"{loss:.4f} nats per token (perplexity {perplexity(loss):.2f}{bits})"


def bits_per_unit(loss: float, tokens: int, units: int) -> float:
    """A loss in nats per token as bits per byte or character, for comparing different tokenizers."""
    return loss / math.log(2) * tokens / units


def softcapped(logits: Tensor, cap: float) -> Tensor:
    """cap · tanh(logits / cap), between -cap and cap (Gemma 2, 2024); 0: the logits unchanged."""
    return cap * torch.tanh(logits / cap) if cap else logits


@dataclass(frozen=True)
class Chunks:
    """The sizes of the chunked form."""

    rows: int
    """Tokens in a chunk."""
    columns: int
    """Logits of a token, with padding."""


def chunk_sizes(device: torch.device, vocab_size: int) -> Chunks:
    """The sizes of chunks on a device; on CUDA by its memory."""
    if device.type != "cuda":
        return Chunks(max(1, PLAIN_LOGITS[device.type] // vocab_size), vocab_size)
    memory = torch.cuda.get_device_properties(device).total_memory if torch.cuda.is_available() else UNKNOWN_CARD
    columns = -(-vocab_size // COLUMN_STEP) * COLUMN_STEP
    rows = memory // CARD_BYTES_PER_LOGIT // columns
    return Chunks(max(CHUNK_STEP, rows // CHUNK_STEP * CHUNK_STEP), columns)


def next_token_loss(
    hidden: Tensor, weight: Tensor, targets: Tensor, softcap: float = 0.0, *, chunks: Chunks | None = None
) -> Tensor:
    """Cross-entropy in nats summed over tokens: hidden (N, C), head weight (V, C), targets (N) → ().

    `softcap` bounds the logits unless it is 0. Under autocast the products run in its dtype, the softmax always in
    float32 or float64. The plain form is used for few logits, unless `chunks` are given.
    """
    device_type, N, V = hidden.device.type, hidden.shape[0], weight.shape[0]
    if chunks is None and PLAIN_LOGITS[device_type] >= N * V:
        logits = F.linear(hidden, weight)  # (N, V)
        return F.cross_entropy(softcapped(logits.to(_wide(logits.dtype)), softcap), targets, reduction="sum")
    # Here and not in `forward`, where gradients are always off and `needs_input_grad` ignores inference mode.
    need_grad = torch.is_grad_enabled() and (hidden.requires_grad or weight.requires_grad)
    options = _Options(chunks or chunk_sizes(hidden.device, V), softcap, product_dtype(hidden), need_grad)
    with torch.autocast(device_type, enabled=False):
        loss: Tensor = _ChunkedCrossEntropy.apply(hidden, weight, targets, options)  # type: ignore[no-untyped-call]
    return loss


def held_tokens(rows: int, width: int) -> int:
    """Number of tokens whose logit gradients are held at once in bfloat16, in chunks of `rows` tokens.

    They form one product with the hidden states. Over fewer tokens than the width of the model, adding the products in
    float32 would take longer than the products; held, they take no more memory than the gradient of the weights.
    """
    return rows * max(1, 2 * width // rows)


@dataclass(frozen=True)
class _Options:
    chunks: Chunks
    softcap: float
    dtype: torch.dtype
    """The dtype of products."""
    need_grad: bool


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Cross-entropy over chunks of tokens with its gradient, in the forward pass.

    The gradient is kept unscaled, of the order of 1, and multiplied by the incoming one in `backward`, since it would
    underflow in float16 otherwise.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, options: _Options) -> Tensor:
        ctx.dtype, dtype, wide = hidden.dtype, options.dtype, _wide(options.dtype)
        rows, softcap, need_grad, V = options.chunks.rows, options.softcap, options.need_grad, len(weight)
        hidden, weight, targets = hidden.to(dtype), _padded(weight, options.chunks.columns, dtype), targets[:, None]
        N, C = hidden.shape
        d_hidden, d_weight = torch.empty_like(hidden) if need_grad else None, None  # (N, C), (V, C)
        held = held_tokens(rows, C) if need_grad and dtype is torch.bfloat16 else rows  # float16 sums could overflow
        logits = hidden.new_empty(min(held, N), len(weight))  # (h, V), in memory with padding
        loss = torch.zeros((), device=hidden.device, dtype=wide)
        for begin in range(0, N, held):
            states, answers = hidden[begin : begin + held], targets[begin : begin + held]  # (h, C), (h, 1)
            for start in range(0, len(states), rows):
                chunk = slice(start, min(start + rows, len(states)))
                torch.mm(states[chunk], weight.T, out=logits[chunk])
                loss += _loss(logits[chunk, :V], answers[chunk], softcap, need_grad=need_grad)
            if d_hidden is None:
                continue
            d_logits = logits[: len(states)]  # 0 in the padding, as the logits are
            torch.mm(d_logits, weight, out=d_hidden[begin : begin + held])
            if d_weight is None:
                d_weight = d_logits.T @ states
            elif dtype is wide:
                d_weight.addmm_(d_logits.T, states)
            else:
                d_weight = d_weight.to(wide).add_(d_logits.T @ states)
        ctx.save_for_backward(d_hidden, d_weight if d_weight is None else d_weight[:V])
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        d_hidden, d_weight = ctx.saved_tensors
        grad = grads[0]
        # In the wider dtype, so that each is rounded only once.
        return (d_hidden.to(grad.dtype) * grad).to(ctx.dtype), d_weight.to(grad.dtype).mul_(grad), None, None


def _padded(weight: Tensor, rows: int, dtype: torch.dtype) -> Tensor:
    """The weights in another dtype with rows of zeros up to `rows`: (V, C) → (rows, C)."""
    if rows == len(weight):
        return weight.to(dtype)
    padded = weight.new_zeros(rows, weight.shape[1], dtype=dtype)
    padded[: len(weight)] = weight
    return padded


def _loss(logits: Tensor, targets: Tensor, softcap: float, *, need_grad: bool) -> Tensor:
    """Summed loss () of logits (n, V) with next tokens `targets` (n, 1).

    With `need_grad`, its gradient overwrites the logits.
    """
    if (fused := fused_kernel(logits.device)) is not None and logits.dtype is not torch.float64:
        return fused(logits, targets, softcap, need_grad)
    wide = _wide(logits.dtype)
    capped = softcapped(logits.to(wide), softcap) if softcap else logits  # (n, V)
    log_probabilities = capped.log_softmax(1, dtype=wide)  # (n, V)
    found = log_probabilities.gather(1, targets)  # (n, 1)
    if need_grad:
        torch.exp(log_probabilities, out=logits)
        del log_probabilities
        logits.scatter_(1, targets, found.expm1().to(logits.dtype))  # p - 1, exact where p is near 1
        if softcap:
            logits.mul_(capped.div_(softcap).square_().neg_().add_(1))
    return -found.sum()


def _wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the softmax: float32, or float64 for a float64 model."""
    return torch.promote_types(dtype, torch.float32)
