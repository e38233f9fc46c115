"""The nonlinearities of an MLP.

Letters: W width inside the MLP.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F


def nonlinear(x: Tensor, kind: str) -> Tensor:
    """`gelu` in its tanh form, `relu` or `relu2`, (..., W) → (..., W); `swiglu`, (..., 2W) → (..., W)."""
    if kind == "gelu":
        return F.gelu(x, approximate="tanh")
    if kind in ("relu", "relu2"):
        positive = F.relu(x)  # (..., W)
        return positive.square() if kind == "relu2" else positive
    gate, value = x.chunk(2, dim=-1)  # 2 of (..., W)
    return F.silu(gate) * value
