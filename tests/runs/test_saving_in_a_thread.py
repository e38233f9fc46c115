"""Checkpoints and best weights that a thread writes while training continues, as for large models.

A gate holds the thread up until the test lets it continue, so that nothing depends on speed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gptcli.checkpoints.checkpoint import load_checkpoint, read_progress
from gptcli.checkpoints.model_folder import checkpoint_steps
from gptcli.dataset.folder import Dataset
from gptcli.errors import NonFiniteError, StorageError
from gptcli.runs import saving
from gptcli.runs.events import CheckpointSaved, EvalMetrics, Event, RunFinished, SaveFailed, StepMetrics
from gptcli.runs.logs import MetricsLog
from gptcli.runs.saving import RunMoved, Saving
from gptcli.runs.session import carry_out
from gptcli.runs.writer import Writer
from tests.runs.small_runs import assert_same_end, lines, plan, run, without_times
from tests.training.test_nonfinite import in_the_loss, poison_step

FLAGS: dict[str, Any] = {"train.eval_every": 5, "train.save_every": 10, "train.keep_checkpoints": 5}
TENSORS = ("model.safetensors", "optimizer.safetensors")


@pytest.fixture(autouse=True)
def in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "DIRECT_BYTES", -1)


@pytest.fixture
def whole(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose checkpoints were written at once."""
    with monkeypatch.context() as patch:
        patch.setattr(saving, "DIRECT_BYTES", 1 << 30)
        patch.setattr(Writer, "write", None)
        run(dataset, tmp_path / "whole", FLAGS)
    return tmp_path / "whole"


def gated(monkeypatch: pytest.MonkeyPatch, where: object, name: str) -> threading.Event:
    """Let a function wait for the event that is returned."""
    gate, plain = threading.Event(), getattr(where, name)

    def wait(*arguments: Any, **options: Any) -> Any:
        assert gate.wait(timeout=60)
        return plain(*arguments, **options)

    monkeypatch.setattr(where, name, wait)
    return gate


def opened_by_waiting(monkeypatch: pytest.MonkeyPatch, gate: threading.Event) -> None:
    """Open the gate when training waits for the thread."""
    plain = Writer.finish

    def finish(self: Writer, last: Any = None) -> Iterator[CheckpointSaved | SaveFailed]:
        gate.set()
        return plain(self, last)

    monkeypatch.setattr(Writer, "finish", finish)


def train_until(dataset: Dataset, path: Path, step: int, act: Callable[[], object]) -> list[Event]:
    """Train, and `act` at the event of a step; the events."""
    events: list[Event] = []
    for event in carry_out(plan(dataset, path, FLAGS)):
        events.append(event)
        if isinstance(event, StepMetrics) and event.step == step:
            act()
    return events


def place(events: list[Event], kind: type[Event], step: int) -> int:
    """The place of an event; fails if there is none."""
    found = [number for number, event in enumerate(events) if isinstance(event, kind) and event.step == step]
    assert found, f"no {kind.__name__} of step {step}"
    return found[0]


def refuse_at(monkeypatch: pytest.MonkeyPatch, steps: set[int]) -> None:
    """Let the disk refuse the checkpoints of some steps."""
    plain = saving.save_checkpoint

    def save(path: Path, checkpoint: saving.Checkpoint, **options: Any) -> Path:
        if checkpoint.progress.step in steps:
            raise StorageError("No space left.")
        return plain(path, checkpoint, **options)

    monkeypatch.setattr(saving, "save_checkpoint", save)


def check_same_checkpoints(dataset: Dataset, path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training continues by three updates while the checkpoint of step 10 waits; it holds the state of step 10."""
    gate = gated(monkeypatch, saving, "save_checkpoint")
    events = train_until(dataset, path, 13, gate.set)
    assert place(events, CheckpointSaved, 10) > place(events, StepMetrics, 13)
    assert place(events, CheckpointSaved, 20) == len(events) - 2
    for step in ("step-00000010", "step-00000020"):
        for name in TENSORS:
            file = Path("checkpoints") / step / name
            assert (path / file).read_bytes() == (whole / file).read_bytes()
    assert (path / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert [without_times(line) for line in lines(path)] == [without_times(line) for line in lines(whole)]
    assert_same_end(path, whole)
    at_ten = load_checkpoint(path / "checkpoints/step-00000010").progress
    assert at_ten.metrics_bytes < (path / "metrics.jsonl").read_bytes().index(b'{"step": 11,') + 1


def test_training_continues_and_the_files_are_the_same(
    dataset: Dataset, tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_same_checkpoints(dataset, tmp_path / "run", whole, monkeypatch)


def test_control_without_a_copy(dataset: Dataset, tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "HostCopy", lambda tensors: type("Same", (), {"tensors": lambda self: dict(tensors)})())
    with pytest.raises((AssertionError, StorageError)):
        check_same_checkpoints(dataset, tmp_path / "run", whole, monkeypatch)


def test_the_next_checkpoint_waits(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened_by_waiting(monkeypatch, gated(monkeypatch, saving, "save_checkpoint"))
    events = run(dataset, tmp_path / "run", FLAGS | {"train.eval_every": 20})
    assert place(events, StepMetrics, 20) < place(events, CheckpointSaved, 10) < place(events, CheckpointSaved, 20)


def test_a_failed_checkpoint_is_reported_and_training_continues(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_at(monkeypatch, {10})
    events = run(dataset, tmp_path / "run", FLAGS)
    (failed,) = [event for event in events if isinstance(event, SaveFailed)]
    assert (failed.step, failed.checkpoint) == (10, True)
    assert checkpoint_steps(tmp_path / "run") == [20]
    assert {"step": 10, "save_failed": True} in lines(tmp_path / "run")


@pytest.mark.parametrize(("refused", "saved"), [({20}, [5, 10, 15]), ({10, 15, 20}, [5]), ({5, 10, 15}, [])])
def test_the_last_one_and_the_third_in_a_row_end_training(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: set[int], saved: list[int]
) -> None:
    refuse_at(monkeypatch, refused)
    with pytest.raises(StorageError, match="No space"):
        run(dataset, tmp_path / "run", FLAGS | {"train.save_every": 5})
    assert checkpoint_steps(tmp_path / "run") == saved


def test_a_checkpoint_does_not_name_best_weights_that_were_not_written(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread refuses those of step 10 after the checkpoint of that step was handed over."""
    plain, gate = saving.replace_weights, threading.Event()

    def replace(run: saving.StoredRun, tensors: dict[str, Any], *, step: int, val_loss: float) -> None:
        if step == 10:
            assert gate.wait(timeout=60)
            raise StorageError("No space left.")
        plain(run, tensors, step=step, val_loss=val_loss)

    monkeypatch.setattr(saving, "replace_weights", replace)
    path = tmp_path / "run"
    events = train_until(dataset, path, 12, gate.set)
    (evaluation,) = [event for event in events if isinstance(event, EvalMetrics) and event.step == 10]
    assert evaluation.best_step == 10, "the figures are right whatever the disk does"
    assert place(events, SaveFailed, 10) > place(events, StepMetrics, 12)
    assert load_checkpoint(path / "checkpoints/step-00000010").progress.best_step == 5
    progress = read_progress(path)
    assert progress is not None
    assert progress.best_step in (15, 20)


def test_lost_best_weights_end_a_session(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise StorageError("No space left.")

    monkeypatch.setattr(saving, "replace_weights", refuse)
    with pytest.raises(StorageError, match="No space"):
        run(dataset, tmp_path / "run", FLAGS)
    assert checkpoint_steps(tmp_path / "run") == [10, 20]


def test_a_folder_that_moves_before_the_thread_writes(
    dataset: Dataset, tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint goes to the new place and ends the session; nothing is made at the old one."""
    path, moved = tmp_path / "run", tmp_path / "moved"
    with monkeypatch.context() as patch:
        gate = gated(patch, MetricsLog, "flush")

        def move() -> None:
            path.rename(moved)
            gate.set()

        with pytest.raises(RunMoved) as caught:
            train_until(dataset, path, 12, move)
    assert "step 10" in caught.value.message
    assert not path.exists()
    assert checkpoint_steps(moved) == [10]
    run(dataset, moved, FLAGS)
    assert_same_end(moved, whole)
    assert [without_times(line) for line in lines(moved)] == [without_times(line) for line in lines(whole)]


def test_a_caller_that_leaves_waits_for_the_thread(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, gate = tmp_path / "run", gated(monkeypatch, saving, "save_checkpoint")
    plain = Saving.close

    def close(self: Saving) -> None:
        assert checkpoint_steps(path) == []
        gate.set()
        plain(self)

    monkeypatch.setattr(Saving, "close", close)
    events = carry_out(plan(dataset, path, FLAGS))
    while not (isinstance(event := next(events), StepMetrics) and event.step == 12):
        pass
    events.close()  # type: ignore[attr-defined]
    assert checkpoint_steps(path) == [10]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("saving")]


def test_a_loss_that_is_not_finite_waits_for_the_thread(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hint names the checkpoint that was being written."""
    opened_by_waiting(monkeypatch, gated(monkeypatch, saving, "save_checkpoint"))
    poison_step(monkeypatch, 13, in_the_loss(float("nan")))
    with pytest.raises(NonFiniteError) as caught:
        run(dataset, tmp_path / "run", FLAGS)
    assert "step 10" in caught.value.hint
    assert checkpoint_steps(tmp_path / "run") == [10]


def test_a_stop_waits_for_the_thread(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both the checkpoint that was being written and that of the last step are complete."""
    opened_by_waiting(monkeypatch, gated(monkeypatch, saving, "save_checkpoint"))
    end = run(dataset, tmp_path / "run", FLAGS, stop_after=12)[-1]
    assert isinstance(end, RunFinished)
    assert checkpoint_steps(tmp_path / "run") == [10, 12]


@pytest.mark.parametrize("free", [0, 1 << 40])
def test_without_memory_for_a_copy_it_is_written_at_once(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int
) -> None:
    monkeypatch.setattr(saving, "free_memory", lambda device: free)
    opened_by_waiting(monkeypatch, gated(monkeypatch, saving, "save_checkpoint"))
    events = run(dataset, tmp_path / "run", FLAGS | {"train.eval_every": 20})
    assert (place(events, CheckpointSaved, 10) < place(events, StepMetrics, 11)) == (free == 0)
