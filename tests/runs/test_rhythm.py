"""How often a training is evaluated and saved, and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gptcli.config import RunConfig
from gptcli.dataset.folder import Dataset
from gptcli.runs import completion, rhythm
from gptcli.runs.events import EvalMetrics, Note
from gptcli.runs.pace import Pace, seconds_of
from gptcli.runs.rhythm import evaluation_cost, with_rhythm
from tests.runs.small_runs import plan, run

OPEN: dict[str, Any] = {"train.eval_every": None, "train.save_every": None}


def config(dataset: Dataset, tmp_path: Path, steps: int, **stated: Any) -> RunConfig:
    return plan(dataset, tmp_path / "run", OPEN | {"train.max_steps": steps} | stated).config


@pytest.mark.parametrize(("steps", "every"), [(1, 1), (19, 1), (20, 1), (21, 2), (1200, 60), (600_000, 30_000)])
def test_about_twenty_evaluations(dataset: Dataset, tmp_path: Path, steps: int, every: int) -> None:
    made = config(dataset, tmp_path, steps)
    assert made.train.eval_every == every
    assert steps <= 20 or 10 < steps / every <= 20


def test_a_run_is_evaluated_so_often(dataset: Dataset, tmp_path: Path) -> None:
    events = run(dataset, tmp_path / "run", OPEN | {"train.max_steps": 45, "train.patience": 45})
    assert [event.step for event in events if isinstance(event, EvalMetrics)] == [*range(3, 46, 3)]


@pytest.mark.parametrize("steps", [30_000, 500_000])
def test_evaluations_take_a_tenth_of_the_time_at_most(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """The split is as long as an evaluation can be, so that only the chosen size limits the cost."""
    made = config(dataset, tmp_path, steps)
    val = dataset.val.__class__(1 << 30, 1 << 30, 1 << 30, dataset.val.stream)
    large = Dataset(**{**vars(dataset), "val": val})
    assert made.train.eval_every
    cost = evaluation_cost(made, large) * (steps / made.train.eval_every) / steps
    assert 0.05 < cost <= rhythm.EVALUATION_SHARE + 1e-9 or made.train.eval_tokens == rhythm.MOST_TOKENS
    assert seconds_of(steps, made, large, Pace(2.0)) == pytest.approx(2.0 * steps * (1 + cost))


def test_short_trainings_score_enough_to_mean_something(dataset: Dataset, tmp_path: Path) -> None:
    assert config(dataset, tmp_path, 10).train.eval_tokens == rhythm.FEWEST_TOKENS


def test_what_is_stated_stays(dataset: Dataset, tmp_path: Path) -> None:
    stated = {"train.eval_every": 7, "train.save_every": 9, "train.eval_tokens": 123}
    made = config(dataset, tmp_path, 100, **stated).train
    assert (made.eval_every, made.save_every, made.eval_tokens) == (7, 9, 123)


@pytest.mark.parametrize(("seconds_per_step", "every"), [(0.1, 1000), (1.0, 600), (1000.0, 1)])
def test_saves_are_ten_minutes_apart_at_most(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds_per_step: float, every: int
) -> None:
    monkeypatch.setattr(completion, "measure_pace", lambda *_args, **_options: Pace(seconds_per_step))
    made = config(dataset, tmp_path, 20_000)
    assert made.train.eval_every == 1000
    assert made.train.save_every == every


def test_a_resumed_run_keeps_its_rhythm(dataset: Dataset, tmp_path: Path) -> None:
    first = config(dataset, tmp_path, 100)
    run(dataset, tmp_path / "run", OPEN | {"train.max_steps": 100}, stop_after=10)
    longer = plan(dataset, tmp_path / "run", OPEN | {"train.max_steps": 400}).config
    assert longer.train.eval_every == first.train.eval_every == 5
    assert with_rhythm(longer) == longer


def memorizing(dataset: Dataset, tmp_path: Path, **flags: Any) -> list[str]:
    """The notes of a training that is long for its few thousand characters."""
    stated = {"model.n_embd": 64, "model.n_layer": 2, "model.dropout": 0.0, "optim.lr": 0.01, "train.max_steps": 400}
    stated |= {"train.compile": "off"}
    events = run(dataset, tmp_path / "run", OPEN | stated | flags)
    return [event.text for event in events if isinstance(event, Note)]


def test_a_note_says_when_the_validation_loss_has_turned(dataset: Dataset, tmp_path: Path) -> None:
    (note,) = memorizing(dataset, tmp_path)
    assert "memorizes" in note
    assert "`model.dropout = 0.2`" in note


def test_no_note_while_the_loss_gets_better(dataset: Dataset, tmp_path: Path) -> None:
    assert memorizing(dataset, tmp_path, **{"train.max_steps": 40}) == []
