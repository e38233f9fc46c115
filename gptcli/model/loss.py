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
    device_type = hidden.device.type
    if torch.is_autocast_enabled(device_type):
        dtype = torch.get_autocast_dtype(device_type)
        hidden, weight = hidden.to(dtype), weight.to(dtype)
    with torch.autocast(device_type, enabled=False):
        loss: Tensor = _ChunkedCrossEntropy.apply(hidden, weight, targets, softcap, max(1, limit // V))  # type: ignore[no-untyped-call]
    return loss


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Cross-entropy over chunks of `rows` tokens, its gradient taken in the same pass.

    The gradient is kept unscaled, of the order of 1, and multiplied by the incoming one in `backward`: under float16 it
    would vanish otherwise.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, softcap: float, rows: int) -> Tensor:
        wide = _wide(hidden.dtype)
        need_grad = any(ctx.needs_input_grad[:2])
        d_hidden = torch.empty_like(hidden) if need_grad else None  # (N, C)
        d_weight = torch.zeros_like(weight, dtype=wide) if need_grad else None  # (V, C)
        loss = torch.zeros((), device=hidden.device, dtype=wide)
        for start in range(0, hidden.shape[0], rows):
            chunk = hidden[start : start + rows]  # (n, C), n tokens
            target = targets[start : start + rows, None]  # (n, 1)
            logits = softcapped(F.linear(chunk, weight).to(wide), softcap)  # (n, V)
            slope = 1 - (logits / softcap) ** 2 if softcap and need_grad else None  # (n, V), of the cap
            log_sum = logits.logsumexp(dim=1, keepdim=True)  # (n, 1)
            loss += (log_sum - logits.gather(1, target)).sum()
            if d_hidden is not None and d_weight is not None:
                d_logits = logits.sub_(log_sum).exp_()  # (n, V), the probabilities
                d_logits.scatter_add_(1, target, torch.full_like(target, -1, dtype=wide))
                d_logits = (d_logits if slope is None else d_logits.mul_(slope)).to(hidden.dtype)
                d_hidden[start : start + rows] = d_logits @ weight
                if weight.dtype == wide:
                    d_weight.addmm_(d_logits.T, chunk)
                else:
                    d_weight += d_logits.T @ chunk
        ctx.save_for_backward(d_hidden, d_weight)
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        d_hidden, d_weight = ctx.saved_tensors
        grad = grads[0]
        # Taken in the wide format first: hidden's gradient is rounded only once.
        return (d_hidden * grad).to(d_hidden.dtype), d_weight.mul_(grad).to(d_hidden.dtype), None, None, None


def _wide(dtype: torch.dtype) -> torch.dtype:
    """The format for the softmax: float32, or float64 where the model is in that."""
    return torch.promote_types(dtype, torch.float32)
