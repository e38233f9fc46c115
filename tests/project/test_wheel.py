"""The wheel holds the whole package, and works where the sources are not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from gptcli import __version__
from tests.conftest import ROOT

SOURCES = ("gptcli", "pyproject.toml", "README.md", "LICENSE")


def _run(*command: str | Path, cwd: Path, **variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the sources, since a build leaves files beside them."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "sources"
    copy.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy)
    _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, cwd=copy)
    (path,) = folder.glob("*.whl")
    return path


def test_holds_every_module_and_the_license(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    expected = {str(path.relative_to(ROOT)) for path in (ROOT / "gptcli").rglob("*.py")}
    assert expected == {name for name in names if name.endswith(".py")}
    parts = {str(path.relative_to(ROOT)) for kind in ("css", "js") for path in (ROOT / "gptcli").rglob(f"*.{kind}")}
    assert len(parts) == 2
    assert parts <= names, "pages need them"
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_runs_where_it_is_installed(wheel: Path, tmp_path: Path) -> None:
    place = tmp_path / "installed"
    install = ("-m", "pip", "install", "--no-deps", "--no-index", "--quiet", "--target", place, wheel)
    _run(sys.executable, *install, cwd=tmp_path)
    found = _run(sys.executable, "-c", "import gptcli; print(gptcli.__file__)", cwd=tmp_path, PYTHONPATH=str(place))
    assert Path(found.strip()) == place / "gptcli" / "__init__.py"  # not the sources
    for command in ([place / "bin" / "gptcli"], [sys.executable, "-m", "gptcli"]):
        assert _run(*command, "--version", cwd=tmp_path, PYTHONPATH=str(place)) == f"gptcli {__version__}\n"
