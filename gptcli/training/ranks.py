"""The processes of a training that share each update: each has a part of the batch.

Gradients are summed in flat buckets while the backward pass still computes others, as in Li et al. 2020 ("PyTorch
Distributed", section 3.2). What decides about an update is summed over the ranks before anybody decides, so that all of
them keep the same weights, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gptcli.config.types import Parallel

if TYPE_CHECKING:
    from gptcli.model.gpt import GPT
    from gptcli.training.sharding import Shards

BUCKET_BYTES = 25 * 2**20
"""Size of a bucket of gradients, as in torch's DistributedDataParallel."""


@dataclass(frozen=True)
class Ranks:
    """The place of this process among those of the default process group; alone without one."""

    rank: int = 0
    size: int = 1

    def part_of(self, count: int) -> slice:
        """This rank's part of `count` things in a row; parts differ by one at most."""
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def largest_part(self, count: int) -> int:
        """The size of the largest rank's part of `count` things."""
        return -(-count // self.size)

    def sum(self, tensor: Tensor) -> Tensor:
        """Replace a tensor by its sum over all ranks, in place, without waiting for the device."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors by those of rank 0, in place."""
        for tensor in tensors if self.size > 1 else ():
            dist.broadcast(tensor, 0)

    def map(self, function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        """`function` of tensors (K, …) that it maps row by row to the same shape; each rank computes its part.

        All ranks get the same bits.
        """
        if self.size == 1:
            return function(rows)
        parts = [Ranks(rank, self.size).part_of(len(rows)) for rank in range(self.size)]
        longest = max(part.stop - part.start for part in parts)
        mine = rows.new_zeros(longest, *rows.shape[1:])
        own = rows[parts[self.rank]]
        if len(own):
            mine[: len(own)] = function(own)
        chunks = [torch.empty_like(mine) for _ in parts]
        dist.all_gather(chunks, mine)
        return torch.cat([chunk[: part.stop - part.start] for chunk, part in zip(chunks, parts, strict=True)])


ALONE = Ranks()


def shards_of(model: GPT, parallel: Parallel | None, device: torch.device, ranks: Ranks) -> Shards | None:
    """The rows of a model that this rank keeps; None where it keeps all weights, as a process alone does."""
    if parallel != "fsdp" or ranks.size == 1:
        return None
    from gptcli.training.sharding import Shards  # imports parts of torch that only sharding needs

    return Shards(model, device, ranks)


class GradientSums:
    """Sums gradients over all ranks, bucket by bucket, during the last backward pass of an update."""

    def __init__(self, parameters: Sequence[nn.Parameter], ranks: Ranks) -> None:
        """Nothing is done for a rank alone. Gradients are expected in the reverse order of `parameters`."""
        self._is_last = False
        self._buckets = _buckets([*reversed(parameters)]) if ranks.size > 1 else []
        self._bucket_of = {parameter: bucket for bucket in self._buckets for parameter in bucket.parameters}
        self._begun = 0
        for parameter in self._bucket_of:
            parameter.register_post_accumulate_grad_hook(self._take)  # type: ignore[no-untyped-call]

    def during(self, backward: Callable[[Tensor], None], passes: int) -> Callable[[Tensor], None]:
        """`backward` for an update of that many passes on this rank; the gradients are summed during the last one."""
        left = passes

        def counted(loss: Tensor) -> None:
            nonlocal left
            left -= 1
            self._is_last = left == 0
            try:
                backward(loss)
            finally:
                self._is_last = False  # after a failure, passes that look for one that fits sum nothing

        return counted

    def finish(self) -> None:
        """Wait until every parameter has its summed gradient; none is left None."""
        self._begin(len(self._buckets))
        for bucket in self._buckets:
            bucket.finish()
        self._begun = 0

    def _take(self, parameter: Tensor) -> None:
        if self._is_last:
            assert isinstance(parameter, nn.Parameter), "the hook is of a parameter"
            self._bucket_of[parameter].missing -= 1
            ready = self._begun
            while ready < len(self._buckets) and self._buckets[ready].missing == 0:
                ready += 1
            self._begin(ready)

    def _begin(self, stop: int) -> None:
        """Begin to sum the buckets up to `stop`: in the same order on every rank, whatever was computed first."""
        for bucket in self._buckets[self._begun : stop]:
            bucket.begin()
        self._begun = max(self._begun, stop)


class _Bucket:
    """Gradients that are summed together, in one flat tensor."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.parameters = parameters
        self.missing = len(parameters)
        self._views: list[Tensor] = []
        self._work: dist.Work | None = None

    def begin(self) -> None:
        first = self.parameters[0]
        flat = torch.zeros(sum(p.numel() for p in self.parameters), dtype=first.dtype, device=first.device)
        parts = torch.split(flat, [p.numel() for p in self.parameters])
        self._views = [part.view_as(p) for part, p in zip(parts, self.parameters, strict=True)]
        for view, parameter in zip(self._views, self.parameters, strict=True):
            if parameter.grad is not None:
                view.copy_(parameter.grad)
                parameter.grad = None
        self._work = dist.all_reduce(flat, async_op=True)

    def finish(self) -> None:
        assert self._work is not None, "the bucket has begun"
        self._work.wait()
        for view, parameter in zip(self._views, self.parameters, strict=True):
            parameter.grad = view
        self.missing, self._views, self._work = len(self.parameters), [], None


def _buckets(parameters: Sequence[nn.Parameter]) -> list[_Bucket]:
    """Neighbors of one dtype and device, up to `BUCKET_BYTES` together."""
    found: list[list[nn.Parameter]] = []
    size = 0
    for parameter in parameters:
        bytes_ = parameter.numel() * parameter.element_size()
        if not found or size + bytes_ > BUCKET_BYTES or found[-1][0].dtype is not parameter.dtype:
            found.append([])
            size = 0
        found[-1].append(parameter)
        size += bytes_
    return [_Bucket(parameters) for parameters in found]
