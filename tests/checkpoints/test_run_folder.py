"""The run folder: it appears complete, opens again, and never changes by halves."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gptcli.checkpoints import run_folder
from gptcli.checkpoints.checkpoint import Progress
from gptcli.checkpoints.model_folder import verify_run_files
from gptcli.checkpoints.run_folder import (
    StoredRun,
    create_run,
    is_run,
    newest_run,
    next_free,
    open_run,
    read_run,
    replace_weights,
    update_config,
    write_card,
)
from gptcli.checkpoints.tensors import read_metadata
from gptcli.config import RunConfig
from gptcli.dataset.folder import Dataset
from gptcli.errors import ModelFolderError, StorageError
from gptcli.generation.loaded_model import open_model
from gptcli.interop.huggingface import tensors_to_hf
from gptcli.model.gpt import GPT
from gptcli.report.model import Basis
from gptcli.report.run import describe_run
from gptcli.storage import FileEntry, FolderLock, mismatch
from tests.runs.small_runs import plan, run


@pytest.fixture
def config(dataset: Dataset, tmp_path: Path) -> RunConfig:
    return plan(dataset, tmp_path / "run").config


def weights(config: RunConfig) -> dict[str, torch.Tensor]:
    return tensors_to_hf(GPT(config.model).state_dict(), config.model)


def test_a_new_run(dataset: Dataset, config: RunConfig, tmp_path: Path) -> None:
    made = create_run(tmp_path / "run", config, dataset)
    assert is_run(tmp_path / "run")
    opened = open_run(tmp_path / "run")
    assert replace(opened, tokenizer_json=b"") == made
    assert opened.tokenizer_json == (tmp_path / "run/tokenizer.json").read_bytes()
    assert replace(read_run(tmp_path / "run"), files=made.files) == made
    assert (made.data_name, made.data_fingerprint) == (dataset.name, dataset.fingerprint)
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"),
        *("gptcli.toml", "README.md", "manifest.json", "checkpoints"),
    }


def test_a_file_in_the_way(dataset: Dataset, config: RunConfig, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("mine")
    with pytest.raises(StorageError, match="is a file"):
        create_run(tmp_path / "run", config, dataset)
    assert (tmp_path / "run").read_text() == "mine"


def test_best_weights_are_replaced_and_name_their_step_and_loss(
    dataset: Dataset, config: RunConfig, tmp_path: Path
) -> None:
    made = create_run(tmp_path / "run", config, dataset)
    for step, loss in ((5, 3.1), (10, 0.1 + 0.2)):
        tensors = weights(config)
        replace_weights(made, tensors, step=step, val_loss=loss)
        opened = open_model(tmp_path / "run")
        assert (opened.step, opened.val_loss) == (step, loss)
        assert torch.equal(opened.model.wte.weight, tensors["transformer.wte.weight"])
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    assert "model.safetensors" in manifest["files"]
    entries = {name: FileEntry(**entry) for name, entry in manifest["files"].items()}
    assert mismatch(tmp_path / "run", entries) == ""
    content = bytearray((tmp_path / "run/model.safetensors").read_bytes())
    content[-5] ^= 4
    (tmp_path / "run/model.safetensors").write_bytes(content)
    with pytest.raises(ModelFolderError, match="altered"):
        open_model(tmp_path / "run")


def check_killed_while_the_config_changes(
    dataset: Dataset, config: RunConfig, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any number of the writes of a change, the run opens and has the old config or the new."""
    create_run(path, config, dataset)
    longer = config.model_copy(update={"train": config.train.model_copy(update={"max_steps": 99})})
    plain = run_folder.write_file
    for allowed in range(4):
        update_config(open_run(path), config)
        left = iter(range(allowed))

        def write_or_die(file: Path, content: bytes, left: object = left) -> None:
            if next(left, None) is None:  # type: ignore[call-overload]
                raise KeyboardInterrupt
            plain(file, content)

        with monkeypatch.context() as patch:
            patch.setattr(run_folder, "write_file", write_or_die)
            try:
                update_config(open_run(path), longer)
                assert allowed == 3
            except KeyboardInterrupt:
                assert allowed < 3
        verify_run_files(path)
        assert open_run(path).config in (config, longer)
    assert read_run(path).config == longer


def test_killed_while_the_config_changes(
    dataset: Dataset, config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_killed_while_the_config_changes(dataset, config, tmp_path / "run", monkeypatch)


def test_control_a_manifest_that_speaks_too_soon(
    dataset: Dataset, config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest still names the old config when the new one is written."""
    plain, before = run_folder._manifest, dict[str, FileEntry]()

    def manifest(run: StoredRun) -> bytes:
        before.update({name: entry for name, entry in run.files.items() if name not in before})
        return plain(replace(run, files=before))

    monkeypatch.setattr(run_folder, "_manifest", manifest)
    with pytest.raises(ModelFolderError):
        check_killed_while_the_config_changes(dataset, config, tmp_path / "run", monkeypatch)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer.json"])
def test_an_altered_file_is_named(dataset: Dataset, tmp_path: Path, name: str) -> None:
    run(dataset, tmp_path / "run", {"train.max_steps": 2})
    path = tmp_path / "run" / name
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(ModelFolderError, match=re.escape(name)):
        open_model(tmp_path / "run")


def test_a_config_that_is_stored_already_is_not_written(dataset: Dataset, config: RunConfig, tmp_path: Path) -> None:
    create_run(tmp_path / "run", config, dataset)
    before = {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in (tmp_path / "run").iterdir()}
    assert update_config(open_run(tmp_path / "run"), config).config == config
    assert {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in (tmp_path / "run").iterdir()} == before


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "gptcli.toml", "README.md"])
def test_opening_verifies_the_small_files(dataset: Dataset, config: RunConfig, tmp_path: Path, name: str) -> None:
    """The model card is no part of the manifest: people edit it."""
    create_run(tmp_path / "run", config, dataset)
    path = tmp_path / "run" / name
    path.write_bytes(path.read_bytes() + b"\n")
    if name == "README.md":
        open_run(tmp_path / "run")
        return
    with pytest.raises(ModelFolderError, match=re.escape(name)):
        open_run(tmp_path / "run")
    path.unlink()
    with pytest.raises(ModelFolderError, match=re.escape(name)):
        open_run(tmp_path / "run")


@pytest.mark.parametrize("files", [None, 3, {"config.json": 3}, {"../x": {"bytes": 1, "sha256": ""}}])
def test_a_manifest_without_a_proper_list_of_files(
    dataset: Dataset, config: RunConfig, tmp_path: Path, files: object
) -> None:
    create_run(tmp_path / "run", config, dataset)
    path = tmp_path / "run/manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"files": files}))
    with pytest.raises(ModelFolderError, match=r"manifest\.json"):
        open_run(tmp_path / "run")


def test_a_damaged_config_is_told(dataset: Dataset, config: RunConfig, tmp_path: Path) -> None:
    create_run(tmp_path / "run", config, dataset)
    whole = (tmp_path / "run/gptcli.toml").read_text()
    (tmp_path / "run/gptcli.toml").write_text("preset = ")
    with pytest.raises(ModelFolderError, match=r"gptcli\.toml' is damaged"):
        read_run(tmp_path / "run")
    (tmp_path / "run/gptcli.toml").write_text(whole)
    (tmp_path / "run/manifest.json").write_text('{"format": 1}')
    with pytest.raises(ModelFolderError, match=r"manifest\.json"):
        read_run(tmp_path / "run")
    (tmp_path / "run/manifest.json").write_text('{"format": 2}')
    with pytest.raises(ModelFolderError, match="format 2"):
        read_run(tmp_path / "run")


def test_a_second_writer_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    run(dataset, tmp_path / "run", stop_after=2)
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with FolderLock(tmp_path / "run"), pytest.raises(StorageError, match="Another process is writing"):
        run(dataset, tmp_path / "run")
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_the_newest_run(dataset: Dataset, config: RunConfig, tmp_path: Path) -> None:
    assert newest_run(tmp_path / "runs") is None
    for age, name in enumerate(["b", "a", ".c-123.partial"]):
        create_run(tmp_path / "runs" / name, config, dataset)
        os.utime(tmp_path / "runs" / name / "gptcli.toml", (1000 + age, 1000 + age))
    (tmp_path / "runs/notes").mkdir()
    assert newest_run(tmp_path / "runs") == tmp_path / "runs/a", "a half-written run does not count"
    made = read_run(tmp_path / "runs/b")
    replace_weights(made, weights(config), step=1, val_loss=1.0)
    assert newest_run(tmp_path / "runs") == tmp_path / "runs/b"


def test_a_run_from_inside(
    dataset: Dataset, config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "book").mkdir()
    monkeypatch.chdir(tmp_path / "book")
    with pytest.raises(StorageError, match=re.escape("'.'")):
        create_run(Path(), config, dataset)
    made = create_run(tmp_path / "run", config, dataset)
    card = (made.path / "README.md").read_text()
    monkeypatch.chdir(made.path)
    write_card(read_run(Path()), dataset, Progress())
    assert Path("README.md").read_text() == card
    assert describe_run(Path(), Basis()).summary.name == "run"
    assert next_free(Path()) == tmp_path / "run-2"


def test_the_next_free_name(tmp_path: Path) -> None:
    assert next_free(tmp_path / "run") == tmp_path / "run-2"
    (tmp_path / "run-2").mkdir()
    (tmp_path / "run-3").write_text("")
    assert next_free(tmp_path / "run") == tmp_path / "run-4"


def test_the_card_tells_the_result(dataset: Dataset, tmp_path: Path) -> None:
    run(dataset, tmp_path / "run", {"train.max_steps": 4, "train.eval_every": 2})
    card = (tmp_path / "run/README.md").read_text()
    opened = open_model(tmp_path / "run")
    assert opened.val_loss is not None
    assert f"| validation loss | {opened.val_loss:.4f} nats per token" in card
    assert "| steps | 4 of 4 |" in card


def test_better_weights_of_a_lost_step_stay(dataset: Dataset, config: RunConfig, tmp_path: Path) -> None:
    """A kill after an evaluation leaves weights that are newer than the last checkpoint."""
    made = create_run(tmp_path / "run", config, dataset)
    replace_weights(made, {"a": torch.ones(1)}, step=240, val_loss=1.5)
    replace_weights(made, {"a": torch.zeros(1)}, step=230, val_loss=1.6)
    assert read_metadata(tmp_path / "run/model.safetensors")["step"] == "240"
    replace_weights(made, {"a": torch.zeros(1)}, step=240, val_loss=1.6)  # the same step, trained again
    replace_weights(made, {"a": torch.zeros(1)}, step=250, val_loss=1.55)
    assert read_metadata(tmp_path / "run/model.safetensors")["step"] == "250"
