"""Imports point down: data flows one way through the rooms of the package.

The imports are read from the syntax tree, so that those inside functions and behind `TYPE_CHECKING` count too.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import ROOT

ROOMS = (
    *("cli", "ui", "api", "bench", "report", "runs", "exports", "generation", "checkpoints", "training", "interop"),
    *("dataset", "tokenizer", "storage", "paths", "untrusted", "machine", "model", "config", "errors", "signals"),
)
"""From top to bottom. A room imports from itself and from those below it."""

NARROWER: dict[str, set[str]] = {
    "model": {"config", "errors"},
    "storage": {"errors"},
    "paths": {"errors"},
    "untrusted": set(),
    "machine": set(),
    "config": {"errors"},
    "errors": set(),
}
"""Rooms that may import less than all below them."""

HOMES = {
    "typer": "cli",
    "rich": "ui",
    "tensorboard": "runs",
    "gguf": "interop",
    "lxml": "dataset",
    "pypdf": "dataset",
    "ijson": "dataset",
    "httpx2": "dataset",
    "ray": "dataset",
}
"""Libraries that live in one room."""

ONE_FILE = {"tensorboard"}
"""Of these, the ones that live in one file."""

NOWHERE = {"click", "transformers", "yaml"}
"""typer brings a click of its own, so that the one installed may be another or none; transformers is for the tests;
YAML reads `1e-3` as text."""


def modules() -> dict[str, str]:
    """Source of every module of the package, by dotted name."""
    paths = sorted((ROOT / "gptcli").rglob("*.py"))
    return {_dotted(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


def violations(sources: Mapping[str, str]) -> list[str]:
    """What the modules import against the rules, in words."""
    problems = []
    importers: dict[str, set[str]] = {}
    for module, source in sources.items():
        room = _room(module)
        if room not in {*ROOMS, "", "__main__"}:
            problems.append(f"{module} is in no room of the table")
            continue
        for imported in imports(module, source):
            if imported.split(".")[0] == "gptcli":
                problems += _house_problem(module, room, imported)
            else:
                library = "tensorboard" if "tensorboard" in imported.split(".") else imported.split(".")[0]
                importers.setdefault(library, set()).add(module)
                if library in NOWHERE or room != HOMES.get(library, room):
                    problems.append(f"{module} imports {library}")
    for library in ONE_FILE:
        if len(importers.get(library, ())) > 1:
            problems.append(f"{library} is imported in several files: {', '.join(sorted(importers[library]))}")
    return problems


def _house_problem(module: str, room: str, imported: str) -> list[str]:
    target = _room(imported)
    if target == room or target not in ROOMS:  # its own room, or a name of gptcli/__init__.py
        return []
    if room == "__main__":
        allowed = {"cli", "signals"}
    elif room == "":
        allowed = set(ROOMS[ROOMS.index("api") :])
    else:
        allowed = NARROWER.get(room, set(ROOMS[ROOMS.index(room) + 1 :]))
    return [] if target in allowed else [f"{module} imports {imported}"]


def imports(module: str, source: str) -> set[str]:
    """Dotted names of all that a module imports: `from a import b` gives a.b, since b may be a module."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            # Relative imports are not used in this house; they would hide where they point.
            assert not node.level, f"{module} has a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif module == "gptcli" and isinstance(node, ast.Call):
            continue  # it imports by a table that test_public_names.py compares with its import statements
        elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
            target = node.args[0] if node.args else None
            assert isinstance(target, ast.Constant), f"{module} imports what cannot be read from its source"
            found.add(str(target.value))
    return found


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _room(module: str) -> str:
    """ "gptcli.model.gpt" → "model"; "" for the package itself."""
    return module.removeprefix("gptcli").removeprefix(".").split(".")[0]


def _dotted(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def test_imports_point_down() -> None:
    assert violations(modules()) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("gptcli.training.loop", "from gptcli.ui.console import Output"),
        ("gptcli.training.loop", "def f():\n    import gptcli.cli.app"),
        ("gptcli.training.loop", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from gptcli import ui"),
        ("gptcli.training.loop", "import rich.progress"),
        ("gptcli.report.run", "from rich.table import Table"),
        ("gptcli.report.run", "from gptcli.ui import console"),
        ("gptcli.ui.table", "import typer"),
        ("gptcli.cli.train", "import click"),
        ("gptcli.model.gpt", "from gptcli.storage import write_file"),
        ("gptcli.tokenizer.char", "from gptcli.checkpoints import names"),
        ("gptcli.config", "import gptcli.model.gpt"),
        ("gptcli.errors", "from gptcli.config import RunConfig"),
        ("gptcli", "from gptcli.ui.console import Output"),
        ("gptcli.report.run", "from gptcli.api import train"),
        ("gptcli.cli.train", "from torch.utils.tensorboard import SummaryWriter"),
        ("gptcli.cli.train", "from torch.utils import tensorboard"),
        ("gptcli.generation.decode", "import importlib\nimportlib.import_module('gptcli.ui.console')"),
        ("gptcli.helpers", ""),
    ],
)
def test_control_a_violation_is_caught(module: str, source: str) -> None:
    assert violations({module: source})


def test_control_tensorboard_in_two_files() -> None:
    source = "import tensorboard"
    assert not violations({"gptcli.runs.one": source})
    assert violations({"gptcli.runs.one": source, "gptcli.runs.two": source})
