"""Experiment trackers beside the run folder: the real packages, offline, where they are installed."""

from __future__ import annotations

import builtins
import importlib.util
import math
import uuid
from pathlib import Path
from typing import Any

import pytest

from gptcli.dataset.folder import Dataset
from gptcli.errors import MissingPackageError, StorageError
from gptcli.runs import trackers
from gptcli.runs.events import Event, SaveFailed
from gptcli.runs.request import new_request
from tests.runs.small_runs import run, series

pytestmark = pytest.mark.filterwarnings("ignore")  # those of the packages
FIGURES = ("train/loss", "train/lr", "val/loss", "perf/tok_per_sec")


def flags(*names: str) -> dict[str, Any]:
    return {"train.loggers": names, "train.sample_every": 10}


class Recorder:
    """A tracker in memory that remembers its runs by id."""

    runs: dict[str, list[Any]]

    def __init__(self, name: str, settings: trackers.Settings, known_id: str | None) -> None:
        self.id = known_id or f"{name}-{len(self.runs)}"
        self.log = self.runs.setdefault(self.id, [])
        self.log.append(("begin", settings["optim.lr"]))

    def figures(self, values: Any, step: int) -> None:
        assert all(map(math.isfinite, values.values()))
        self.log.append((step, dict(values)))

    def sample(self, text: str, step: int) -> None:
        self.log.append((step, text))

    def finish(self, best_val_loss: float | None, *, complete: bool) -> None:
        self.log.append(("end", best_val_loss, complete))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> type[Recorder]:
    Recorder.runs = {}
    monkeypatch.setitem(trackers.TRACKERS, "wandb", Recorder)
    return Recorder


def test_a_tracker_gets_what_the_log_has(dataset: Dataset, tmp_path: Path, recorder: type[Recorder]) -> None:
    path = tmp_path / "book"
    run(dataset, path, flags("wandb"))
    (log,) = recorder.runs.values()
    assert log[0] == ("begin", 0.01)
    figures = [(step, values) for step, values in log[1:-1] if isinstance(values, dict)]
    for name in FIGURES:
        assert {step: values[name] for step, values in figures if name in values} == series(path, name)
    assert {step: text for step, text in log[1:-1] if isinstance(text, str)} == series(path, "sample")
    assert log[-1] == ("end", min(series(path, "val/loss").values()), True)


def test_a_resumed_run_continues_in_the_tracker(dataset: Dataset, tmp_path: Path, recorder: type[Recorder]) -> None:
    path = tmp_path / "book"
    run(dataset, path, flags("wandb"), stop_after=5)
    run(dataset, path, flags("wandb"))
    (log,) = recorder.runs.values()
    assert [entry[0] for entry in log].count("begin") == 2
    assert [entry[2] for entry in log if entry[0] == "end"] == [False, True]
    run(dataset, tmp_path / "other", flags("wandb"))
    assert len(recorder.runs) == 2


def test_losses_do_not_depend_on_trackers(dataset: Dataset, tmp_path: Path, recorder: type[Recorder]) -> None:
    run(dataset, tmp_path / "with", flags("wandb"))
    run(dataset, tmp_path / "without", {"train.sample_every": 10})
    assert series(tmp_path / "with", "train/loss") == series(tmp_path / "without", "train/loss")
    assert "loggers" not in (tmp_path / "without/gptcli.toml").read_text()


def test_a_tracker_that_fails_is_reported_once_and_stops_nothing(
    dataset: Dataset, tmp_path: Path, recorder: type[Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_given: object) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(recorder, "figures", fail)
    events: list[Event] = run(dataset, tmp_path / "book", flags("wandb"))
    failures = [event for event in events if isinstance(event, SaveFailed)]
    assert len(failures) == 1
    assert "wandb" in failures[0].message
    assert "no route to host" in failures[0].message
    assert len(series(tmp_path / "book", "train/loss")) == 20


def test_a_tracker_that_cannot_begin_ends_the_command(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_given: object) -> None:
        raise PermissionError("no API key")

    monkeypatch.setitem(trackers.TRACKERS, "wandb", refuse)
    with pytest.raises(StorageError, match="wandb could not be begun: PermissionError: no API key"):
        run(dataset, tmp_path / "book", flags("wandb"))


def test_an_error_in_training_ends_the_run_in_the_tracker(
    dataset: Dataset, tmp_path: Path, recorder: type[Recorder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gptcli.runs.session.draw_sample", lambda *_given, **_options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(dataset, tmp_path / "book", flags("wandb"))
    (log,) = recorder.runs.values()
    assert log[-1] == ("end", None, False)


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match="mlflow") as caught:
        new_request("book.txt", settings={"train.loggers": ["mlflow"]})
    assert "pip install" in caught.value.hint


def test_without_trackers_no_package_is_imported(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = builtins.__import__

    def guarded(name: str, *arguments: Any, **options: Any) -> Any:
        assert name.partition(".")[0] not in trackers.TRACKERS
        return plain(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", guarded)
    run(dataset, tmp_path / "book")
    with pytest.raises(StorageError, match="AssertionError"):
        run(dataset, tmp_path / "other", flags("mlflow"))


def test_mlflow(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{tmp_path / 'mlruns'}")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # versions from 3.7 on ask for it
    path = tmp_path / "book"
    run(dataset, path, flags("mlflow"), stop_after=15)
    run(dataset, path, flags("mlflow"))
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("gptcli")
    (found,) = client.search_runs([experiment.experiment_id])
    assert (found.info.run_name, found.info.status) == ("book", "FINISHED")
    assert found.data.params["optim.lr"] == "0.01"
    for name in FIGURES:
        history = {metric.step: metric.value for metric in client.get_metric_history(found.info.run_id, name)}
        assert history == pytest.approx(series(path, name))
    assert found.data.metrics["best_val_loss"] == pytest.approx(min(series(path, "val/loss").values()))
    samples = client.list_artifacts(found.info.run_id, "samples")
    assert [artifact.path for artifact in samples] == ["samples/step-00000010.txt", "samples/step-00000020.txt"]


def test_wandb(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    for name, value in {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path), "WANDB_PROJECT": "tests"}.items():
        monkeypatch.setenv(name, value)
    path = tmp_path / "book"
    run(dataset, path, flags("wandb"))
    id = trackers._known_ids(path)["wandb"]
    (log,) = tmp_path.glob(f"wandb/offline-run-*-{id}/*.wandb")
    content = log.read_bytes()
    for word in ("train/loss", "val/loss", "best_val_loss", "n_embd", "book"):
        assert word.encode() in content
    samples = sorted(tmp_path.glob(f"wandb/offline-run-*-{id}/files/media/html/sample_*.html"))
    assert len(samples) == 2


def test_trackio(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # read when the package is imported
    pytest.importorskip("trackio", reason="trackio is not installed")
    project = f"tests-{uuid.uuid4().hex}"
    monkeypatch.setenv("TRACKIO_PROJECT", project)
    path = tmp_path / "book"
    run(dataset, path, flags("trackio"))
    import trackio

    (found,) = trackio.Api().runs(project)
    assert found.name == trackers._known_ids(path)["trackio"]
    assert found.config["optim.lr"] == 0.01
    from trackio import context_vars

    assert context_vars.current_run.get() is None, "at exit it would print on standard output"
