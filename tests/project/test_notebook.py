"""The quickstart notebook runs from its first cell to its last."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from tests.conftest import ROOT


def run_notebook(notebook: nbformat.NotebookNode, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a notebook in `folder`; everything that its cells printed."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    monkeypatch.setenv("IPYTHONDIR", str(folder / ".ipython"))
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs) or len(notebook.cells) < 3
    return "".join(output.get("text", "") for output in outputs)


def test_the_quickstart_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = run_notebook(nbformat.read(ROOT / "examples/quickstart.ipynb", as_version=4), tmp_path, monkeypatch)
    assert "bits per byte" in printed
    assert (tmp_path / "runs/reference/model.safetensors").is_file()


def test_control_a_failing_cell_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("import gptcli; gptcli.load('nowhere')")])
    with pytest.raises(CellExecutionError):
        run_notebook(notebook, tmp_path, monkeypatch)
