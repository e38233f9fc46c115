"""Next-token cross-entropy that never holds the logits of a large vocabulary whole.

For 8 sequences of 1,024 tokens and GPT-2's 50,257 ids the logits take 1.6 GB, and their gradient as much again. The
chunked form computes logits, loss and gradient for some tokens at a time and keeps only the gradients with respect to
hidden states and weights: no more arithmetic than the plain form, a small part of its memory. The idea of taking the
gradient in the forward pass is that of Liger Kernel (Hsu et al. 2024, arXiv:2410.10989).

Letters: N tokens, C width, V vocabulary.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

CHUNK_LOGITS = {"cpu": 2**23, "cuda": 2**26, "mps": 2**25}
"""Most logits in memory at once, by device type; fewer than that in all, and the plain form is used."""

MAX_EXPONENT = 709.0
"""e to more than this is no float."""


def perplexity(loss: float) -> float:
    """e to a loss in nats per token: like how many equally likely choices it is; infinite beyond a float."""
    return math.exp(loss) if loss < MAX_EXPONENT else math.inf


def loss_in_words(loss: float) -> str:
    """A loss in nats per token, with its perplexity."""
    return f"{loss:.4f} nats per token (perplexity {perplexity(loss):.2f})"


def bits_per_unit(loss: float, tokens: int, units: int) -> float:
    """A loss in nats per token as bits per byte or character of the text, which compares different tokenizers."""
    return loss / math.log(2) * tokens / units


def softcapped(logits: Tensor, cap: float) -> Tensor:
    """cap · tanh(logits / cap), which stays between -cap and cap (Gemma 2, 2024); 0: the logits as they are."""
    return cap * torch.tanh(logits / cap) if cap else logits


def next_token_loss(
    hidden: Tensor, weight: Tensor, targets: Tensor, softcap: float = 0.0, *, chunk_logits: int | None = None
) -> Tensor:
    """Sum over tokens of the cross-entropy, in nats: hidden (N, C), head weight (V, C), targets (N) → ().

    Logits are limited by `softcap`, if it is not 0. Under autocast the products run in its number format, the softmax
    always in float32 or better.
    """
    limit = chunk_logits or CHUNK_LOGITS[hidden.device.type]
    N, V = hidden.shape[0], weight.shape[0]
    if limit >= N * V:
        logits = F.linear(hidden, weight)  # (N, V)
        return F.cross_entropy(softcapped(logits.to(_wide(logits.dtype)), softcap), targets, reduction="sum")
    device_type, dtype, rows = hidden.device.type, hidden.dtype, max(1, limit // V)
    if torch.is_autocast_enabled(device_type):
        dtype = torch.get_autocast_dtype(device_type)
    with torch.autocast(device_type, enabled=False):
        loss: Tensor = _ChunkedCrossEntropy.apply(hidden, weight, targets, softcap, rows, dtype)  # type: ignore[no-untyped-call]
    return loss


def held_tokens(rows: int, width: int) -> int:
    """Tokens whose gradient by their logits is held at once in bfloat16, in chunks of `rows`.

    They make one product with hidden states. Adding up such products in float32 takes longer than they do if each is
    over fewer tokens than the model is wide; and held so, they take no more memory than the gradient by the weights.
    """
    return rows * max(1, 2 * width // rows)


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Cross-entropy over chunks of `rows` tokens, its gradient taken in the same pass. Products run in `dtype`.

    The gradient is kept unscaled, of the order of 1, and multiplied by the incoming one in `backward`: under float16 it
    would vanish otherwise.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, softcap: float, rows: int, dtype: torch.dtype
    ) -> Tensor:
        ctx.dtype, wide = hidden.dtype, _wide(dtype)
        hidden, weight, targets = hidden.to(dtype), weight.to(dtype), targets[:, None]
        N, C = hidden.shape
        need_grad = any(ctx.needs_input_grad[:2])
        d_hidden, d_weight = torch.empty_like(hidden) if need_grad else None, None  # (N, C), (V, C)
        held = held_tokens(rows, C) if need_grad and dtype is torch.bfloat16 else rows  # float16 sums could overflow
        logits = hidden.new_empty(min(held, N), weight.shape[0])  # (h, V)
        loss = torch.zeros((), device=hidden.device, dtype=wide)
        for begin in range(0, N, held):
            states, answers = hidden[begin : begin + held], targets[begin : begin + held]  # (h, C), (h, 1)
            for start in range(0, len(states), rows):
                chunk = slice(start, min(start + rows, len(states)))
                torch.mm(states[chunk], weight.T, out=logits[chunk])
                loss += _loss(logits[chunk], answers[chunk], softcap, need_grad=need_grad)
            if d_hidden is None:
                continue
            d_logits = logits[: len(states)]
            torch.mm(d_logits, weight, out=d_hidden[begin : begin + held])
            if d_weight is None:
                d_weight = d_logits.T @ states
            elif dtype is wide:
                d_weight.addmm_(d_logits.T, states)
            else:
                d_weight = d_weight.to(wide).add_(d_logits.T @ states)
        ctx.save_for_backward(d_hidden, d_weight)
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        d_hidden, d_weight = ctx.saved_tensors
        grad = grads[0]
        # Taken in the wide format, so that each is rounded only once.
        return (d_hidden.to(grad.dtype) * grad).to(ctx.dtype), d_weight.to(grad.dtype).mul_(grad), *[None] * 4


def _loss(logits: Tensor, targets: Tensor, softcap: float, *, need_grad: bool) -> Tensor:
    """Summed loss () of logits (n, V) whose next tokens are `targets` (n, 1).

    With `need_grad` the logits become its gradient.
    """
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
    """The format for the softmax: float32, or float64 where the model is in that."""
    return torch.promote_types(dtype, torch.float32)
