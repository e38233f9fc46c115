"""The budgets that end a run, the files that it leaves, and how it resumes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from gptcli.checkpoints.checkpoint import Progress, read_progress
from gptcli.checkpoints.model_folder import checkpoint_steps
from gptcli.dataset.folder import Dataset
from gptcli.errors import ConfigError
from gptcli.generation.loaded_model import open_model
from gptcli.runs import completion, pace, saving, session
from gptcli.runs.budget import why_finished
from gptcli.runs.completion import epoch_steps
from gptcli.runs.events import CheckpointSaved, EvalMetrics, Event, Heartbeat, RunFinished, SampleDrawn, StepMetrics
from gptcli.runs.pace import Pace
from gptcli.training.evaluation import Evaluation
from gptcli.training.trainer import Trainer
from gptcli.training.update import Update
from tests.runs.small_runs import CPU, carry_out, plan, run, series


class Clock:
    """A clock that advances by one second at each update."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        plain = Trainer.step

        def step(trainer: Trainer, should_stop: Callable[[], bool]) -> Update | None:
            self.now += 1.0
            return plain(trainer, should_stop)

        monkeypatch.setattr(session.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(Trainer, "step", step)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def validation(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The validation losses of the evaluations to come, in this order."""
    losses: list[float] = []

    def evaluation(trainer: Trainer) -> Evaluation:
        yield 1, 1
        return losses.pop(0)

    monkeypatch.setattr(Trainer, "evaluation", evaluation)
    return losses


def end(events: list[Event]) -> RunFinished:
    finished = events[-1]
    assert isinstance(finished, RunFinished)
    return finished


def steps_of(events: list[Event], kind: type[StepMetrics | EvalMetrics | CheckpointSaved | SampleDrawn]) -> list[int]:
    return [event.step for event in events if isinstance(event, kind)]


def test_steps(dataset: Dataset, tmp_path: Path) -> None:
    events = run(
        dataset,
        tmp_path / "run",
        {
            "train.max_steps": 7,
            "train.eval_every": 3,
            "train.save_every": 4,
            "train.log_every": 2,
            "train.sample_every": 5,
        },
    )
    assert end(events).step == 7
    assert end(events).tokens == 7 * 4 * 16
    assert end(events).stopped == "max_steps"
    assert steps_of(events, StepMetrics) == [1, 2, 4, 6, 7]
    assert steps_of(events, EvalMetrics) == [3, 6, 7]
    assert steps_of(events, SampleDrawn) == [5, 7]
    assert steps_of(events, CheckpointSaved) == [4, 7]


@pytest.mark.parametrize(("epochs", "steps"), [(0.05, 4), (0.1, 7), (0.2, 14)])
def test_epochs(dataset: Dataset, tmp_path: Path, epochs: float, steps: int) -> None:
    """4,500 tokens are 280 windows of 16 (one is kept back for the offset), 70 batches of 4."""
    made = plan(dataset, tmp_path / "run", {"train.epochs": epochs, "train.max_steps": None})
    assert epoch_steps(made.config, dataset) == 70
    assert made.config.train.max_steps == steps
    assert end(run(dataset, tmp_path / "run", {"train.epochs": epochs, "train.max_steps": None})).step == steps


def test_the_smaller_of_steps_and_epochs(dataset: Dataset, tmp_path: Path) -> None:
    def steps(**budget: float) -> int | None:
        return plan(
            dataset, tmp_path / "run", {f"train.{name}": value for name, value in budget.items()}
        ).config.train.max_steps

    assert steps(epochs=2, max_steps=50) == 50
    assert steps(epochs=0.5, max_steps=50) == 35


def test_time(dataset: Dataset, tmp_path: Path, clock: Clock) -> None:
    """The last update is evaluated and saved, whatever the rhythms; a resumed run continues the time."""
    path = tmp_path / "run"
    events = run(dataset, path, {"train.max_time": "5s", "train.save_every": 5, "train.eval_every": 7})
    assert end(events).step == 5
    assert end(events).stopped == "max_time"
    assert end(events).seconds == 5.0
    assert steps_of(events, EvalMetrics) == [5]
    assert steps_of(events, CheckpointSaved) == [5]
    assert open_model(path).step == 5
    (told,) = plan(dataset, path, {"train.max_time": "5s"}).notes
    assert "`train.max_time = 10s`" in told
    events = run(dataset, path, {"train.max_time": "8s"})
    assert end(events).step == 8
    assert end(events).seconds == 8.0


def test_steps_within_a_time(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of steps is derived from a measurement before the first one; it stays on resume."""
    monkeypatch.setattr(completion, "measure_pace", lambda *_args, **_options: Pace(0.5))
    flags = {"train.max_time": "100s", "train.max_steps": None, "train.eval_every": 10}
    made = plan(dataset, tmp_path / "run", flags)
    # An evaluation scores 500 tokens at a third of an update's 64 per half second: 1.302 s every 10 steps.
    assert made.config.train.max_steps == int(100 / (0.5 + 500 / 64 * 0.5 / 3 / 10)) == 158
    run(dataset, tmp_path / "run", flags, stop_after=2)
    monkeypatch.setattr(completion, "measure_pace", lambda *_args, **_options: Pace(5.0))
    assert plan(dataset, tmp_path / "run", flags).config.train.max_steps == 158


def test_another_time_for_a_run_that_is_finished(
    dataset: Dataset, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps that fit into the rest of the time come after those that were done; an update takes one second."""
    monkeypatch.setattr(completion, "steps_within", lambda seconds, *_: int(seconds))
    path = tmp_path / "run"
    flags = {"train.max_steps": None, "train.eval_every": 100}
    assert end(run(dataset, path, flags | {"train.max_time": "5s"})).step == 5
    (note,) = plan(dataset, path, flags | {"train.max_time": "5s"}).notes
    assert "`train.max_time = 10s`" in note
    longer = plan(dataset, path, flags | {"train.max_time": "8s"})
    assert any("8 steps instead of 5" in note for note in longer.notes)
    assert end(carry_out(longer)).step == 8
    monkeypatch.setattr(completion, "steps_within", lambda seconds, *_: 1000)
    assert plan(dataset, path, flags | {"train.max_time": 8.0}).config.train.max_steps == 8, "the time is the same"
    file = {"train": {"max_steps": 8, "max_time": 8.0}}
    assert plan(dataset, path, flags | {"train.max_time": "9s"}, file=file).config.train.max_steps == 1008
    with pytest.raises(ConfigError):
        plan(dataset, path, flags | {"train.max_time": "soon"})


def test_another_time_leaves_stated_steps_and_epochs(dataset: Dataset, tmp_path: Path) -> None:
    for name, budget in {
        "steps": {"train.max_steps": 3},
        "epochs": {"train.max_steps": None, "train.epochs": 0.05},
    }.items():
        first = end(run(dataset, tmp_path / name, budget | {"train.max_time": "1h"}))
        again = plan(dataset, tmp_path / name, budget | {"train.max_time": "2h"})
        assert (again.config.train.max_steps, again.finished) == (first.step, "max_steps")


@pytest.mark.parametrize(
    ("budget", "seconds", "told"),
    [
        ({"max_steps": 5}, 9.0, "`train.max_steps = 10` trains"),
        ({"max_steps": 5, "max_time": 100.0}, 9.0, "`train.max_steps = 10` trains"),
        ({"max_steps": 5, "max_time": 10.0}, 9.0, "`train.max_time = 18s` trains"),
        ({"max_steps": 5, "max_time": 10.0, "epochs": 2.0}, 9.0, "`train.max_steps = 10` with `train.max_time = 18s`"),
        ({"max_steps": 50, "max_time": 10.0}, 10.2, "`train.max_time = 21s` trains"),
    ],
)
def test_the_hint_of_a_finished_run_trains_longer(
    dataset: Dataset, tmp_path: Path, budget: dict[str, float], seconds: float, told: str
) -> None:
    config = plan(dataset, tmp_path / "run").config
    config = config.model_copy(update={"train": config.train.model_copy(update=budget)})
    assert told in why_finished(config, Progress(step=5, seconds=seconds))
    assert why_finished(config, Progress(step=5, seconds=seconds, evaluation_pending=True)) == ""
    turned = why_finished(config, Progress(step=5, seconds=seconds, best_step=2, evals_since_best=3))
    assert ("trains longer" in turned, "step 2" in turned) == (False, True)


def test_pace_is_the_median_and_leaves_no_trace(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = plan(dataset, tmp_path / "run", {"train.compile": "off"}).config
    # One sequence: two steps, of which the second counts. All four: compiling, two steps that warm up, five others.
    ticks = iter([0, 0, 0, 1, 0, 0.01, 0, 7, 0, 0.05, 0, 0.04, 0, 0.03, 0, 0.01, 0, 0.02, 0, 0.09, 0, 0.08])
    monkeypatch.setattr(pace, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    before = torch.get_rng_state()
    assert pace.measure_pace(config, dataset, CPU, compiles=True) == Pace(0.03, 7.0)
    assert torch.equal(torch.get_rng_state(), before)


def test_an_eager_pace_has_no_time_of_compiling(dataset: Dataset, tmp_path: Path) -> None:
    """It would decide that the run is compiled."""
    assert pace.measure_pace(plan(dataset, tmp_path / "run").config, dataset, CPU).compiling == 0


def test_speed_leaves_out_evaluations_saves_and_samples(
    dataset: Dataset, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 tokens per second, though each checkpoint takes 100 seconds, each evaluation and each sample 10."""

    def slowed(function: Callable[..., object], seconds: float) -> Callable[..., object]:
        def slow(*arguments: object, **options: object) -> object:
            clock.now += seconds
            return function(*arguments, **options)

        return slow

    monkeypatch.setattr(saving, "save_checkpoint", slowed(saving.save_checkpoint, 100))
    monkeypatch.setattr(Trainer, "evaluation", slowed(Trainer.evaluation, 10))
    monkeypatch.setattr(session, "draw_sample", slowed(session.draw_sample, 10))
    rhythms = {"train.save_every": 2, "train.eval_every": 3, "train.sample_every": 5, "train.log_every": 2}
    events = run(dataset, tmp_path / "run", rhythms)
    assert {event.tokens_per_second for event in events if isinstance(event, StepMetrics)} == {64.0}


def test_patience(dataset: Dataset, tmp_path: Path, validation: list[float]) -> None:
    """The run ends after three evaluations without a better loss, and keeps the best weights and the last."""
    path = tmp_path / "run"
    validation[:] = [3.0, 2.5, 2.6, 2.5, 2.7]
    flags = {"train.eval_every": 2, "train.patience": 3, "train.save_every": 4}
    events = run(dataset, path, flags)
    reached = Progress(step=10, tokens=640, val_loss=2.7, best_val_loss=2.5, best_step=4)
    assert end(events) == RunFinished.after(reached, "patience", dataset, seconds=end(events).seconds)
    assert steps_of(events, CheckpointSaved) == [4, 8, 10]
    best = open_model(path)
    assert (best.step, best.val_loss) == (4, 2.5)
    last = open_model(path, "last")
    assert last.step == 10
    (told,) = plan(dataset, path, flags).notes
    assert "3 evaluations" in told
    assert "`train.patience = 6`" in told
    validation[:] = [2.4, 2.9, 2.9, 2.9, 2.9]
    assert end(run(dataset, path, flags | {"train.patience": 6})).step == 20
    assert open_model(path).step == 12


def test_patience_counts_over_sessions(dataset: Dataset, tmp_path: Path, validation: list[float]) -> None:
    validation[:] = [2.0, 2.1, 2.2, 2.3]
    flags = {"train.eval_every": 2, "train.patience": 3, "train.save_every": 3}
    run(dataset, tmp_path / "run", flags, stop_after=5)
    assert end(run(dataset, tmp_path / "run", flags)).step == 8


def test_a_finished_run_is_left_as_it_is(dataset: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "run"
    first = end(run(dataset, path))
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    events = run(dataset, path)
    assert events == [first.__class__(**{**first.__dict__, "seconds": end(events).seconds})]
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


def test_a_stop_before_the_first_update(dataset: Dataset, tmp_path: Path) -> None:
    events = run(dataset, tmp_path / "run", stop_after=0)
    assert end(events).stopped == "interrupted"
    assert checkpoint_steps(tmp_path / "run") == []
    assert end(run(dataset, tmp_path / "run")).step == 20


def test_a_stop_saves_at_once_and_evaluates_nothing(dataset: Dataset, tmp_path: Path) -> None:
    events = run(dataset, tmp_path / "run", stop_after=7)
    assert steps_of(events, CheckpointSaved) == [7]
    assert steps_of(events, EvalMetrics) == []
    progress = read_progress(tmp_path / "run")
    assert progress is not None
    assert progress.step == 7


@pytest.mark.parametrize("keep", [2, 3])
def test_retention_keeps_the_newest_and_all_other_files(dataset: Dataset, tmp_path: Path, keep: int) -> None:
    path = tmp_path / "run"
    flags = {"train.save_every": 2, "train.keep_checkpoints": keep}
    run(dataset, path, flags, stop_after=3)
    (path / "checkpoints/my-notes").mkdir()
    (path / "checkpoints/step-2").mkdir()
    (path / "checkpoints/step-00000001.bak").write_text("mine")
    run(dataset, path, flags)
    assert checkpoint_steps(path) == list(range(20, 20 - 2 * keep, -2))[::-1]
    assert {entry.name for entry in (path / "checkpoints").iterdir() if not entry.name.startswith("step-000")} == {
        "my-notes",
        "step-2",
    }
    assert (path / "checkpoints/step-00000001.bak").read_text() == "mine"


def test_best_weights_name_their_step_and_loss(dataset: Dataset, tmp_path: Path) -> None:
    run(dataset, tmp_path / "run", {"train.eval_every": 4})
    losses = series(tmp_path / "run", "val/loss")
    best = min(losses, key=losses.__getitem__)
    opened = open_model(tmp_path / "run")
    assert (opened.step, opened.val_loss) == (best, losses[best])


def test_slow_updates_give_heartbeats(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between logged steps, each update that ends long after the last event gives a heartbeat."""
    monkeypatch.setattr(session, "HEARTBEAT_SECONDS", -1.0)
    events = run(dataset, tmp_path / "slow", {"train.max_steps": 6, "train.log_every": 3, "train.eval_every": 6})
    assert [event.step for event in events if isinstance(event, Heartbeat)] == [2, 4, 5]
    monkeypatch.setattr(session, "HEARTBEAT_SECONDS", 1e9)
    assert not [event for event in run(dataset, tmp_path / "quick") if isinstance(event, Heartbeat)]


def test_flags_set_the_budget_against_a_config_file_with_steps(dataset: Dataset, tmp_path: Path) -> None:
    """`-c gptcli.toml --epochs 4`: the number of steps that the file holds was derived from another budget."""
    file = {"train": {"max_steps": 3}}
    options = {"train.max_steps": None, "train.epochs": 4.0}
    config = plan(dataset, tmp_path / "run", options, file=file).config
    assert config.train.max_steps == round(4 * epoch_steps(config, dataset)) != 3
    assert plan(dataset, tmp_path / "run", {"train.max_steps": None}, file=file).config.train.max_steps == 3


def test_of_a_large_batch_only_a_part_is_measured(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sequence takes a second, so that two of four are measured; they take three seconds."""
    config = plan(dataset, tmp_path / "run").config
    ticks = iter([0, 0, 0, 1, 0, 1, 0, 0, 0, 9, 0, 3])
    monkeypatch.setattr(pace, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    assert pace.measure_pace(config, dataset, CPU) == Pace(6.0)
