"""Muon for sharded weights: each rank keeps the momentum of its rows, and orthogonalizes some of the matrices.

A matrix cannot be orthogonalized in parts. So the ranks send their rows of each matrix to the rank that owns it, which
sends the rows of the result back: what each rank sends is twice its rows, and it holds few whole matrices at a time.

Letters: N ranks, K parameters of one shape for each rank, R rows, r of them on each rank (with padding), n columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gptcli.config import OptimConfig
from gptcli.model.gpt import GPT
from gptcli.training.muon import ADAMW_SIZE, Muon, matrix_rows, orthogonal
from gptcli.training.ranks import BUCKET_BYTES
from gptcli.training.sharding import Shards


class ShardedMuon(torch.optim.Optimizer):
    """`Muon` over this rank's rows of the matrices inside the blocks; the same contract, and the same state."""

    def __init__(self, model: GPT, config: OptimConfig, shards: Shards) -> None:
        self.shards = shards
        self.names = {p: name for name, p in shards.parameters.items() if Muon.updates(name, shards.shape(name))}
        super().__init__(list(self.names), {"lr": config.lr})
        self.momentum, self.weight_decay = config.momentum, config.weight_decay
        self.rows = {p: matrix_rows(name, shards.shape(name), model.config) for p, name in self.names.items()}
        """The rows of each whole matrix that a parameter holds."""
        self.found_inf = torch.zeros(())
        self.buffers = {parameter: torch.zeros_like(parameter) for parameter in self.names}  # each of (r, n)
        self.batches = list(self._batches())

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override] # there is no closure
        """Update the weights from their gradients."""
        (group,) = self.param_groups
        bad = self.found_inf > 0  # ()
        kept = torch.where(bad, 1.0, self.momentum)  # ()
        decay = torch.where(bad, 1.0, 1 - group["lr"] * self.weight_decay)  # ()
        size = torch.where(bad, 0.0, -group["lr"] * ADAMW_SIZE)  # ()
        torch._foreach_mul_(list(self.names), decay)
        for batch in self.batches:
            directions = []
            for parameter in batch:
                assert parameter.grad is not None, "every parameter has a gradient"
                gradient = parameter.grad.masked_fill(bad, 0.0)  # (r, n)
                self.buffers[parameter].mul_(kept).add_(gradient)
                directions.append(gradient.add_(self.buffers[parameter], alpha=self.momentum))  # Nesterov momentum
            for parameter, update in zip(batch, self._orthogonal(batch[0], directions), strict=True):
                parameter.add_(update.mul_(size))

    def _orthogonal(self, like: nn.Parameter, own: list[Tensor]) -> list[Tensor]:
        """This rank's rows of the orthogonalized matrices of parameters as `like`, from its rows of them, up to N·K.

        The matrices are scaled to AdamW's updates, each by its larger side.
        """
        ranks, whole = self.shards.ranks, self.shards.shape(self.names[like])
        each, most = -(-len(own) // ranks.size), -(-whole[0] // ranks.size)
        sent = like.new_zeros(ranks.size * each, most, whole[1])  # (N·K, r, n): those that rank i owns are the i-th K
        for place, rows in zip(sent, own, strict=False):
            place[: len(rows)] = rows
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        parts = received.view(ranks.size, each, most, whole[1]).transpose(0, 1)  # (K, N, r, n)
        matrices = parts.reshape(each, ranks.size * most, whole[1])[:, : whole[0]]  # (K, R, n)
        for part in torch.split(matrices, self.rows[like], dim=1):
            part.copy_(orthogonal(part) * max(part.shape[1:]) ** 0.5)
        parts.copy_(_padded(matrices, ranks.size * most).view_as(parts))
        dist.all_to_all_single(sent, received)
        return [place[: len(rows)] for place, rows in zip(sent, own, strict=False)]

    def _batches(self) -> Iterator[list[nn.Parameter]]:
        """Parameters of one shape with the same matrices, as many as may be whole at the same time on all ranks."""
        found: dict[tuple[torch.Size, tuple[int, ...]], list[nn.Parameter]] = {}
        for parameter, name in self.names.items():
            found.setdefault((self.shards.shape(name), tuple(self.rows[parameter])), []).append(parameter)
        for (shape, _), parameters in found.items():
            bytes_ = shape.numel() * parameters[0].element_size()
            count = self.shards.ranks.size * max(1, BUCKET_BYTES // bytes_)
            yield from (parameters[start : start + count] for start in range(0, len(parameters), count))

    def tensors(self) -> dict[str, Tensor]:
        """`momentum.NAME`, of this rank's rows."""
        return {f"momentum.{self.names[parameter]}": buffer for parameter, buffer in self.buffers.items()}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore state from `tensors`; raises KeyError if one is missing."""
        for parameter, buffer in self.buffers.items():
            buffer.copy_(tensors[f"momentum.{self.names[parameter]}"])


def _padded(matrices: Tensor, rows: int) -> Tensor:
    """Matrices (K, R, n) with rows of zeros up to `rows`."""
    return torch.nn.functional.pad(matrices, (0, 0, 0, rows - matrices.shape[1]))
