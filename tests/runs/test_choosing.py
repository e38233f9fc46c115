"""The choice of a model for a text, a machine and a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gptcli.config import RunConfig
from gptcli.config.values import nest
from gptcli.dataset.folder import Dataset
from gptcli.errors import OutOfMemoryError
from gptcli.model.cost import training_flops
from gptcli.runs import choosing, fitting, followers, pace
from gptcli.runs.decision import decide
from gptcli.runs.pace import Pace
from gptcli.runs.plan import Plan, plan_for
from gptcli.runs.request import Request, new_request
from gptcli.runs.rhythm import tokens_per_step
from tests.runs.small_runs import CPU, small_dataset

FLOPS_PER_SECOND = 2e11


@pytest.fixture
def paces(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine of fixed speed; the presets whose pace was measured."""
    measured: list[str] = []

    def measure(config: RunConfig, *_where: object, compiles: bool = False, **_team: object) -> Pace:
        measured.append(config.preset + (" compiled" if compiles else ""))
        flops = training_flops(config.model, config.model.block_size) * tokens_per_step(config)
        return Pace(flops / FLOPS_PER_SECOND / (2 if compiles else 1), 20.0 if compiles else 0.0)

    monkeypatch.setattr(choosing, "measure_pace", measure)
    return measured


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """300 KB of text."""
    words = [f"{count * count % 9973} is what {count * 7 % 911} says.\n" for count in range(13_000)]
    return small_dataset(tmp_path_factory.mktemp("text"), "".join(words))


def made(dataset: Dataset, tmp_path: Path, settings: dict[str, Any] | None = None, **options: Any) -> Plan:
    asked = Request(out=tmp_path / "run", flags=nest(settings or {}), **options)
    return plan_for(asked, decide(asked), dataset, CPU)


def test_the_lowest_expected_loss_is_chosen(text: Dataset, tmp_path: Path, paces: list[str]) -> None:
    plan = made(text, tmp_path)
    assert plan.choice is not None
    presets, best = [one.preset for one in plan.choice.candidates], plan.choice.best
    assert len(presets) >= 3
    assert paces in (presets, [*presets, best.preset]), "each once, and the best again if it has dropout"
    assert best.loss == min(one.loss for one in plan.choice.candidates)
    assert (plan.config.preset, plan.config.model.dropout) == (best.preset, best.dropout)
    assert plan.config.train.max_steps == best.steps
    assert plan.config.train.epochs is None
    assert plan.seconds == pytest.approx(best.seconds)


def test_nothing_takes_longer_than_the_time(text: Dataset, tmp_path: Path, paces: list[str]) -> None:
    for stated, seconds in [({}, 165.0), ({"train.max_time": "40s"}, 40.0)]:
        choice = made(text, tmp_path, stated).choice
        assert choice is not None
        assert choice.seconds == seconds
        assert max(one.seconds for one in choice.candidates) <= 1.05 * seconds


def test_more_time_is_for_a_larger_model(text: Dataset, tmp_path: Path, paces: list[str]) -> None:
    short, long = (made(text, tmp_path, {"train.max_time": time}).config for time in ("5s", "3h"))
    assert training_flops(long.model, 1) > training_flops(short.model, 1)
    assert long.train.max_time == 3 * 3600


def test_a_long_training_is_timed_as_it_will_run(
    text: Dataset, tmp_path: Path, paces: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not made(text, tmp_path).pays_compiling_on_cpu
    assert not [one for one in paces if one.endswith("compiled")]
    monkeypatch.setattr(pace, "CPU_SECONDS", 1.0)
    plan = made(text, tmp_path)
    assert paces[-1] == f"{plan.config.preset} compiled"
    assert plan.pays_compiling_on_cpu
    assert plan.choice is not None
    assert plan.seconds == pytest.approx(plan.choice.best.seconds)


def test_a_model_with_dropout_is_timed_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[tuple[str, float]] = []

    def measure(config: RunConfig, *_where: object, **_options: object) -> Pace:
        measured.append((config.preset, config.model.dropout))
        flops = training_flops(config.model, config.model.block_size) * tokens_per_step(config)
        return Pace(flops / FLOPS_PER_SECOND * (3 if config.model.dropout else 1))

    monkeypatch.setattr(choosing, "measure_pace", measure)
    text = small_dataset(tmp_path, "".join(f"{number * number} and {number}\n" for number in range(1_000)))
    plan = made(text, tmp_path)
    assert plan.choice is not None
    best = plan.choice.best
    assert best.dropout > 0
    assert measured[-1] == (best.preset, best.dropout)
    assert measured.index((best.preset, best.dropout)) >= len(plan.choice.candidates)  # after all others
    flops = training_flops(plan.config.model, plan.config.model.block_size) * tokens_per_step(plan.config)
    assert best.pace.step == pytest.approx(3 * flops / FLOPS_PER_SECOND)


def test_a_text_that_is_too_small(text: Dataset, tmp_path: Path, paces: list[str]) -> None:
    """A note says so, but not where the time limits the updates: there a larger text would not help."""
    small = small_dataset(tmp_path, "".join(f"{number * number} and {number}\n" for number in range(500)))
    for dataset, time, expected in (
        (small, "2m", True),
        (small, "0.3s", False),
        (text, "2m", False),
        (text, "1s", False),
    ):
        notes = made(dataset, tmp_path, {"train.max_time": time}).notes
        assert any("too small to learn" in note for note in notes) == expected, (dataset.name, time)


def test_models_that_would_hardly_learn_are_not_measured(text: Dataset, tmp_path: Path, paces: list[str]) -> None:
    assert made(text, tmp_path, {"train.max_time": "2s"}).choice is not None
    assert "medium" not in paces


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({}, {"preset": "nano"}),
        ({}, {"file": {"preset": "nano"}}),
        ({"model.n_embd": 32}, {}),
        ({"model.block_size": 32}, {}),
        ({"train.max_steps": 3}, {}),
        ({"train.epochs": 1.0}, {}),
        ({}, {"family": "gpt2"}),
    ],
)
def test_stated_shapes_and_budgets_overrule_it(
    text: Dataset, tmp_path: Path, paces: list[str], settings: dict[str, Any], options: dict[str, Any]
) -> None:
    plan = made(text, tmp_path, settings, **options)
    assert plan.choice is None
    assert paces == []


def test_other_settings_stay_as_stated(text: Dataset, tmp_path: Path, paces: list[str]) -> None:
    plan = made(text, tmp_path, {"model.dropout": 0.25, "train.batch_size": 4, "optim.lr": 1e-3})
    assert plan.choice is not None
    assert {one.dropout for one in plan.choice.candidates} == {0.25}
    assert (plan.config.model.dropout, plan.config.train.batch_size, plan.config.optim.lr) == (0.25, 4, 1e-3)


def test_more_passes_come_with_more_dropout(tmp_path: Path, paces: list[str]) -> None:
    few, many = (small_dataset(tmp_path / str(lines), "".join(f"{n * n} and {n}\n" for n in range(lines)))
                 for lines in (40_000, 1_000))  # fmt: skip
    of_few, of_many = made(few, tmp_path).choice, made(many, tmp_path).choice
    assert of_few is not None
    assert of_many is not None
    assert of_many.best.passes > 4 * of_few.best.passes
    assert of_many.best.dropout > of_few.best.dropout


def test_models_without_room_are_left_out(
    text: Dataset, tmp_path: Path, paces: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    one_by_one = made(text, tmp_path, {"train.micro_batch_size": 1}, preset="nano").config
    needed = fitting.fit_to_machine(one_by_one, CPU).memory.needed
    monkeypatch.setattr(followers, "free_memory", lambda device: needed)
    choice = made(text, tmp_path).choice
    assert choice is not None
    assert [one.preset for one in choice.candidates] == ["nano"]


def test_a_model_that_runs_out_of_memory_is_left_out(
    text: Dataset, tmp_path: Path, paces: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = choosing.measure_pace

    def measure_in_little_memory(config: RunConfig, *arguments: Any, **options: Any) -> Pace:
        if config.preset == "mini":
            raise OutOfMemoryError("Too large.", "")
        return measure(config, *arguments, **options)

    monkeypatch.setattr(choosing, "measure_pace", measure_in_little_memory)
    choice = made(text, tmp_path).choice
    assert choice is not None
    assert [one.preset for one in choice.candidates] == ["nano", "tiny"]


def test_no_model_where_none_can_be_trained(tmp_path: Path, paces: list[str]) -> None:
    dataset = small_dataset(tmp_path, "too short for a context of 128 " * 4)
    asked = Request(out=tmp_path / "run")
    decision = decide(asked)
    assert choosing.choose_model(asked, decision, dataset, CPU) is None  # type: ignore[arg-type]


def test_a_resumed_run_keeps_its_model(text: Dataset, tmp_path: Path, paces: list[str]) -> None:
    """The speed of the machine may be another by then."""
    from gptcli.runs import session

    asked = new_request(text.path, out=tmp_path / "run", settings={"train.max_time": "2s", "train.device": "cpu"})
    plan = plan_for(asked, decide(asked), text, CPU)
    stop = iter([False, True, True])
    list(session.carry_out(plan, lambda: next(stop, True)))
    paces.clear()
    resumed = plan_for(asked, decide(asked), text, CPU)
    assert paces == []
    assert resumed.choice is None
    assert resumed.config == plan.config
