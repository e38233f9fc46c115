"""Fitting a training on several ranks to the machine: all weights on each where they fit, else sharded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gptcli.config import RunConfig, with_train
from gptcli.dataset.folder import Dataset
from gptcli.machine import process_memory
from gptcli.model.memory import training_memory
from gptcli.runs import fitting
from gptcli.runs.fitting import Fitted, fit_to_machine
from gptcli.runs.team import ALONE_TEAM, Team
from gptcli.training.ranks import Ranks
from tests.runs.small_runs import CPU, plan, small_dataset

FOUR = Team(Ranks(0, 4))


@pytest.fixture
def config(corpus: str, tmp_path: Path) -> RunConfig:
    dataset: Dataset = small_dataset(tmp_path, corpus[:3000])
    wide = {"model.n_embd": 1024, "model.n_layer": 12, "train.micro_batch_size": None}
    return with_train(plan(dataset, tmp_path / "run", wide).config, micro_batch_size=None)


def needed(config: RunConfig, shards: int) -> int:
    process = process_memory("cpu", trains=True)
    return training_memory(config.model, 1, torch.float32, "cpu", process, shards=shards).needed


def fitted(config: RunConfig, free: int, monkeypatch: pytest.MonkeyPatch, team: Team = FOUR) -> Fitted:
    monkeypatch.setattr(fitting, "free_memory_of_each", lambda device, team: free)
    return fit_to_machine(config, CPU, team)


def test_sharded_weights_need_less(config: RunConfig) -> None:
    assert needed(config, 4) < 0.6 * needed(config, 1)


def test_weights_are_sharded_where_they_do_not_fit(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    enough, too_little = needed(config, 1), needed(config, 1) - 1
    assert fitted(config, 2 * enough, monkeypatch).config.train.parallel == "replicated"
    assert fitted(config, enough, monkeypatch).config.train.parallel == "replicated"
    sharded = fitted(config, too_little, monkeypatch)
    assert sharded.config.train.parallel == "fsdp"
    assert sharded.fits
    assert not fitted(config, needed(config, 4) - 1, monkeypatch).fits


def test_a_stated_micro_batch_counts(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    batch_size = config.train.batch_size
    stated = with_train(config, micro_batch_size=batch_size, batch_size=4 * batch_size)
    found = fitted(stated, needed(config, 1), monkeypatch).config.train
    assert (found.parallel, found.micro_batch_size) == ("fsdp", batch_size)


def test_what_is_stated_or_stored_stays(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    for stated, free in (("fsdp", 2 * needed(config, 1)), ("replicated", needed(config, 4))):
        found = fitted(with_train(config, parallel=stated), free, monkeypatch)
        assert found.config.train.parallel == stated
        assert found.fits is (stated == "fsdp")


def test_one_process_chooses_nothing(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a run can choose when it resumes on several."""
    assert fitted(config, 0, monkeypatch, ALONE_TEAM).config.train.parallel is None
