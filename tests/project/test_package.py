"""What holds for every file of the package."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.conftest import ROOT

PATHS = sorted((ROOT / "gptcli").rglob("*.py"))


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", PATHS, ids=_name)
def test_every_module_has_a_docstring(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


# --- nothing reads a file as code -------------------------------------------------------------------------------------

CODE_FROM_FILES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
"""Formats that can run code when they are read."""


def code_runners(source: str) -> list[str]:
    """Every place of a source where data could become code: pickles and their kin, torch's files, eval and exec."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Attribute | ast.Name):
            names = [ast.unparse(node)]
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            names = [] if isinstance(node.value, ast.Constant) and node.value.value is False else ["allow_pickle"]
        found += [f"line {getattr(node, 'lineno', '?')}: {name}" for name in names if _runs_code(name)]
    return found


def _runs_code(name: str) -> bool:
    return name.split(".")[0] in CODE_FROM_FILES or name in {
        *("eval", "exec", "builtins.eval", "builtins.exec"),
        *("torch.load", "torch.save", "torch.serialization.load", "allow_pickle"),
    }


@pytest.mark.parametrize("path", PATHS, ids=_name)
def test_no_file_is_read_as_code(path: Path) -> None:
    assert code_runners(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "def f():\n    from pickle import loads",
        "import joblib.numpy_pickle",
        "import torch\nweights = torch.load('model.pt', weights_only=True)",
        "from torch import load",
        "read = torch.load",
        "eval('1 + 1')",
        "exec(open('config.py').read())",
        "numpy.load('tokens.npy', allow_pickle=True)",
    ],
)
def test_control_code_is_caught(source: str) -> None:
    assert code_runners(source)


def test_control_harmless_namesakes_pass() -> None:
    assert not code_runners("model.eval()\ntorch.compile(model)\njson.load(file)\nnumpy.load(path, allow_pickle=False)")


# --- git has every file of the package --------------------------------------------------------------------------------


def ignored(checkout: Path, paths: Iterable[Path]) -> list[str]:
    """Those of the paths that a .gitignore matches, tracked or not."""
    names = "\0".join(str(path.relative_to(checkout)) for path in paths)
    command = ["git", "-c", "core.excludesFile=/dev/null", "check-ignore", "--no-index", "--stdin", "-z"]
    done = subprocess.run(command, cwd=checkout, input=names, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.split("\0")[:-1]


def test_no_file_of_the_package_is_ignored_by_git() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout")
    files = [path for path in (ROOT / "gptcli").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert ignored(ROOT, files) == []


def test_control_an_ignored_file_is_caught(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / ".gitignore").write_text("data/\n", encoding="utf-8")  # not anchored to the root
    swallowed = tmp_path / "gptcli" / "data" / "corpus.py"
    swallowed.parent.mkdir(parents=True)
    swallowed.touch()
    assert ignored(tmp_path, [swallowed, tmp_path / "gptcli" / "config.py"]) == ["gptcli/data/corpus.py"]
