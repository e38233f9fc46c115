"""Attention as torch's fused kernels take it.

On CUDA, `F.scaled_dot_product_attention` falls back to a slow kernel that stores all attention weights where none of
its fused kernels takes a case. Grouped heads are such a case: flash attention takes them, but it needs 16-bit numbers,
a recent GPU (not T4 or V100) and no mask; the memory-efficient kernel takes the rest, grouped heads only in newer
versions of torch. So grouped heads are brought into another form where no fused kernel takes them as they are.

Letters: B sequences, T tokens, H heads, G key and value heads, R = H / G heads that share one, D head width,
S = cached + new tokens.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor
from torch.nn import functional as F

from gptcli.model.devices import product_dtype

PROBE_TOKENS = 64
"""Keys that torch is asked about: which kernel takes a case depends on no length but that of a single query."""


def attend(
    q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0, window: int | None = None, mask: Tensor | None = None
) -> Tensor:
    """Softmax(q kᵀ / √D) v: q (B, H, T, D), k and v (B, G, S, D) → (B, H, T, D).

    Query t attends to the keys up to S - T + t, and of those to the last `window`; with `mask`, bool (1, S), to the
    keys that it marks.
    """
    T, S = q.shape[2], k.shape[2]
    causal = False
    if mask is None:
        if (T == S or T == 1) and (window is None or window >= S):  # a whole sequence, or one token without a window
            causal = T > 1
        else:
            mask = torch.ones(T, S, dtype=torch.bool, device=q.device).tril(S - T)  # (T, S)
            if window is not None:
                mask = mask.triu(S - T - window + 1)
    grouped = k.shape[1] != q.shape[1]
    if grouped and not _takes_groups(q, dropout, masked=mask is not None):
        if T == 1:
            return _folded(q, k, v, mask, dropout)
        k, v, grouped = _expanded(k, q), _expanded(v, q), False  # 2 of (B, H, S, D)
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal, enable_gqa=grouped
    )


def _takes_groups(q: Tensor, dropout: float, *, masked: bool) -> bool:
    """Whether attention of queries (B, H, T, D) takes grouped heads as they are. Except on CUDA it always does."""
    if q.device.type != "cuda":
        return True
    trains = torch.is_grad_enabled() and q.requires_grad
    return cuda_takes_groups(q.device, product_dtype(q), q.shape[3], q.shape[2] == 1, masked, dropout, trains)


def cuda_takes_groups(
    device: torch.device,
    dtype: torch.dtype,
    head_dim: int,
    decodes: bool,
    masked: bool,
    dropout: float,
    trains: bool,
) -> bool:
    """Whether a fused kernel on a GPU takes grouped heads of products in `dtype`.

    `decodes` is attention of one query to many keys, `masked` attention with a mask. torch is asked once for each case,
    so that compiled and captured code has a fixed answer. It is not asked about cuDNN's kernels, which generation turns
    off.
    """
    return _ask(device, dtype, head_dim, decodes, masked, dropout, trains)


# `torch.compiler.assume_constant_result` sets the same, but imports the compiler, which takes two seconds.
cuda_takes_groups._dynamo_marked_constant = True  # type: ignore[attr-defined]


@functools.cache
def _ask(
    device: torch.device, dtype: torch.dtype, head_dim: int, decodes: bool, masked: bool, dropout: float, trains: bool
) -> bool:
    T = 1 if decodes else PROBE_TOKENS
    with torch.inference_mode(mode=False):
        q = torch.empty(1, 2, T, head_dim, device=device, dtype=dtype, requires_grad=trains)
        k = torch.empty(1, 1, PROBE_TOKENS, head_dim, device=device, dtype=dtype, requires_grad=trains)
        mask = torch.ones(T, PROBE_TOKENS, dtype=torch.bool, device=device) if masked else None
        causal, enable_gqa = not masked and not decodes, True
        case = torch.backends.cuda.SDPAParams(q, k, k, mask, dropout, causal, enable_gqa)
    return torch.backends.cuda.can_use_flash_attention(case) or torch.backends.cuda.can_use_efficient_attention(case)


def _folded(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    """Attention of a single query per head: the heads that share keys become queries of one head, without a copy.

    q (B, H, 1, D), k and v (B, G, S, D), mask (1, S) → (B, H, 1, D).
    """
    B, H, _, D = q.shape
    q = q.reshape(B, k.shape[1], -1, D)  # (B, G, R, D)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout).reshape(B, H, 1, D)


def _expanded(x: Tensor, q: Tensor) -> Tensor:
    """Keys or values with a copy for each head that shares them: (B, G, S, D) → (B, H, S, D), as q (B, H, T, D)."""
    B, G, S, D = x.shape
    shares = x.to(product_dtype(q)).unsqueeze(2).expand(B, G, q.shape[1] // G, S, D)  # (B, G, R, S, D)
    return shares.reshape(B, -1, S, D)


def generation_kernels(device: torch.device) -> AbstractContextManager[None]:
    """A context that chooses the attention kernels for generated text: on CUDA it turns cuDNN's off.

    torch prefers those on Hopper and Blackwell, but they need a plan for each new length, which takes up to half a
    second, and in generated text every token makes a new length.
    """
    return _without_cudnn() if device.type == "cuda" else nullcontext()


@contextmanager
def _without_cudnn() -> Iterator[None]:
    before = torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)
