"""The calls that all ranks of a training make together: rank 0 announces each, and the followers make it too.

Followers know no file but the dataset. Weights and the optimizer's state come from rank 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gptcli.config import RunConfig
from gptcli.dataset.folder import Dataset, open_dataset
from gptcli.dataset.mixture import Mixture, mixture
from gptcli.errors import DatasetError, DeviceError, NonFiniteError
from gptcli.machine import free_memory
from gptcli.runs.team import Team
from gptcli.training import runtime
from gptcli.training.evaluation import Evaluation
from gptcli.training.state import TrainerState
from gptcli.training.trainer import Trainer, never
from gptcli.training.update import Update

BUILDING, COMPILING, LOADING = "building the model", "compiling", "loading a checkpoint"
UPDATING, EVALUATING, SUMMING = "an update", "an evaluation", "the end of an evaluation"
SCORING, SAVING, GATHERING = "a pass of an evaluation", "gathering the optimizer's state", "gathering the weights"
WEIGHTS, MEASURING, ENDING = "loading weights", "measuring free memory", "the end"
RESCHEDULING = "a change of the schedule"
"""The calls, by names that errors show."""


def new_trainer(config: RunConfig, dataset: Dataset, device: torch.device, team: Team) -> Trainer:
    """A trainer on all ranks of a team, to be called on rank 0."""
    return Trainer(config, dataset, device) if team.ranks.size == 1 else LeadingTrainer(config, dataset, device, team)


class LeadingTrainer(Trainer):
    """The trainer of rank 0, which announces what the others must do too."""

    def __init__(self, config: RunConfig, dataset: Dataset, device: torch.device, team: Team) -> None:
        self._team = team
        values = {"config": config.model_dump(mode="json"), "data": _address(dataset), "device": device.type}
        team.announce(BUILDING, **values)
        super().__init__(config, dataset, device, team.ranks)

    def compile(self, *, evaluates: bool = True, pays_on_cpu: bool = False) -> str:
        self._team.announce(COMPILING, evaluates=evaluates, pays_on_cpu=pays_on_cpu)
        return super().compile(evaluates=evaluates, pays_on_cpu=pays_on_cpu)

    def step(self, should_stop: Callable[[], bool] = never) -> Update | None:
        self._team.announce(UPDATING)
        return super().step(should_stop)

    def evaluation(self) -> Evaluation:
        self.check_finite()  # all ranks have the same numbers
        self._team.announce(EVALUATING)
        return (yield from super().evaluation())

    def begin_pass(self) -> None:
        self._team.announce(SCORING)

    def sum_scores(self, scores: Tensor) -> Tensor:
        self._team.announce(SUMMING)
        return super().sum_scores(scores)

    def weights(self) -> dict[str, Tensor]:
        if self.shards:
            self._team.announce(GATHERING)
        return super().weights()

    def optimizer_state(self) -> dict[str, Tensor]:
        if self.shards:
            self._team.announce(SAVING)
        return super().optimizer_state()

    def reschedule(self, max_steps: int) -> None:
        self._team.announce(RESCHEDULING, max_steps=max_steps)
        super().reschedule(max_steps)

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        self._team.announce(WEIGHTS)
        super().load_weights(weights)

    def load_state(self, state: TrainerState) -> None:
        super().load_state(state)  # fails here alone if it is of another run
        tensors = {"model": state.model, "optimizer": state.optimizer, "random": state.random}
        plain = asdict(replace(state, model={}, optimizer={}, random={}))
        self._team.announce(LOADING, plain=plain, shapes={part: _shapes(found) for part, found in tensors.items()})
        for part in tensors.values():
            for name in sorted(part):
                dist.broadcast(part[name].contiguous().to(self.device), 0)


class _FollowingTrainer(Trainer):
    """The trainer of another rank, which leaves an evaluation that rank 0 has abandoned."""

    def __init__(self, config: RunConfig, dataset: Dataset, device: torch.device, team: Team) -> None:
        self._team = team
        super().__init__(config, dataset, device, team.ranks)

    def begin_pass(self) -> None:
        self._expect(SCORING)

    def sum_scores(self, scores: Tensor) -> Tensor:
        self._expect(SUMMING)
        return super().sum_scores(scores)

    def _expect(self, call: str) -> None:
        name, values = self._team.next_call()
        if name != call:
            raise _Abandoned(name, values)


class _Abandoned(Exception):  # noqa: N818 - no error
    """Rank 0 has left an evaluation; `args` are the name and the values of its next call."""


def free_memory_of_each(device: torch.device, team: Team) -> int:
    """Bytes that each rank can still allocate on its device, the least of all; to be called on rank 0."""
    if team.ranks.size > 1:
        team.announce(MEASURING, device=device.type)
    return _free_memory(device, team)


def _free_memory(device: torch.device, team: Team) -> int:
    return team.least(free_memory(device) // (team.local_size if device.type == "cpu" else 1))


def follow(team: Team) -> dict[str, Any]:
    """Make the calls of rank 0 until it ends the training; the values that it ends with."""
    trainer, dataset = None, None
    name, values = team.next_call()
    while name != ENDING:
        if name == MEASURING:
            _free_memory(_device(team, values["device"]), team)
        elif name == BUILDING:
            device = _device(team, values["device"])
            config = RunConfig.model_validate(values["config"])
            dataset = dataset or _open(values["data"])
            runtime.prepare(device, deterministic=config.train.deterministic)
            trainer = None  # frees the one before, on which the pace was measured
            runtime.return_freed_memory(device)
            trainer = _FollowingTrainer(config, dataset, device, team)
        else:
            assert trainer, "rank 0 builds the model first"
            try:
                _make(name, values, trainer)
            except _Abandoned as call:
                name, values = call.args
                continue
        name, values = team.next_call()
    return values


def end_followers(team: Team, **values: Any) -> None:
    """Let the followers end with these values."""
    team.announce(ENDING, **values)


def _make(name: str, values: dict[str, Any], trainer: Trainer) -> None:
    """Make one call on this rank."""
    if name == UPDATING:
        trainer.step()
    elif name == EVALUATING:
        with suppress(NonFiniteError):  # rank 0 raises it
            trainer.evaluate()
    elif name == COMPILING:
        trainer.compile(**values)
    elif name == SAVING:
        trainer.optimizer_state()
    elif name == GATHERING:
        trainer.weights()
    elif name == RESCHEDULING:
        trainer.reschedule(**values)
    elif name == WEIGHTS:
        trainer.load_weights(trainer.model.state_dict())
    else:
        assert name == LOADING, name
        tensors = {part: _received(shapes, trainer) for part, shapes in values["shapes"].items()}
        trainer.load_part(TrainerState(**values["plain"] | tensors))


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[list[int], str]]:
    return {name: ([*tensor.shape], str(tensor.dtype).removeprefix("torch.")) for name, tensor in tensors.items()}


def _received(shapes: dict[str, tuple[list[int], str]], trainer: Trainer) -> dict[str, Tensor]:
    """Tensors from rank 0, of sharded ones this rank's part; the states of random generators belong on the host."""
    found = {}
    for name in sorted(shapes):
        shape, dtype = shapes[name]
        whole = torch.empty(shape, dtype=getattr(torch, dtype), device=trainer.device)
        dist.broadcast(whole, 0)
        found[name] = trainer.shards.part(name, whole) if trainer.shards else whole
    return {name: tensor.cpu() if tensor.dtype is torch.uint8 else tensor for name, tensor in found.items()}


def _device(team: Team, kind: str) -> torch.device:
    """This rank's device."""
    if kind != "cuda":
        return torch.device(kind)
    if team.local_rank >= torch.cuda.device_count():
        message = f"There is no GPU {team.local_rank}: its machine has {torch.cuda.device_count()}."
        raise DeviceError(message, "Start as many processes on a machine as it has GPUs.")
    return torch.device("cuda", team.local_rank)


def _address(dataset: Dataset) -> dict[str, Any]:
    """Where a dataset is, for other processes."""
    parts = dataset.parts if isinstance(dataset, Mixture) else ()
    paths = [part.dataset.path for part in parts] or [dataset.path]
    shares = [part.share for part in parts]
    return {"paths": [str(path.resolve()) for path in paths], "shares": shares, "fingerprint": dataset.fingerprint}


def _open(address: dict[str, Any]) -> Dataset:
    """The dataset at an address; its hashes were compared by rank 0. Raises DatasetError where it is another."""
    found = [open_dataset(Path(path), verify=False) for path in address["paths"]]
    dataset = mixture(found, address["shares"]) if address["shares"] else found[0]
    if dataset.fingerprint != address["fingerprint"]:
        raise DatasetError(f"'{dataset.path}' is another dataset than that of rank 0.", "Let all nodes read the same.")
    return dataset
