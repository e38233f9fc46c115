"""Log-softmax, loss and gradient of a row of logits in one kernel, in triton's language.

Online softmax (Milakov & Gimelshein 2018, arXiv:1805.02867) in a first pass, the gradient in a second one that finds
the row in the cache. A row is computed by one program in a fixed order, so that the result is the same every time.

Letters: n tokens, V vocabulary.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096
"""Most logits that a program has in registers at once."""


def fused_loss(logits: Tensor, targets: Tensor, softcap: float, need_grad: bool) -> Tensor:
    """Summed loss () of logits (n, V), in float32, with next tokens `targets` (n, 1).

    With `need_grad`, its gradient overwrites the logits. The rows of the logits may have padding between them.
    """
    n, V = logits.shape
    losses = torch.empty(n, dtype=torch.float32, device=logits.device)
    block = min(BLOCK, triton.next_power_of_2(V))
    with torch.cuda.device_of(logits):  # triton starts kernels on the current device
        _row[(n,)](logits, targets, losses, logits.stride(0), V, softcap, need_grad, softcap > 0, block, num_warps=8)
    return losses.sum()


@triton.jit
def _row(
    logits, targets, losses, stride, width, softcap, need_grad: tl.constexpr, capped: tl.constexpr, block: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)  # with many rows an offset takes more than 32 bits
    logits += row * stride
    columns = tl.arange(0, block)
    top = float("-inf")
    total = 0.0
    for start in range(0, width, block):
        inside = start + columns < width
        x = tl.load(logits + start + columns, mask=inside, other=float("-inf")).to(tl.float32)
        if capped:
            x = tl.where(inside, _softcapped(x, softcap), float("-inf"))
        highest = tl.maximum(top, tl.max(x, 0))
        total = total * tl.exp(top - highest) + tl.sum(tl.exp(x - highest), 0)
        top = highest
    target = tl.load(targets + row)
    found = tl.load(logits + target).to(tl.float32)
    if capped:
        found = _softcapped(found, softcap)
    loss = tl.log(total) + (top - found)
    tl.store(losses + row, loss)
    if need_grad:
        tl.debug_barrier()  # all threads have read the target's logit before one overwrites it
        # p - 1 of the target by a series where p is near 1, as `expm1` would compute it
        wrong = tl.where(loss < 0.01, -loss * (1 - loss / 2 * (1 - loss / 3)), tl.exp(-loss) - 1)
        for start in range(0, width, block):
            inside = start + columns < width
            x = tl.load(logits + start + columns, mask=inside, other=0.0).to(tl.float32)
            slope = 1.0
            if capped:
                x = _softcapped(x, softcap)
                slope = 1 - (x / softcap) * (x / softcap)
            gradient = tl.where(start + columns == target, wrong, tl.exp(x - top) / total) * slope
            tl.store(logits + start + columns, gradient.to(logits.dtype.element_ty), mask=inside)


@triton.jit
def _softcapped(x, softcap):
    return softcap * (2 * tl.sigmoid(2 * x / softcap) - 1)  # tanh, which triton's own functions lack
