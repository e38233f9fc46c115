"""AdamW and Muon, gradient clipping, float16 loss scaling, and a guard that keeps non-finite numbers out of the
weights.

AdamW updates every parameter that no other optimizer updates. To add one, write a class that keeps the contract of
`PartialOptimizer` and name it in `OPTIMIZERS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from gptcli.config import OptimConfig
from gptcli.model.gpt import GPT
from gptcli.training.muon import Muon
from gptcli.training.ranks import ALONE, Ranks
from gptcli.training.spikes import SpikeGuard

if TYPE_CHECKING:
    from gptcli.training.sharding import Shards

SMALLEST_SCALE = 1.0
MAX_SKIPS_IN_A_ROW = 20


class RowOptimizer(Protocol):
    """An optimizer of some of a model's parameters, or of this rank's rows of them.

    `step` never waits for the device, and changes nothing unless `found_inf`, a number on the device, is 0. AdamW's
    fused kernel keeps this contract too.
    """

    param_groups: list[dict[str, Any]]
    """Parameters and their learning rate `lr`, as in `torch.optim.Optimizer`."""
    found_inf: Tensor

    def step(self) -> None:
        """Update the parameters from their gradients."""
        ...

    def zero_grad(self) -> None:
        """Clear the gradients."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """The state to save, as `STATE NAME.PARAMETER NAME`."""
        ...

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore state from `tensors`; raises KeyError if one is missing."""
        ...


class PartialOptimizer(RowOptimizer, Protocol):
    """An optimizer of some of a model's parameters, which are whole."""

    STATE: ClassVar[int]
    """Numbers of state for each number of a parameter."""

    def __init__(self, model: GPT, config: OptimConfig, ranks: Ranks) -> None: ...

    @staticmethod
    def over_shards(model: GPT, config: OptimConfig, shards: Shards) -> RowOptimizer:
        """The same optimizer over this rank's rows of sharded parameters; its state has the same names."""
        ...

    @staticmethod
    def updates(name: str, shape: torch.Size) -> bool:
        """Whether this optimizer updates a parameter, by the shape of the whole one."""
        ...


OPTIMIZERS: dict[str, type[PartialOptimizer]] = {"muon": Muon}
"""Optimizers beside AdamW, by their names in `optim.optimizer`."""
ADAMW_STATE = 2


def state_numbers(shapes: Mapping[str, torch.Size], config: OptimConfig) -> int:
    """How many numbers the state of a model's optimizer has; `shapes` are those of its parameters by name."""
    other = OPTIMIZERS.get(config.optimizer)
    return sum(
        shape.numel() * (other.STATE if other and other.updates(name, shape) else ADAMW_STATE)
        for name, shape in shapes.items()
    )


class Optimizer:
    """AdamW (Loshchilov & Hutter 2019) and perhaps another optimizer, with all steps from gradients to weights."""

    def __init__(
        self,
        model: GPT,
        config: OptimConfig,
        dtype: torch.dtype,
        ranks: Ranks = ALONE,
        shards: Shards | None = None,
    ) -> None:
        """With `shards`, for this rank's rows of the model's parameters."""
        self.shards = shards
        named = shards.parameters if shards else dict(model.named_parameters())
        self.names = {parameter: name for name, parameter in named.items()}
        self.other: RowOptimizer | None = None
        other = OPTIMIZERS.get(config.optimizer)
        if other:
            self.other = other.over_shards(model, config, shards) if shards else other(model, config, ranks)
        whole = {name: shards.shape(name) if shards else p.shape for p, name in self.names.items()}
        parameters = [p for p, name in self.names.items() if not (other and other.updates(name, whole[name]))]
        self.device = next(iter(self.names)).device
        self.clip = config.grad_clip or float("inf")
        groups = [
            {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": config.weight_decay},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
        self.adamw = torch.optim.AdamW(
            groups, lr=config.lr, betas=(config.beta1, config.beta2), eps=config.eps, fused=True
        )
        scaler = shards.scaler if shards else torch.amp.GradScaler
        self.scaler = scaler(self.device.type, enabled=dtype is torch.float16)
        self.skips = torch.zeros((), device=self.device)  # ()
        self.skips_in_row = torch.zeros((), device=self.device)  # ()
        self.spikes = SpikeGuard(config.skip_spikes, self.device) if config.skip_spikes else None

    def backward(self, loss: Tensor) -> None:
        """Accumulate the gradient of `loss`, scaled for float16."""
        self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]

    def step(self, lr: float, loss: Tensor) -> Tensor:
        """Update the weights, unless `loss` or a gradient is non-finite or a spike, and clear the gradients.

        Returns the gradient's norm before clipping, ().
        """
        for optimizer in self.optimizers():
            for group in optimizer.param_groups:
                group["lr"] = lr
            self.scaler.unscale_(optimizer)  # type: ignore[arg-type] # it reads `param_groups` alone
        norm = self._clip()
        bad = (~(torch.isfinite(norm) & torch.isfinite(loss))).float()  # ()
        self.skips += bad
        self.skips_in_row = (self.skips_in_row + bad) * bad
        spike = self.spikes.stands_out(loss, norm).float() if self.spikes else torch.zeros_like(bad)  # ()
        skipped = bad + spike  # ()
        for optimizer in self.optimizers():  # `scaler.step` would ignore a non-finite loss
            optimizer.found_inf = skipped  # type: ignore[union-attr] # torch reads it so
            optimizer.step()
            optimizer.zero_grad()
        self.scaler.update()
        return norm

    def _clip(self) -> Tensor:
        """Clip the gradient norm; returns the norm before, ()."""
        norm: Tensor = nn.utils.get_total_norm([p.grad for p in self.names if p.grad is not None])
        norm = self.shards.norm(norm) if self.shards else norm
        if self.device.type != "cpu" or norm > self.clip:  # comparing on a GPU would wait for it
            nn.utils.clip_grads_with_norm_(self.names, self.clip, norm)
        return norm

    def optimizers(self) -> list[torch.optim.Optimizer | RowOptimizer]:
        """AdamW, and the other optimizer if there is one."""
        return [self.adamw, *([self.other] if self.other else [])]

    def failure(self) -> str:
        """The reason why training cannot continue, "" if it can. Waits for the device.

        In float16 single overflows adjust the loss scale; only many in a row are a failure.
        """
        if not self.scaler.is_enabled():
            return "the loss or a gradient became NaN or infinite" if self.skips.item() else ""
        if self.skips_in_row.item() >= MAX_SKIPS_IN_A_ROW:
            return f"float16 overflowed in {MAX_SKIPS_IN_A_ROW} updates in a row"
        if self.scaler.get_scale() < SMALLEST_SCALE:
            return "float16 overflows even without loss scaling"
        return ""

    def skipped_spikes(self) -> Tensor:
        """Number of updates skipped as spikes, ()."""
        return self.spikes.skipped if self.spikes else torch.zeros((), device=self.device)

    def tensors(self) -> dict[str, Tensor]:
        """The state to save: AdamW's `exp_avg.NAME`, `exp_avg_sq.NAME` and one `step`; that of the other optimizer.

        AdamW has no state before the first update.
        """
        tensors = self.other.tensors() if self.other else {}
        for parameter in self._adamw_parameters() if self.adamw.state else ():
            name, state = self.names[parameter], self.adamw.state[parameter]
            tensors[f"exp_avg.{name}"] = state["exp_avg"]
            tensors[f"exp_avg_sq.{name}"] = state["exp_avg_sq"]
            tensors["step"] = state["step"]  # equal for all parameters: an update is skipped for all or none
        spikes = self.spikes.tensors() if self.spikes else {}
        return tensors | spikes | {"skips": self.skips, "skips_in_row": self.skips_in_row}

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Restore state from `tensors`; raises KeyError if one is missing."""
        if self.other:
            self.other.load_tensors(tensors)
        for parameter in self._adamw_parameters() if "step" in tensors else ():
            name = self.names[parameter]
            self.adamw.state[parameter] = {
                "step": tensors["step"].to(self.device, copy=True),
                "exp_avg": tensors[f"exp_avg.{name}"].to(self.device).view_as(parameter),
                "exp_avg_sq": tensors[f"exp_avg_sq.{name}"].to(self.device).view_as(parameter),
            }
        self.skips = tensors["skips"].to(self.device)
        self.skips_in_row = tensors["skips_in_row"].to(self.device)
        if self.spikes:
            self.spikes.load_tensors(tensors)

    def state_to_come(self) -> list[Tensor]:
        """Tensors as large as the state that AdamW allocates at its first update; none after it."""
        if self.adamw.state:
            return []
        return [torch.empty_like(p) for p in self._adamw_parameters() for _ in ("exp_avg", "exp_avg_sq")]

    def _adamw_parameters(self) -> Iterator[nn.Parameter]:
        return (parameter for group in self.adamw.param_groups for parameter in group["params"])

    def scaler_state(self) -> dict[str, Any]:
        """The loss scaler's state; empty unless training runs in float16."""
        return self.scaler.state_dict()

    def load_scaler_state(self, state: dict[str, Any]) -> None:
        """Restore state from `scaler_state`."""
        if self.scaler.is_enabled() and state:
            self.scaler.load_state_dict(state)
