"""Sharded weights: each rank keeps its rows of every parameter, of the gradients and of the optimizer's state.

torch's `fully_shard` (Zhao et al. 2023, "PyTorch FSDP"; ZeRO stage 3, Rajbhandari et al. 2020) gathers the weights of
a block from all ranks right before the block is used and frees them after it. Gradients are summed over the ranks, and
each rank keeps the sums of its rows. The optimizer updates these rows as if they were all there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.tensor import DTensor

from gptcli.model.gpt import GPT
from gptcli.training import runtime
from gptcli.training.ranks import Ranks
from gptcli.training.state import TrainerState


class Shards:
    """This rank's rows of every parameter of a model. It takes the place of `GradientSums`."""

    def __init__(self, model: GPT, device: torch.device, ranks: Ranks) -> None:
        """Shard a model that is on the host.

        Its parts move to the device one after another, and each rank keeps its rows of them: no GPU ever holds all
        weights. Every rank needs the model. Each number is kept by one rank, so that ranks cannot differ in it.
        """
        self.ranks, self.device = ranks, device
        self._model = model
        if device.type == "cpu":
            runtime.return_large_blocks()
        mesh = init_device_mesh(device.type, (ranks.size,))
        for block in model.h:
            fully_shard(block, mesh=mesh)
        # Embeddings, final norm and head stay whole from `hidden` to the end of the backward pass: the loss needs them.
        fully_shard(model, mesh=mesh, reshard_after_forward=False)
        for module in (*model.h, model):
            assert isinstance(module, FSDPModule), "it was just sharded"
            module.set_gradient_divide_factor(1.0)  # the loss of each rank is a part of the mean: a sum is right
            module.set_force_sum_reduction_for_comms(True)  # NCCL would multiply by that factor otherwise
        register_fsdp_forward_method(model, "hidden")
        # Autocast would keep its copies of all weights to the end of a pass; each weight is used once in it.
        torch.set_autocast_cache_enabled(False)  # until `runtime.prepare`
        self._sharded: dict[str, DTensor] = {name: _as_sharded(p) for name, p in model.named_parameters()}
        self.parameters = {name: nn.Parameter(_rows_of(p)) for name, p in self._sharded.items()}
        """This rank's rows by the parameters' names: ordinary parameters in the memory of the sharded ones."""

    @property
    def scaler(self) -> Callable[..., torch.amp.GradScaler]:
        """A loss scaler that sees the overflows of all ranks."""
        return partial(ShardedGradScaler, process_group=None)

    def shape(self, name: str) -> torch.Size:
        """The shape of a whole parameter."""
        return self._sharded[name].shape

    def during(self, backward: Callable[[Tensor], None], passes: int) -> Callable[[Tensor], None]:
        """`backward` for an update of several passes. Each of them sums its gradients: whole ones are never kept."""
        return backward

    def finish(self) -> None:
        """Give the gradients of this rank's rows to `parameters`."""
        for name, parameter in self.parameters.items():
            gradient = self._sharded[name].grad
            assert gradient is not None, "each pass computes every gradient"
            parameter.grad = _rows_of(gradient)
            self._sharded[name].grad = None

    def forget(self) -> None:
        """Free whole weights that an evaluation has left, and clear the gradients."""
        assert isinstance(self._model, FSDPModule), "it is sharded"
        self._model.reshard()
        for parameter in self._sharded.values():
            parameter.grad = None

    def norm(self, own: Tensor) -> Tensor:
        """The norm () of all gradients, from that of this rank's rows. The same bits on all ranks."""
        return self.ranks.sum(own.square()).sqrt()

    def rows(self, whole: Tensor) -> Tensor:
        """This rank's rows of a whole tensor, as `fully_shard` cuts it; a view."""
        count = -(-len(whole) // self.ranks.size)
        return whole[count * self.ranks.rank : count * (self.ranks.rank + 1)]

    @torch.no_grad()
    def gathered(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Whole tensors on the host of rank 0, none elsewhere, from each rank's rows; to be called on all ranks.

        They are parameters or, with a prefix before the name, of the shape of one; others are the same on all ranks.
        On the device there is one whole tensor at a time.
        """
        found = {}
        for key, tensor in tensors.items():
            like = self._sharded.get(self._name(key))
            whole = tensor if like is None else _whole(tensor, like)
            if self.ranks.rank == 0:
                found[key] = whole.detach().cpu()
        return found

    def part_of(self, state: TrainerState) -> TrainerState:
        """This rank's part of a state with whole tensors. Raises KeyError or ValueError if it is of another model."""
        if state.model.keys() != self._sharded.keys():
            raise KeyError(f"parameters {sorted(state.model.keys() ^ self._sharded.keys())}")
        model = {name: self.part(name, whole) for name, whole in state.model.items()}
        optimizer = {key: self.part(key, whole) for key, whole in state.optimizer.items()}
        return replace(state, model=model, optimizer=optimizer)

    def part(self, key: str, whole: Tensor) -> Tensor:
        """This rank's part of one tensor of a state; a copy, which does not keep the whole tensor in memory."""
        name = self._name(key)
        if name not in self._sharded:
            return whole
        if whole.shape != self.shape(name):
            raise ValueError(f"{key} has the shape {tuple(whole.shape)}, not {tuple(self.shape(name))}")
        return self.rows(whole).clone()

    def _name(self, key: str) -> str:
        """The parameter that a tensor of a state belongs to, as `wte.weight` or `exp_avg.wte.weight`, if to any."""
        return key if key in self._sharded else key.partition(".")[2]

    @torch.no_grad()
    def load(self, rows: Mapping[str, Tensor]) -> None:
        """Take this rank's rows as weights."""
        for name, parameter in self.parameters.items():
            parameter.copy_(rows[name])
        self.forget()

    def hand_out(self, weights: Mapping[str, Tensor]) -> None:
        """Take rank 0's whole weights as weights, tensor by tensor; those of other ranks are ignored."""
        rows = {}
        for name, parameter in self.parameters.items():
            whole = torch.empty(self.shape(name), dtype=parameter.dtype, device=self.device)
            if self.ranks.rank == 0:
                whole.copy_(weights[name])
            dist.broadcast(whole, 0)
            rows[name] = self.rows(whole).clone()
        self.load(rows)


def _as_sharded(parameter: nn.Parameter) -> DTensor:
    assert isinstance(parameter, DTensor), "it was just sharded"
    return parameter


def _rows_of(sharded: Tensor) -> Tensor:
    """This rank's rows of a sharded tensor, in the same memory."""
    rows = sharded.detach()
    assert isinstance(rows, DTensor), "it is sharded"
    return rows.to_local()


def _whole(rows: Tensor, like: DTensor) -> Tensor:
    """The whole tensor of the shape of a sharded one, from each rank's rows."""
    spread = DTensor.from_local(
        rows.detach(), like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )
    return spread.full_tensor()
