"""Names of models: a path, the bare name of a run, the newest run."""

from __future__ import annotations

from pathlib import Path

import pytest

from gptcli.checkpoints.finding import find_model
from gptcli.checkpoints.model_folder import read_model_config
from gptcli.checkpoints.run_folder import create_run
from gptcli.dataset.folder import Dataset
from gptcli.errors import ModelFolderError, UsageError
from tests.runs.small_runs import plan


@pytest.fixture
def novel(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run runs/novel, without weights, in the working folder."""
    monkeypatch.chdir(tmp_path)
    return create_run(Path("runs/novel"), plan(dataset, Path("runs/novel")).config, dataset).path


def test_a_bare_name_is_a_run_unless_something_here_has_that_name(novel: Path) -> None:
    assert find_model("novel") == novel
    assert find_model(Path("novel")) == novel
    assert find_model("runs/novel") == novel
    for other in ("./x/novel", "poem", "."):
        assert find_model(other) == Path(other)
    Path("novel").mkdir()
    assert find_model("novel") == Path("novel")


def test_addresses_are_no_paths() -> None:
    for address in ("https://example.com/model", "hf://owner"):
        with pytest.raises(UsageError, match=address):
            find_model(address)


def test_the_newest_run(novel: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert find_model(None) == novel
    monkeypatch.chdir(novel)
    with pytest.raises(ModelFolderError, match="no run under runs/") as refusal:
        find_model(None)
    assert "gptcli train" in refusal.value.hint


def test_an_unknown_name_lists_the_runs(novel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelFolderError, match="There is no 'noval'") as refusal:
        read_model_config(find_model("noval"))
    assert "novel" in refusal.value.hint
    assert "Train" not in refusal.value.hint
    monkeypatch.chdir(novel)
    with pytest.raises(ModelFolderError) as refusal:
        read_model_config(find_model("noval"))
    assert "gptcli train" in refusal.value.hint
