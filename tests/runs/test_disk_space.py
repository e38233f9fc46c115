"""The disk space of a training: estimated, shown, and refused before anything is written where it is missing."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gptcli.dataset.folder import Dataset
from gptcli.errors import StorageError, size
from gptcli.runs.decision import decide
from gptcli.runs.plan import plan_for
from tests.optimizers import EACH_OPTIMIZER
from tests.runs.small_runs import CPU, carry_out, plan, request, run

LARGER: dict[str, Any] = {"model.n_embd": 128, "model.n_layer": 2, "train.max_steps": 2, "train.save_every": 2}
KINDS: dict[str, dict[str, Any]] = {
    **EACH_OPTIMIZER,
    "muon with experts": {"optim.optimizer": "muon", "model.n_expert": 4, "optim.skip_spikes": 6.0},
    "untied": {"model.tied": False},
    "modern": {
        "optim.optimizer": "muon",
        "model.position": "rope",
        "model.norm": "rmsnorm",
        "model.mlp": "swiglu",
        "model.n_kv_head": 1,
        "model.bias": False,
    },
}


def folder_size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("kind", KINDS)
def test_the_estimate_is_the_size_of_a_checkpoint_and_the_best_weights(
    dataset: Dataset, tmp_path: Path, kind: str
) -> None:
    flags = LARGER | KINDS[kind]
    made = plan(dataset, tmp_path / "run", flags)
    carry_out(made)
    (checkpoint,) = (tmp_path / "run/checkpoints").iterdir()
    real = folder_size(checkpoint) + (tmp_path / "run/model.safetensors").stat().st_size
    assert made.disk == pytest.approx(real, rel=0.05)
    assert any(size(made.disk) in note and note.startswith("Disk") for note in made.notes)


def free(monkeypatch: pytest.MonkeyPatch, size: int) -> list[Path]:
    """Let the disk have `size` free bytes; the folders that are asked about."""
    asked: list[Path] = []

    def disk_usage(path: Path) -> SimpleNamespace:
        asked.append(path)
        return SimpleNamespace(free=size)

    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
    return asked


def test_too_little_space_is_refused(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "deep/er/run"
    asked = request(LARGER, out=path)
    needed = plan_for(asked, decide(asked), dataset, CPU).disk
    before = sorted(tmp_path.rglob("*"))
    folders = free(monkeypatch, needed - 1)
    made = plan_for(asked, decide(asked), dataset, CPU)
    assert folders == [tmp_path], "the disk of the nearest folder that exists"
    assert isinstance(made.refusal, StorageError), "a dry run shows the plan first"
    assert size(needed) in made.refusal.message
    assert "`out`" in made.refusal.hint
    with pytest.raises(StorageError) as caught:
        carry_out(made)
    assert caught.value is made.refusal
    assert sorted(tmp_path.rglob("*")) == before
    free(monkeypatch, needed)
    assert run(dataset, path, LARGER)


def test_a_run_that_resumes_needs_the_space_too(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(dataset, tmp_path / "run", stop_after=5)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    free(monkeypatch, 1000)
    with pytest.raises(StorageError, match="free"):
        run(dataset, tmp_path / "run")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_finished_run_needs_none(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(dataset, tmp_path / "run")
    free(monkeypatch, 0)
    asked = request(out=tmp_path / "run")
    (end,) = carry_out(plan_for(asked, decide(asked), dataset, CPU))
    assert end.step == 20  # type: ignore[union-attr]
