"""Checkpoints: complete or absent, verified, and the newest sound one is found."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
import torch

from gptcli import storage
from gptcli.checkpoints import checkpoint as checkpoints
from gptcli.checkpoints import tensors
from gptcli.checkpoints.checkpoint import (
    Checkpoint,
    Progress,
    discard_checkpoints,
    load_checkpoint,
    newest_checkpoint,
    prune_checkpoints,
    read_progress,
    save_checkpoint,
)
from gptcli.checkpoints.model_folder import checkpoint_steps
from gptcli.checkpoints.names import checkpoint_name, checkpoint_step
from gptcli.errors import ModelFolderError, StorageError
from gptcli.training.state import TrainerState


def checkpoint(step: int) -> Checkpoint:
    progress = Progress(step, 64 * step, 1.5, 2.25, 2.125, step // 2, 1, 77)
    return Checkpoint(
        progress,
        TrainerState(
            step=step,
            model={"w": torch.full((2, 3), float(step)).t()},
            optimizer={"exp_avg.w": torch.randn(3, 2), "step": torch.tensor(float(step))},
            random={"cpu": torch.get_rng_state()},
            scaler={"scale": 2.0**16, "_growth_tracker": 3},
            threads=2,
        ),
    )


def save(run: Path, *steps: int) -> None:
    for step in steps:
        save_checkpoint(run, checkpoint(step))


def test_round_trip(tmp_path: Path) -> None:
    saved = checkpoint(20)
    folder = save_checkpoint(tmp_path, saved)
    assert folder == tmp_path / "checkpoints/step-00000020"
    loaded = load_checkpoint(folder)
    assert loaded.progress == saved.progress
    assert [(state.scaler, state.threads) for state in (loaded.state, saved.state)] == [
        ({"scale": 2.0**16, "_growth_tracker": 3}, 2)
    ] * 2
    for part in ("model", "optimizer", "random"):
        one, other = getattr(saved.state, part), getattr(loaded.state, part)
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert read_progress(tmp_path) == saved.progress


def test_names() -> None:
    assert checkpoint_name(2000) == "step-00002000"
    for step in (0, 5, 99_999_999, 123_456_789):
        assert checkpoint_step(checkpoint_name(step)) == step
    for other in ("step-5", "step-0000000x", "step-", "notes", ".step-00000005-77.partial", "step-٠٠٠٠٠٠٠٥"):
        assert checkpoint_step(other) is None


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def alter(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], None]] = {"truncated": truncate, "altered": alter, "missing": Path.unlink}
FILES = ["model.safetensors", "optimizer.safetensors", "state.json"]


def check_fallback(run: Path, damage: str, name: str) -> None:
    save(run, 10, 20)
    DAMAGES[damage](run / "checkpoints/step-00000020" / name)
    found, skipped = newest_checkpoint(run)
    assert found is not None
    assert found.progress.step == 10
    assert skipped.keys() == {20}
    assert "step 20" in skipped[20]
    assert name in skipped[20]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_skipped(tmp_path: Path, damage: str, name: str) -> None:
    check_fallback(tmp_path, damage, name)


def check_changed_counter(run: Path) -> None:
    """state.json is still valid, but not the one that was saved."""
    save(run, 10, 20)
    path = run / "checkpoints/step-00000020/state.json"
    content = path.read_text()
    path.write_text(content.replace('"metrics_bytes": 77', '"metrics_bytes": 78'))
    assert path.read_text() != content
    assert newest_checkpoint(run)[1].keys() == {20}


def test_a_changed_counter_is_noticed(tmp_path: Path) -> None:
    check_changed_counter(tmp_path)


def test_control_without_verification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = checkpoints.read_json
    monkeypatch.setattr(checkpoints, "read_json", lambda path, expected=None: plain(path))
    with pytest.raises(AssertionError):
        check_changed_counter(tmp_path)


@pytest.mark.parametrize(
    "manifest",
    ["", "{", "[]", "{}", '{"files": {}}', '{"files": 3}', '{"files": {"state.json": 3}}', '{"files": {"x": {}}}'],
)
def test_a_manifest_without_files(tmp_path: Path, manifest: str) -> None:
    save(tmp_path, 10, 20)
    (tmp_path / "checkpoints/step-00000020/manifest.json").write_text(manifest)
    found, skipped = newest_checkpoint(tmp_path)
    assert found is not None
    assert found.progress.step == 10
    assert skipped.keys() == {20}


def test_without_a_manifest_it_is_incomplete(tmp_path: Path) -> None:
    save(tmp_path, 10, 20)
    (tmp_path / "checkpoints/step-00000020/manifest.json").unlink()
    assert newest_checkpoint(tmp_path)[1]


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 10)

    def broken(*arguments: object, **options: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(tensors, "open", broken, raising=False)
    with pytest.raises(ModelFolderError, match=r"model\.safetensors.* input/output error"):
        load_checkpoint(tmp_path / "checkpoints/step-00000010")


def rewritten_state(folder: Path, **changes: object) -> None:
    """Another state.json, under a manifest that agrees with it."""
    state = json.loads((folder / "state.json").read_text()) | changes
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "manifest.json").unlink()
    entries = {"format": 1, "files": storage.fingerprints(folder)}
    (folder / "manifest.json").write_bytes(storage.to_json(entries))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"format": 2}, "format 2"),
        ({"progress": {"step": "x"}}, "state.json"),
        ({"progress": {"step": 11}}, "step 11"),
        ({"progress": {"step": 10, "evaluation_pending": "perhaps"}}, "state.json"),
        ({"threads": 0}, "state.json"),
    ],
)
def test_a_state_that_cannot_be_used(tmp_path: Path, changes: dict[str, object], match: str) -> None:
    folder = save_checkpoint(tmp_path, checkpoint(10))
    rewritten_state(folder, **changes)
    with pytest.raises(ModelFolderError, match=re.escape(match)):
        load_checkpoint(folder)


def test_killed_before_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 10)

    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, 20)
    assert checkpoint_steps(tmp_path) == [10]
    assert newest_checkpoint(tmp_path)[1] == {}


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    save(tmp_path, 10)
    before = {path: path.read_bytes() for path in (tmp_path / "checkpoints/step-00000010").iterdir()}
    with pytest.raises(StorageError, match="already there"):
        save(tmp_path, 10)
    assert {path: path.read_bytes() for path in before} == before


def test_damaged_checkpoints_make_room(tmp_path: Path) -> None:
    """They would count as the newest for retention, and block their name when training reaches their step again."""
    save(tmp_path, 10, 20, 30)
    truncate(tmp_path / "checkpoints/step-00000030/state.json")
    truncate(tmp_path / "checkpoints/step-00000010/state.json")
    discard_checkpoints(tmp_path, [30], newer_than=20)
    assert checkpoint_steps(tmp_path) == [10, 20]


def test_a_checkpoint_of_another_process_stays(tmp_path: Path) -> None:
    """Step 20 was not there when the run was read: another process has saved it since."""
    save(tmp_path, 10, 20, 30)
    truncate(tmp_path / "checkpoints/step-00000030/state.json")
    with pytest.raises(StorageError, match="Another process"):
        discard_checkpoints(tmp_path, [30], newer_than=10)
    assert checkpoint_steps(tmp_path) == [10, 20, 30]


@pytest.mark.parametrize("keep", [2, 3])
def test_pruning(tmp_path: Path, keep: int) -> None:
    prune_checkpoints(tmp_path, keep)
    save(tmp_path, 5, 10, 15, 20)
    (tmp_path / "checkpoints/notes").mkdir()
    prune_checkpoints(tmp_path, keep)
    assert checkpoint_steps(tmp_path) == [5, 10, 15, 20][-keep:]
    assert (tmp_path / "checkpoints/notes").is_dir()


def test_no_checkpoints(tmp_path: Path) -> None:
    assert newest_checkpoint(tmp_path) == (None, {})
    assert read_progress(tmp_path) is None


class Altered:
    """The content of a file whose last bit differs whenever it is iterated again."""

    def __init__(self, pieces: Iterable[bytes | memoryview]) -> None:
        self._pieces, self._times = pieces, 0

    def __iter__(self) -> Iterator[bytes]:
        *pieces, last = (bytes(piece) for piece in self._pieces)
        self._times += 1
        yield from pieces
        yield last[:-1] + bytes([last[-1] ^ self._times])


def test_a_checkpoint_is_read_back_after_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that alters data costs the new checkpoint, and none of the old ones."""
    save(tmp_path, 10)
    plain = checkpoints.tensor_file
    monkeypatch.setattr(checkpoints, "tensor_file", lambda *arguments: Altered(plain(*arguments)))
    with pytest.raises(StorageError, match="not stored"):
        save(tmp_path, 20)
    assert checkpoint_steps(tmp_path) == [10]
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000010"]


def test_the_manifest_describes_the_files(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path, checkpoint(10))
    listed = json.loads((folder / "manifest.json").read_text())["files"]
    content = {name: (folder / name).read_bytes() for name in FILES}
    assert listed == {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in content.items()
    }
    assert list(listed) == sorted(listed)


def test_pruning_leaves_a_linked_folder_alone(tmp_path: Path) -> None:
    save(tmp_path, 5, 10, 15)
    (tmp_path / "checkpoints").rename(tmp_path / "elsewhere")
    (tmp_path / "checkpoints").symlink_to(tmp_path / "elsewhere")
    prune_checkpoints(tmp_path, 2)
    assert checkpoint_steps(tmp_path) == [5, 10, 15]
