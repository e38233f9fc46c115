"""Mixed precision on a CPU: the same loop under bfloat16 and float16, with torch's own gradient scaler."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gptcli.dataset.folder import Dataset
from gptcli.errors import NonFiniteError
from gptcli.training import optimizer
from gptcli.training.optimizer import Optimizer
from tests.runs.small_runs import assert_same_end, end_state, lines, run, series, without_times

FP16 = {"train.dtype": "float16"}


@pytest.fixture
def huge_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scaler whose first scale makes the first updates overflow."""
    plain = torch.amp.GradScaler
    monkeypatch.setattr(torch.amp, "GradScaler", lambda device, enabled: plain(device, 2.0**28, enabled=enabled))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_losses_stay_near_float32(dataset: Dataset, tmp_path: Path, dtype: str) -> None:
    run(dataset, tmp_path / "float32", {"model.dropout": 0.0})
    run(dataset, tmp_path / dtype, {"model.dropout": 0.0, "train.dtype": dtype})
    exact, mixed = series(tmp_path / "float32", "train/loss"), series(tmp_path / dtype, "train/loss")
    assert mixed == pytest.approx(exact, rel=0.01)
    assert mixed != exact, "nothing was computed in the smaller dtype"


@pytest.mark.usefixtures("huge_scale")
def test_an_overflow_is_skipped(dataset: Dataset, tmp_path: Path) -> None:
    run(dataset, tmp_path / "run", FP16)
    skipped = series(tmp_path / "run", "train/skipped")
    last = int(skipped[20])
    assert 0 < last < 20
    assert [skipped[step] for step in range(1, 21)] == [min(step, last) for step in range(1, 21)]
    norms = series(tmp_path / "run", "train/grad_norm")
    assert norms[1] is None, "an infinite norm is null in JSON"
    assert norms[20] > 0
    values, tensors = end_state(tmp_path / "run")
    assert values["scaler"]["scale"] == 2.0 ** (28 - last)
    assert tensors["optimizer.step"].item() == 20 - last, "AdamW does not count a skipped update"


def check_scaler(dataset: Dataset, folder: Path) -> None:
    run(dataset, folder / "whole", FP16)
    run(dataset, folder / "parts", FP16, stop_after=7)
    run(dataset, folder / "parts", FP16)
    assert_same_end(folder / "whole", folder / "parts")
    assert [without_times(line) for line in lines(folder / "parts")] == [
        without_times(line) for line in lines(folder / "whole")
    ]


@pytest.mark.usefixtures("huge_scale")
def test_the_scaler_resumes_to_the_last_bit(dataset: Dataset, tmp_path: Path) -> None:
    check_scaler(dataset, tmp_path)


@pytest.mark.usefixtures("huge_scale")
def test_control_without_the_scaler(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Optimizer, "load_scaler_state", lambda self, state: None)
    with pytest.raises(AssertionError):
        check_scaler(dataset, tmp_path)


def test_growth_of_the_scale_resumes(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = torch.amp.GradScaler
    monkeypatch.setattr(
        torch.amp, "GradScaler", lambda device, enabled: plain(device, 8.0, growth_interval=4, enabled=enabled)
    )
    check_scaler(dataset, tmp_path)
    values, _ = end_state(tmp_path / "parts")
    assert values["scaler"]["scale"] == 8.0 * 2**5


def test_many_overflows_in_a_row_end_the_run(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = torch.amp.GradScaler
    monkeypatch.setattr(torch.amp, "GradScaler", lambda device, enabled: plain(device, 2.0**100, enabled=enabled))
    with pytest.raises(NonFiniteError, match="20 ") as caught:
        run(dataset, tmp_path / "run", FP16 | {"train.max_steps": 30, "train.log_every": 1})
    assert caught.value.exit_code == 3
    assert optimizer.MAX_SKIPS_IN_A_ROW == 20
    assert max(series(tmp_path / "run", "train/loss")) == 19


def test_a_scale_below_1_ends_the_run(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Optimizer.step

    def overflowing(self: Optimizer, lr: float, loss: torch.Tensor) -> torch.Tensor:
        next(iter(self.names)).grad.fill_(float("inf"))  # type: ignore[union-attr]
        return plain(self, lr, loss)

    monkeypatch.setattr(Optimizer, "step", overflowing)
    with pytest.raises(NonFiniteError, match="scal"):
        run(dataset, tmp_path / "run", FP16 | {"train.max_steps": 30})


def test_other_dtypes_need_no_scaler(dataset: Dataset, tmp_path: Path) -> None:
    run(dataset, tmp_path / "run", {"train.dtype": "bfloat16"})
    assert end_state(tmp_path / "run")[0]["scaler"] == {}
