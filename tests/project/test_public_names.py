"""The public Python names, and what importing the package costs."""

from __future__ import annotations

import ast
import json
import subprocess
import sys

import pytest

import gptcli
from tests.conftest import ROOT

PUBLIC = {
    *("train", "plan", "preview", "load", "tokenize", "inspect", "review", "export", "benchmark"),
    *(
        "Run",
        "Plan",
        "Preview",
        "LoadedModel",
        "Piece",
        "Sample",
        "Scores",
        "Surprise",
        "TokenLogprob",
        "Prepared",
        "Report",
        "Review",
        "Exported",
        "SpeedReport",
    ),
}


def test_the_public_names() -> None:
    assert set(gptcli.__all__) == PUBLIC
    assert all(callable(getattr(gptcli, name)) or name == "Report" for name in PUBLIC)
    assert set(dir(gptcli)) >= PUBLIC | {"__version__"}


def test_the_homes_are_those_that_type_checkers_see() -> None:
    tree = ast.parse((ROOT / "gptcli/__init__.py").read_text(encoding="utf-8"))
    statements = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    seen = {node.module: tuple(name.name for name in node.names) for node in statements}
    assert {home: names for home, names in seen.items() if (home or "").startswith("gptcli.")} == gptcli._HOMES


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'sample'"):
        gptcli.sample  # noqa: B018


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import gptcli, json, sys; print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, encoding="utf-8", check=True)
    loaded = set(json.loads(done.stdout))
    assert "gptcli" in loaded
    assert not loaded & {"torch", "numpy", "pydantic", "rich", "typer", "tokenizers", "tensorboard"}


def test_tokenizing_needs_no_torch() -> None:
    """Its import takes longer than tokenizing a book, and a hundred times the memory."""
    code = "import gptcli, sys; gptcli.tokenize; print('tokenizers' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, encoding="utf-8", check=True)
    assert done.stdout.split() == ["True", "False"]


def test_functions_survive_the_import_of_their_rooms() -> None:
    """A package gptcli.export or gptcli.bench would replace a function of the same name."""
    code = (
        "import gptcli, importlib, pkgutil\n"
        "for module in pkgutil.iter_modules(gptcli.__path__): importlib.import_module(f'gptcli.{module.name}')\n"
        "for name in gptcli.__all__: assert getattr(gptcli, name).__class__.__name__ != 'module', name\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)
