"""Muon: momentum whose matrices are orthogonalized before they update the weights.

Jordan et al. 2024 (https://kellerjordan.github.io/posts/muon). The momentum of a matrix is replaced by the nearest
matrix whose singular values are all 1, so that directions in which the gradient is small are learned as fast as those
in which it is large. Newton-Schulz iterations, which are matrix products only, find that matrix. An update is scaled to
the size of AdamW's (Liu et al. 2025, "Muon is Scalable for LLM Training"), so that learning rate and weight decay have
the same meaning; the best rate is about double.

It updates the matrices inside the blocks. AdamW updates embeddings, head and vectors.

Letters: K matrices of one shape, m rows, n columns, m ≤ n.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from gptcli.config import ModelConfig, OptimConfig
from gptcli.model.devices import has_amx
from gptcli.model.gpt import GPT
from gptcli.training.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from gptcli.training.sharded_muon import ShardedMuon
    from gptcli.training.sharding import Shards

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Coefficients of the polynomial a s + b s³ + c s⁵ applied to each singular value. Jordan chose them for a steep start;
values end between 0.7 and 1.2."""
ITERATIONS = 5
ADAMW_SIZE = 0.2
"""Root mean square of AdamW's updates divided by the learning rate, measured by Liu et al."""


class Muon(torch.optim.Optimizer):
    """Muon over the matrices inside the blocks of a model; queries, keys and values are orthogonalized separately.

    Matrices of the same shape are batched, and the weights of all are updated together, so that a GPU is not kept
    waiting by hundreds of small operations. `found_inf`, set before `step`, is a number on the device: unless it is 0,
    nothing changes. A parameter must keep its memory: views of the weights are made only once.
    """

    STATE: ClassVar[int] = 1

    def __init__(self, model: GPT, config: OptimConfig, ranks: Ranks = ALONE) -> None:
        self.names = {p: name for name, p in model.named_parameters() if self.updates(name, p.shape)}
        super().__init__(list(self.names), {"lr": config.lr})
        self.ranks = ranks
        self.momentum, self.weight_decay = config.momentum, config.weight_decay
        self.rows = {p: matrix_rows(name, p.shape, model.config) for p, name in self.names.items()}
        """The rows of each matrix that a parameter holds."""
        self.found_inf = torch.zeros(())
        zeros = self._by_shape({parameter: torch.zeros_like(parameter) for parameter in self.rows})
        self.buffers = {shape: torch.stack(matrices) for shape, matrices in zeros.items()}  # of (K, m, n) or (K, n, m)
        self.weights = self._by_shape({parameter: parameter.data for parameter in self.rows})

    @staticmethod
    def over_shards(model: GPT, config: OptimConfig, shards: Shards) -> ShardedMuon:
        """Muon for sharded weights."""
        from gptcli.training.sharded_muon import ShardedMuon  # imports parts of torch that only sharding needs

        return ShardedMuon(model, config, shards)

    @staticmethod
    def updates(name: str, shape: torch.Size) -> bool:
        """Whether Muon updates a parameter: the matrices inside the blocks, without routers."""
        return name.startswith("h.") and len(shape) == 2 and not name.endswith("router.weight")

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override] # there is no closure
        """Update the weights from their gradients."""
        (group,) = self.param_groups
        bad = self.found_inf > 0  # ()
        kept = torch.where(bad, 1.0, self.momentum)  # ()
        gradients = self._by_shape({parameter: parameter.grad for parameter in self.rows if parameter.grad is not None})
        decay = torch.where(bad, 1.0, 1 - group["lr"] * self.weight_decay)  # ()
        torch._foreach_mul_([*chain.from_iterable(self.weights.values())], decay)
        for shape, buffer in self.buffers.items():
            gradient = torch.stack(gradients[shape]).masked_fill_(bad, 0.0)  # (K, m, n) or (K, n, m), like all below
            buffer.mul_(kept).add_(gradient)
            update = self.ranks.map(orthogonal, gradient.add_(buffer, alpha=self.momentum))  # Nesterov momentum
            update.mul_(torch.where(bad, 0.0, -group["lr"] * ADAMW_SIZE * max(shape) ** 0.5))
            torch._foreach_add_(self.weights[shape], update.unbind(0))

    def tensors(self) -> dict[str, Tensor]:
        """`momentum.NAME` in the parameter's shape; a copy only of those that hold several matrices."""
        waiting = {shape: list(buffer.unbind(0)) for shape, buffer in self.buffers.items()}
        found = {}
        for parameter, sizes in self.rows.items():
            parts = [waiting[torch.Size((size, parameter.shape[1]))].pop(0) for size in sizes]
            found[f"momentum.{self.names[parameter]}"] = parts[0] if len(parts) == 1 else torch.cat(parts)
        return found

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore state from `tensors`; raises KeyError if one is missing."""
        momenta = {p: tensors[f"momentum.{name}"].view_as(p) for p, name in self.names.items()}
        for shape, parts in self._by_shape(momenta).items():
            self.buffers[shape].copy_(torch.stack(parts))

    def _by_shape(self, tensors: Mapping[nn.Parameter, Tensor]) -> dict[torch.Size, list[Tensor]]:
        """The matrices of each shape, in the order of the buffers."""
        found: dict[torch.Size, list[Tensor]] = {}
        for parameter, sizes in self.rows.items():
            whole = tensors[parameter]
            for part in torch.split(whole, sizes) if len(sizes) > 1 else (whole,):
                found.setdefault(part.shape, []).append(part)
        return found


def matrix_rows(name: str, shape: torch.Size, config: ModelConfig) -> list[int]:
    """The rows of each matrix that a parameter holds: one matrix, or those of queries, keys and values."""
    return [*config.qkv_rows] if name.endswith("attn.c_attn.weight") else [shape[0]]


def orthogonal(matrices: Tensor) -> Tensor:
    """Orthogonalize matrices (K, m, n): singular values become about 1, singular vectors stay."""
    a, b, c = COEFFICIENTS
    x = matrices.to(_product_dtype(matrices))
    turned = x.shape[1] > x.shape[2]
    x = x.mT if turned else x  # (K, m, n), so that the products below are of the smaller size
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)  # no singular value above 1
    for _ in range(ITERATIONS):
        gram = torch.bmm(x, x.mT)  # (K, m, m)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)  # a x + (b g + c g²) x
    return (x.mT if turned else x).to(matrices.dtype)


def _product_dtype(matrices: Tensor) -> torch.dtype:
    """bfloat16 where its products are fast, as in Jordan's version: the iterations tolerate its rounding."""
    quick = matrices.device.type == "cuda" or (matrices.device.type == "cpu" and has_amx())
    return torch.bfloat16 if quick and matrices.dtype is torch.float32 else matrices.dtype
