"""Reading a model folder: which weights are read, and the errors where there are none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gptcli.checkpoints import names
from gptcli.checkpoints.model_folder import read_model, read_model_config, refuse_pickles, verify_run_files
from gptcli.checkpoints.run_folder import create_run, open_run
from gptcli.dataset.folder import Dataset
from gptcli.errors import ModelFolderError
from gptcli.report.inspection import inspect
from gptcli.report.run import RunReport
from tests.runs.small_runs import plan, run


def refused(folder: Path, checkpoint: str) -> tuple[str, str]:
    with pytest.raises(ModelFolderError) as refusal:
        read_model(folder, checkpoint)
    return refusal.value.message, refusal.value.hint


def test_a_run_before_its_first_evaluation(dataset: Dataset, tmp_path: Path) -> None:
    folder = create_run(tmp_path / "run", plan(dataset, tmp_path / "run").config, dataset).path
    for checkpoint in ("best", "last", "3"):
        message, hint = refused(folder, checkpoint)
        assert str(folder) in message
        assert "no weights" in message
        assert "Resume" in hint
    saved = tmp_path / "saved"
    run(dataset, saved, {"train.eval_every": 9, "train.save_every": 2}, stop_after=3)
    stored = read_model(saved)
    assert stored.step == 3
    assert "last checkpoint, of step 3" in stored.notes[0]
    assert read_model(saved, "last").notes == ()


def test_a_run_whose_best_weights_are_lost(dataset: Dataset, tmp_path: Path) -> None:
    run(dataset, tmp_path / "run", {"train.max_steps": 2})
    folder = tmp_path / "run"
    assert read_model(folder).notes == ()
    assert refused(folder, "7") == (f"'{folder}' has no checkpoint '7'.", "Choose one of: best, last, 2.")
    (folder / names.MODEL).unlink()
    message, hint = refused(folder, "best")
    assert str(folder / names.MODEL) in message
    assert "`checkpoint = last`" in hint
    assert refused(folder, "7")[1] == "Choose one of: last, 2."
    shutil.rmtree(folder / names.CHECKPOINTS)
    message, hint = refused(folder, "best")
    assert str(folder / names.MODEL) in message
    assert "Restore" in hint


def test_an_edited_config_stops_training_only(dataset: Dataset, tmp_path: Path) -> None:
    """Loading does not depend on gptcli.toml; training does, and the hint says how to change settings."""
    run(dataset, tmp_path / "run", {"train.max_steps": 2})
    path = tmp_path / "run" / names.RUN_CONFIG
    path.write_text(path.read_text(encoding="utf-8").replace("max_steps = 2", "max_steps = 3"), encoding="utf-8")
    assert read_model(tmp_path / "run").step == 2
    with pytest.raises(ModelFolderError, match=names.RUN_CONFIG) as refusal:
        open_run(tmp_path / "run")
    assert f"`config = {path}`" in refusal.value.hint
    (tmp_path / "run" / names.CONFIG).write_text("{ }", encoding="utf-8")
    with pytest.raises(ModelFolderError, match=names.CONFIG):
        verify_run_files(tmp_path / "run")


@pytest.mark.parametrize("name", ["corpus.bin", "old.pt", "small.safetensors"])
def test_a_folder_may_have_any_name(dataset: Dataset, tmp_path: Path, name: str) -> None:
    """The text corpus.bin.txt makes the run corpus.bin."""
    run(dataset, tmp_path / name, {"train.max_steps": 1})
    assert read_model(tmp_path / name).step == 1
    assert isinstance(inspect(tmp_path / name), RunReport)


def test_errors_say_what_is_there_instead_of_a_model(dataset: Dataset, tmp_path: Path) -> None:
    def told(folder: Path) -> tuple[str, str]:
        with pytest.raises(ModelFolderError) as refusal:
            read_model_config(folder)
        return refusal.value.message, refusal.value.hint

    hint = f"Train a model on it: gptcli train {dataset.path}"
    assert told(dataset.path) == (f"'{dataset.path}' is a dataset, not a model.", hint)
    create_run(tmp_path / "runs/one", plan(dataset, tmp_path / "run").config, dataset)
    runs = tmp_path / "runs"
    assert told(runs) == (f"'{runs}' is a folder of runs.", f"Name one of them, such as '{runs / 'one'}'.")
    (tmp_path / "texts").mkdir()
    assert "is not a model folder: it has no config.json" in told(tmp_path / "texts")[0]


def test_a_damaged_small_file_can_be_restored(tmp_path: Path) -> None:
    for content in (b"{", b"[]"):
        (tmp_path / "config.json").write_bytes(content)
        with pytest.raises(ModelFolderError) as refusal:
            read_model_config(tmp_path)
        assert refusal.value.hint == "Restore the file from a copy."


def test_a_missing_file_is_no_pickle(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match="There is no"):
        read_model_config(tmp_path / "nowhere.pt")


@pytest.mark.parametrize("start", [b"\x80\x02}q\x00.", b"PK\x03\x04 an archive of torch"])
def test_a_pickle_is_known_by_its_content(tmp_path: Path, start: bytes) -> None:
    file = tmp_path / "here.pt"
    file.write_bytes(start)
    for thing in (file, tmp_path):
        with pytest.raises(ModelFolderError, match="pickled"):
            refuse_pickles(thing)
    file.write_bytes(b"anything else")
    for thing in (file, tmp_path):
        refuse_pickles(thing)
