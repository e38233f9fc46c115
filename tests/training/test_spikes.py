"""`optim.skip_spikes`: a spike changes no weight, is counted and shown, and leaves no lasting trace."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from gptcli.config import build_config
from gptcli.config.values import nest
from gptcli.dataset.folder import Dataset
from gptcli.errors import ConfigError, NonFiniteError
from gptcli.runs.events import Planned, StepMetrics
from gptcli.training import spikes
from gptcli.training.optimizer import Optimizer
from gptcli.training.spikes import SpikeGuard
from gptcli.training.trainer import Trainer
from gptcli.training.update import Update
from gptcli.ui.console import Output
from gptcli.ui.training import TrainingDisplay
from tests.runs.small_runs import assert_same_end, end_state, lines, plan, run, series, without_times

FLAGS = {"optim.skip_spikes": 6.0, "train.log_every": 5}


@pytest.fixture
def short_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard acts from the ninth update on."""
    monkeypatch.setattr(spikes, "WINDOW", 8)


@pytest.fixture
def spike_at(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Updates, by their number from 1, whose gradient is made a hundred times larger."""
    plain, chosen = Optimizer.step, set[int]()
    now = [0]
    plain_step = Trainer.step

    def counting(self: Trainer, should_stop: Callable[[], bool]) -> Update | None:
        now[0] = self.completed_steps + 1
        return plain_step(self, should_stop)

    def enlarging(self: Optimizer, lr: float, loss: Tensor) -> Tensor:
        if now[0] in chosen:
            for parameter in self.names:
                assert parameter.grad is not None
                parameter.grad *= 100
        return plain(self, lr, loss)

    monkeypatch.setattr(Trainer, "step", counting)
    monkeypatch.setattr(Optimizer, "step", enlarging)
    return chosen


def guard(sigma: float = 6.0) -> SpikeGuard:
    """A guard that has seen 200 updates: losses of 2 ± 0.1, norms of 1 ± 0.05."""
    made = SpikeGuard(sigma, torch.device("cpu"))
    for number in range(200):
        sign = (-1) ** number
        assert not stands_out(made, 2 + 0.1 * sign, 1 + 0.05 * sign)
    return made


def stands_out(guard: SpikeGuard, loss: float, norm: float) -> bool:
    return bool(guard.stands_out(torch.tensor(loss), torch.tensor(norm)))


def test_mean_and_deviation() -> None:
    made = guard()
    assert made.mean.tolist() == pytest.approx([2, 1], abs=1e-3)
    assert made.variance.sqrt().tolist() == pytest.approx([0.1, 0.05], rel=0.02)


@pytest.mark.parametrize(
    ("loss", "norm", "spike"),
    [(2.5, 1.0, False), (2.7, 1.0, True), (2.0, 1.25, False), (2.0, 1.4, True), (0.1, 0.01, False)],
)
def test_only_values_far_above_the_mean_are_spikes(loss: float, norm: float, spike: bool) -> None:
    made = guard()
    assert stands_out(made, loss, norm) is spike
    assert made.skipped.item() == spike


def test_a_spike_does_not_hide_the_next() -> None:
    made = guard()
    assert stands_out(made, 50.0, 1.0)
    assert made.mean[0].item() < 2.01
    assert stands_out(made, 50.0, 1.0)


def test_a_lasting_rise_is_accepted() -> None:
    made = guard()
    skipped = [stands_out(made, 50.0, 1.0) for _ in range(60)]
    assert skipped[0]
    assert skipped.count(True) < 40
    assert not any(skipped[skipped.count(True) :]), "once accepted, it stays so"


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_values_that_are_not_finite_change_nothing(bad: float) -> None:
    made = guard()
    before = {name: tensor.clone() for name, tensor in made.tensors().items()}
    assert not stands_out(made, bad, 1.0)
    assert not stands_out(made, 2.0, bad)
    assert all(torch.equal(before[name], tensor) for name, tensor in made.tensors().items())


def test_nothing_is_skipped_during_the_first_updates() -> None:
    made = SpikeGuard(2.0, torch.device("cpu"))
    assert not any(stands_out(made, 2.0 + 100 * (number == spikes.WINDOW - 1), 1.0) for number in range(spikes.WINDOW))


def check_skipped(dataset: Dataset, path: Path, monkeypatch: pytest.MonkeyPatch, optimizer: str = "adamw") -> None:
    states: dict[int, dict[str, Tensor]] = {}
    plain = Trainer.step

    def watched(self: Trainer, should_stop: Callable[[], bool]) -> Update | None:
        done = plain(self, should_stop)
        kinds = ("exp_avg", "momentum")
        moments = {name: value for name, value in self.optimizer.tensors().items() if name.startswith(kinds)}
        states[self.completed_steps] = {
            name: value.clone() for name, value in (self.model.state_dict() | moments).items()
        }
        return done

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", watched)
        events = run(dataset, path, FLAGS | {"optim.optimizer": optimizer})
    assert [name for name in states[12] if not torch.equal(states[12][name], states[13][name])] == []
    assert any(not torch.equal(states[13][name], states[14][name]) for name in states[13]), (
        "later updates change weights"
    )
    assert series(path, "train/skipped") == {1: 0, 5: 0, 10: 0, 15: 1, 20: 1}
    assert [event.spikes for event in events if isinstance(event, StepMetrics)] == [0, 0, 0, 1, 1]
    assert end_state(path)[1]["optimizer.step"].item() == 19, "AdamW does not count a skipped update"


@pytest.mark.usefixtures("short_window")
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_spike_changes_no_weight(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spike_at: set[int], optimizer: str
) -> None:
    spike_at.add(13)
    check_skipped(dataset, tmp_path / "run", monkeypatch, optimizer)


@pytest.mark.usefixtures("short_window")
def test_control_a_guard_that_sees_nothing(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spike_at: set[int]
) -> None:
    spike_at.add(13)
    monkeypatch.setattr(SpikeGuard, "stands_out", lambda self, loss, norm: torch.zeros((), dtype=torch.bool))
    with pytest.raises(AssertionError):
        check_skipped(dataset, tmp_path / "run", monkeypatch)


@pytest.mark.usefixtures("short_window")
def test_in_float16_a_spike_is_no_overflow(dataset: Dataset, tmp_path: Path, spike_at: set[int]) -> None:
    """It leaves the loss scale alone, and twenty of them are no reason to stop."""
    run(dataset, tmp_path / "plain", FLAGS | {"train.dtype": "float16"})
    spike_at.add(13)
    run(dataset, tmp_path / "run", FLAGS | {"train.dtype": "float16"})
    assert series(tmp_path / "run", "train/skipped")[20] == series(tmp_path / "plain", "train/skipped")[20] + 1
    (plain, _), (values, tensors) = end_state(tmp_path / "plain"), end_state(tmp_path / "run")
    assert values["scaler"] == plain["scaler"]
    assert tensors["optimizer.skips_in_row"].item() == 0


def check_resume(dataset: Dataset, folder: Path) -> None:
    run(dataset, folder / "whole", FLAGS)
    for _ in range(2):
        run(dataset, folder / "parts", FLAGS, stop_after=7)
    run(dataset, folder / "parts", FLAGS)
    assert_same_end(folder / "whole", folder / "parts")
    assert [without_times(line) for line in lines(folder / "parts")] == [
        without_times(line) for line in lines(folder / "whole")
    ]
    assert series(folder / "whole", "train/skipped")[20] == 2


@pytest.mark.usefixtures("short_window")
def test_resuming_is_exact(dataset: Dataset, tmp_path: Path, spike_at: set[int]) -> None:
    spike_at.update({11, 17})
    check_resume(dataset, tmp_path)


@pytest.mark.usefixtures("short_window")
def test_control_without_the_statistics(
    dataset: Dataset, tmp_path: Path, spike_at: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    spike_at.update({11, 17})
    monkeypatch.setattr(SpikeGuard, "load_tensors", lambda self, tensors: None)
    with pytest.raises(AssertionError):
        check_resume(dataset, tmp_path)


def test_a_run_may_resume_with_and_without_it(dataset: Dataset, tmp_path: Path) -> None:
    run(dataset, tmp_path / "run", stop_after=5)
    run(dataset, tmp_path / "run", FLAGS, stop_after=5)
    assert end_state(tmp_path / "run")[1]["optimizer.spikes.seen"].item() == 5, "the updates since it was turned on"
    run(dataset, tmp_path / "run", stop_after=5)
    assert end_state(tmp_path / "run")[1]["optimizer.spikes.seen"].item() == 10, "kept where the request is silent"
    run(dataset, tmp_path / "run", {"optim.skip_spikes": 0.0})
    assert "optimizer.spikes.seen" not in end_state(tmp_path / "run")[1]


def test_a_loss_that_is_not_a_number_still_ends_the_run(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Optimizer.step
    monkeypatch.setattr(Optimizer, "step", lambda self, lr, loss: plain(self, lr, loss * float("nan")))
    with pytest.raises(NonFiniteError):
        run(dataset, tmp_path / "run", FLAGS)


def test_the_display_tells_skipped_updates(
    dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with TrainingDisplay(Output()) as display:
        display.show(Planned(plan(dataset, tmp_path / "run")))
        capsys.readouterr()
        for step, skipped in ((10, 0), (20, 1), (30, 1), (40, 3)):
            figures = {"loss": 2.0, "lr": 1e-3, "grad_norm": 0.5, "tokens_per_second": 100.0, "seconds": 1.0}
            display.show(StepMetrics(step=step, skipped=skipped, spikes=skipped, **figures))
    told = [line for line in capsys.readouterr().err.splitlines() if "skipped" in line]
    assert [re.findall(r"\d+", line) for line in told] == [["20", "1"], ["40", "3"]]


@pytest.mark.parametrize("value", [1.0, -3.0, float("nan")])
def test_impossible_deviations(value: float) -> None:
    with pytest.raises(ConfigError, match="skip_spikes"):
        build_config("nano", nest({"optim.skip_spikes": value, "train.max_steps": 1}), vocab_size=65)
