"""The examples of docs/python.md run, one after another, in one process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_page(page: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the Python blocks of a page as one program in `folder`."""
    program = folder / "page.py"
    program.write_text("\n".join(BLOCK.findall(page)), encoding="utf-8")
    command = [sys.executable, "-W", "error", str(program)]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HOME": str(folder)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False, timeout=300
    )


def test_the_examples_run(tmp_path: Path, corpus: str) -> None:
    (tmp_path / "book.txt").write_text(corpus[:30_000], encoding="utf-8")
    done = run_page((ROOT / "docs/python.md").read_text(encoding="utf-8"), tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "the library prints nothing"
    assert "runs/book 40 " in done.stdout
    assert "124,439,808 parameters" in done.stdout
    assert "`optim.lr` cannot be -1" in done.stdout


def test_control_a_failing_example_is_noticed(tmp_path: Path) -> None:
    assert run_page("```python\nimport gptcli\ngptcli.load('nowhere')\n```\n", tmp_path).returncode == 1
