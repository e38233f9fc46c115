"""Whatever a trainer does together with other ranks, rank 0's announces first: otherwise all would wait for ever."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch import Tensor

from gptcli.runs import followers
from gptcli.runs.followers import LeadingTrainer
from gptcli.runs.team import Team
from gptcli.training import ranks as ranks_module
from gptcli.training.ranks import Ranks
from gptcli.training.trainer import Trainer
from tests.runs.small_runs import CPU, plan, small_dataset

TWO = Ranks(0, 2)
CALLS: dict[str, Callable[[Trainer], object]] = {
    "begin_pass": lambda trainer: trainer.begin_pass(),
    "check_finite": lambda trainer: trainer.check_finite(),
    "compile": lambda trainer: trainer.compile(),
    "evaluate": lambda trainer: trainer.evaluate(),
    "evaluation": lambda trainer: [*trainer.evaluation()],
    "figures": lambda trainer: trainer.figures(trainer.step()),  # type: ignore[arg-type]
    "load_state": lambda trainer: trainer.load_state(trainer.state()),
    "load_weights": lambda trainer: trainer.load_weights(trainer.model.state_dict()),
    "optimizer_state": lambda trainer: trainer.optimizer_state(),
    "reschedule": lambda trainer: trainer.reschedule(10),
    "retry_hint": lambda trainer: trainer.retry_hint(),
    "state": lambda trainer: trainer.state(),
    "step": lambda trainer: trainer.step(),
    "sum_scores": lambda trainer: trainer.sum_scores(torch.zeros(2)),
    "weights": lambda trainer: trainer.weights(),
    "whole_model": lambda trainer: trainer.whole_model(),
    "will_compile": lambda trainer: trainer.will_compile(),
}
"""A call of each public method; `load_part` is for followers."""


class Events(list[str]):
    """Announcements and collectives, in their order."""

    def collective(self, name: str, result: Any = None) -> Callable[..., Any]:
        def call(*_arguments: Any, **_options: Any) -> Any:
            self.append(name)
            return result

        return call

    @property
    def is_announced(self) -> bool:
        """Whether nothing was done together before it was announced."""
        return not self or self[0] == "announced"


class Torch:
    """In the place of torch.distributed."""

    Work = object

    def __init__(self, events: Events) -> None:
        self.all_reduce = events.collective("all_reduce", MagicMock())
        self.broadcast = events.collective("broadcast")
        self.all_gather = events.collective("all_gather")


class Sharded:
    """In the place of `Shards`: everything on one rank."""

    def __init__(self, events: Events, model: torch.nn.Module) -> None:
        self.events, self.parameters = events, dict(model.named_parameters())

    def gathered(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        self.events.append("gather")
        return dict(tensors)

    def part_of(self, state: Any) -> Any:
        return state

    def load(self, weights: Mapping[str, Tensor]) -> None:
        pass

    def hand_out(self, _weights: Mapping[str, Tensor]) -> None:
        self.events.append("broadcast")

    def forget(self) -> None:
        pass


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Events:
    found = Events()
    for module in (ranks_module, followers):
        monkeypatch.setattr(module, "dist", Torch(found))
    monkeypatch.setattr(Team, "announce", found.collective("announced"))
    return found


@pytest.fixture
def trainers(corpus: str, tmp_path: Path, events: Events) -> tuple[Trainer, Trainer]:
    """One that announces, and the control, which does not."""
    dataset = small_dataset(tmp_path, corpus[:3000])
    config = plan(dataset, tmp_path / "run").config
    both = LeadingTrainer(config, dataset, CPU, Team(TWO)), Trainer(config, dataset, CPU, TWO)
    for trainer in both:
        assert trainer.step()  # so that there is a state of the optimizer
    return both


def seen(trainer: Trainer, name: str, events: Events) -> Events:
    """What a call of a method does with other ranks."""
    events.clear()
    CALLS[name](trainer)
    return events


def test_each_public_method_is_tried() -> None:
    public = {name for name, _ in inspect.getmembers(Trainer, inspect.isfunction) if not name.startswith("_")}
    assert public - {"load_part"} == set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_replicated(name: str, trainers: tuple[Trainer, Trainer], events: Events) -> None:
    leading, plain = trainers
    assert seen(leading, name, events).is_announced
    if name in ("step", "evaluate", "sum_scores", "load_weights"):
        assert not seen(plain, name, events).is_announced


@pytest.mark.parametrize("name", ["load_state", "load_weights", "optimizer_state", "state", "weights", "whole_model"])
def test_sharded(name: str, trainers: tuple[Trainer, Trainer], events: Events) -> None:
    for trainer in trainers:
        trainer.shards = Sharded(events, trainer.model)  # type: ignore[assignment]
    leading, plain = trainers
    assert seen(leading, name, events).is_announced
    assert not seen(plain, name, events).is_announced
