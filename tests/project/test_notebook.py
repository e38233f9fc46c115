"""The quickstart notebook runs from its first cell to its last."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from tests.conftest import ROOT


def run_notebook(notebook: nbformat.NotebookNode, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a notebook in `folder`; everything that its cells printed or showed as text, Markdown or HTML."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    monkeypatch.setenv("IPYTHONDIR", str(folder / ".ipython"))
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs) or len(notebook.cells) < 3
    shown = [[output.get("text", ""), *map(str, output.get("data", {}).values())] for output in outputs]
    return "".join(chain.from_iterable(shown))


def test_the_quickstart_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPTCLI", str(tmp_path / "nothing"))  # installing it would fail
    printed = run_notebook(nbformat.read(ROOT / "examples/quickstart.ipynb", as_version=4), tmp_path, monkeypatch)
    assert "| → | " in printed, "the models to choose from"
    assert "bits per byte" in printed
    assert (tmp_path / "runs/reference/model.safetensors").is_file()
    assert '<iframe srcdoc="&lt;!doctype html&gt;' in printed
    assert "Samples by surprise" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_control_the_first_cell_installs_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPTCLI", str(tmp_path / "nothing"))
    first = next(
        cell
        for cell in nbformat.read(ROOT / "examples/quickstart.ipynb", as_version=4).cells
        if cell.cell_type == "code"
    )
    first.source = first.source.replace('find_spec("gptcli")', 'find_spec("gptcli_that_is_missing")')
    with pytest.raises(CellExecutionError, match="'pip', 'install'"):
        run_notebook(nbformat.v4.new_notebook(cells=[first]), tmp_path, monkeypatch)


def test_control_a_failing_cell_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("import gptcli; gptcli.load('nowhere')")])
    with pytest.raises(CellExecutionError):
        run_notebook(notebook, tmp_path, monkeypatch)
