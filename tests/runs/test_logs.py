"""metrics.jsonl and TensorBoard: their content, and that no step is logged twice."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import count, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer
from tensorboard.util.tensor_util import make_ndarray

from gptcli.dataset.folder import Dataset, open_dataset
from gptcli.generation.loaded_model import open_model
from gptcli.generation.norms import layer_norms
from gptcli.report.history import read_history
from gptcli.runs import logs, session, tensorboard
from gptcli.runs.events import Resumed, StepMetrics
from gptcli.runs.logs import MetricsLog
from gptcli.training.update import Update
from gptcli.untrusted import strict_json
from tests.runs.small_runs import assert_same_end, lines, run, series, small_dataset

SCALARS = {"train/loss", "train/lr", "train/grad_norm", "train/skipped", "val/loss", "val/ppl", "val/bpb"}
SAMPLES = {"train.sample_every": 4}


@pytest.fixture(autouse=True)
def seconds_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorBoard reads its files in the order of their names, which begin with the second of creation.

    Sessions of a test, unlike those of a person, may start in the same second.
    """
    monkeypatch.setattr(event_file_writer, "time", SimpleNamespace(time=count(1_700_000_000).__next__))


def shown(path: Path) -> EventAccumulator:
    """The content that TensorBoard shows of a run; all figures and texts are tensors there."""
    accumulator = EventAccumulator(str(path), size_guidance={"tensors": 0})
    accumulator.Reload()
    return accumulator


def points(path: Path, name: str) -> dict[int, Any]:
    """Values of one figure or text by step; fails where a step has two."""
    found: dict[int, Any] = {}
    for event in shown(path).Tensors(name):
        assert event.step not in found, f"{name} was logged twice at step {event.step}"
        found[event.step] = make_ndarray(event.tensor_proto).item()
    assert list(found) == sorted(found)
    return found


def test_both_logs_agree(dataset: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "run"
    events = run(dataset, path, SAMPLES)
    assert set(shown(path).Tags()["tensors"]) >= SCALARS | {"perf/tok_per_sec"}
    for name in SCALARS:
        assert points(path, name) == pytest.approx(series(path, name))
    losses = [event.loss for event in events if isinstance(event, StepMetrics)]
    assert losses == list(series(path, "train/loss").values()), "read back exactly"
    assert points(path, "sample/text_summary").keys() == series(path, "sample").keys() == {4, 8, 12, 16, 20}
    layout = shown(path).Tensors("custom_scalars__config__")[0].tensor_proto.string_val[0]
    assert all(name in layout for name in (b"train/loss", b"val/loss"))
    assert b"n_embd = 16" in points(path, "config/text_summary")[1]
    assert points(path, "hparam/best_val_loss") == {20: pytest.approx(min(series(path, "val/loss").values()))}


def test_a_run_that_resumes_names_its_earlier_losses(dataset: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "run"
    flags = {"train.eval_every": 4}
    assert not any(isinstance(event, Resumed) for event in run(dataset, path, flags, stop_after=10))
    train, val = series(path, "train/loss"), series(path, "val/loss")
    content = (path / "metrics.jsonl").read_text().splitlines()
    (path / "metrics.jsonl").write_text("\n".join([content[0], "{" + content[1][5:], *content[2:]]) + "\n")
    [resumed] = [event for event in run(dataset, path, flags) if isinstance(event, Resumed)]
    assert dict(resumed.losses) == {step: loss for step, loss in train.items() if step != 2}
    assert dict(resumed.val_losses) == val
    assert resumed.step == 10


def test_of_a_long_log_a_few_lines_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are spread evenly; the evaluations, which are few, are all there."""
    rows: list[dict[str, float]] = []
    for step in range(1, 50_001):
        rows.append({"step": step, "train/loss": 2.5})
        if step % 5000 == 0:
            rows.append({"step": step, "val/loss": 3.5})
    log, parsed = "".join(f"{json.dumps(row)}\n" for row in rows).encode(), []
    monkeypatch.setattr(logs, "strict_json", lambda line: parsed.append(line) or strict_json(line))
    steps = [step for step, _ in logs.spread_losses(log, "train/loss", 50_000)]
    assert 1000 < len(steps) == len(parsed) <= logs.MOST_LOSSES
    assert max(after - before for before, after in pairwise([0, *steps, 50_000])) < 100
    assert logs.spread_losses(log, "val/loss", 50_000) == [(step, 3.5) for step in range(5000, 50_001, 5000)]


DAMAGED_LOGS = [
    *(b"", b'"train/loss"', b'"train/loss"' * 9999, b'["train/loss"]\n', b'\n{"train/loss": 1}\n'),
    *(b'{"step": 2, "train/loss": 1e9}\n', b'{"step": 9, "train/loss": 1}\n', b'{"step": -1, "train/loss": 1}\n'),
    *(b'{"step": 1, "train/loss": "x"}\n', b'{"step": 1, "train/loss": null}\n'),
    b'{"step": 1, "train/loss": 1' + 400 * b"0" + b"}\n",
]


def test_a_damaged_log_has_no_losses() -> None:
    for log in DAMAGED_LOGS:
        assert logs.spread_losses(log, "train/loss", 8) == [], log[:80]
    sound = b'{"step": 8, "train/loss": 2.0}\n'
    assert logs.spread_losses(DAMAGED_LOGS[-1] + sound, "train/loss", 8) == [(8, 2.0)]


def check_no_zigzag(dataset: Dataset, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before its first checkpoint; killed at step 9 and resumed from step 5; stopped, and resumed twice."""
    flags: dict[str, Any] = SAMPLES | {"train.save_every": 5, "train.eval_every": 3}
    with monkeypatch.context() as patch:
        plain = session.Trainer.step

        def die_at(step: int) -> None:
            def step_or_die(self: session.Trainer, should_stop: Callable[[], bool]) -> Update | None:
                if self.completed_steps == step:
                    raise KeyboardInterrupt
                return plain(self, should_stop)

            patch.setattr(session.Trainer, "step", step_or_die)

        for step in (4, 9, 8):
            die_at(step)
            with pytest.raises(KeyboardInterrupt):
                run(dataset, path, flags)
    run(dataset, path, flags, stop_after=6)
    run(dataset, path, flags, stop_after=0)
    run(dataset, path, flags)
    run(dataset, path, flags)
    run(dataset, path, flags | {"train.max_steps": 24})
    assert [line["step"] for line in lines(path)] == sorted(line["step"] for line in lines(path))
    for name in SCALARS:
        assert points(path, name) == pytest.approx(series(path, name))
    assert points(path, "sample/text_summary").keys() == series(path, "sample").keys()
    assert points(path, "config/text_summary")
    assert list(points(path, "hparam/best_val_loss")) == [11, 20, 24]


def test_no_step_is_logged_twice(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_no_zigzag(dataset, tmp_path / "run", monkeypatch)


def test_control_metrics_that_are_not_cut(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "MetricsLog", lambda run, keep_bytes: MetricsLog(run, 10**9))
    with pytest.raises(AssertionError):
        check_no_zigzag(dataset, tmp_path / "run", monkeypatch)


def test_control_curves_that_are_not_purged(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = tensorboard.SummaryWriter
    monkeypatch.setattr(tensorboard, "SummaryWriter", lambda folder, purge_step: plain(folder))
    with pytest.raises(AssertionError):
        check_no_zigzag(dataset, tmp_path / "run", monkeypatch)


def test_metrics_that_lost_their_end(dataset: Dataset, tmp_path: Path) -> None:
    """The log is shorter than the checkpoint says and cut within a line: whole lines stay, nothing is filled in."""
    path = tmp_path / "run"
    run(dataset, path, stop_after=6)
    log = path / "metrics.jsonl"
    log.write_bytes(log.read_bytes()[:-10])
    run(dataset, path)
    assert list(series(path, "train/loss")) == [1, 2, 3, 4, 5, *range(7, 21)]
    log.unlink()
    run(dataset, path, {"train.max_steps": 21})
    assert list(series(path, "train/loss")) == [21]


def test_a_run_folder_holds_no_absolute_path(tmp_path: Path, corpus: str) -> None:
    """Nor does it need anything outside: moved elsewhere, it opens and resumes."""
    made = small_dataset(tmp_path / "here", corpus[:3000])
    path = tmp_path / "here/run"
    run(made, path, SAMPLES, stop_after=8)
    run(made, path, SAMPLES | {"train.save_every": 4})
    files = [file for file in path.rglob("*") if file.is_file()]
    assert len(files) > 10
    for file in files:
        assert str(tmp_path).encode() not in file.read_bytes(), file
        assert str(Path.home()).encode() + b"/" not in file.read_bytes(), file
    moved = tmp_path / "elsewhere/other-name"
    moved.parent.mkdir()
    shutil.move(path, moved)
    (tmp_path / "here/data").rename(tmp_path / "elsewhere/data")
    assert open_model(moved).step
    run(open_dataset(tmp_path / "elsewhere/data"), moved, {"train.max_steps": 22})
    assert max(series(moved, "train/loss")) == 22


def test_layers_are_logged_and_change_nothing(tmp_path: Path, corpus: str) -> None:
    dataset = small_dataset(tmp_path, corpus[:4000])
    shape = {"model.n_layer": 2, "train.log_every": 5, "train.max_steps": 10, "train.eval_every": 10}
    run(dataset, tmp_path / "plain", shape)
    run(dataset, tmp_path / "layers", shape | {"train.log_layers": True}, stop_after=5)
    run(dataset, tmp_path / "layers", shape | {"train.log_layers": True})
    assert_same_end(tmp_path / "plain", tmp_path / "layers")
    logged = [line for line in lines(tmp_path / "layers") if "train/loss" in line]
    names = {f"{kind}/{layer}" for kind in ("activations", "gradients") for layer in range(3)}
    assert [line["step"] for line in logged] == [1, 5, 10]
    assert all(names <= line.keys() and all(line[name] > 0 for name in names) for line in logged)
    assert not any(names & line.keys() for line in lines(tmp_path / "plain"))
    assert names <= set(shown(tmp_path / "layers").Tags()["tensors"])
    text = dataset.val.stream.windows(np.array([0]), 16)[0].tolist()
    last = layer_norms(open_model(tmp_path / "layers", "last").model, text)
    assert [logged[-1][f"gradients/{layer}"] for layer in range(3)] == pytest.approx(last.gradients, rel=1e-4)
    [*_, step] = read_history(tmp_path / "layers").steps
    assert step.activations == pytest.approx(last.activations, rel=1e-4)
    assert step.gradients == pytest.approx(last.gradients, rel=1e-4)


def test_layers_may_be_logged_from_a_resume_on(tmp_path: Path, corpus: str) -> None:
    dataset = small_dataset(tmp_path, corpus[:4000])
    run(dataset, tmp_path / "run", stop_after=10)
    run(dataset, tmp_path / "run", {"train.log_layers": True})
    history = read_history(tmp_path / "run")
    assert [bool(step.gradients) for step in history.steps] == [False] * 10 + [True] * 10
