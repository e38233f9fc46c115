"""Several processes that prepare the same dataset at once: one makes it, and all can use it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gptcli.dataset import preparation
from gptcli.dataset.folder import open_dataset
from gptcli.dataset.preparing import tokenize
from gptcli.errors import DatasetError, StorageError
from tests.conftest import ROOT

TEXT = "the cat sat on the mat, and the dog saw it. " * 20
ROUNDS = 40
WORKER = """
import sys
from pathlib import Path
from gptcli.dataset.preparing import tokenize
for number in range(int(sys.argv[1])):
    print("ready", flush=True)
    sys.stdin.readline()
    prepared = tokenize("book.txt", Path(f"out/{number}"), force=len(sys.argv) > 2)
    assert len(prepared.dataset.train.stream) == prepared.dataset.train.tokens
    print(prepared.reused, flush=True)
"""


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
    """Have `act` called after a dataset was written and before it is put in its place."""
    real = preparation.write_dataset

    def write(*arguments: Any, **options: Any) -> Any:
        manifest = real(*arguments, **options)
        act()
        return manifest

    monkeypatch.setattr(preparation, "write_dataset", write)


def test_the_second_uses_the_result_of_the_first(tmp_path: Path, book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenize(book, tmp_path / "first" / "out")
    out = tmp_path / "out"
    meanwhile(monkeypatch, lambda: shutil.copytree(tmp_path / "first" / "out", out))
    assert tokenize(book, out).reused
    assert sorted(path.name for path in tmp_path.iterdir()) == ["book.txt", "first", "out"]


@pytest.mark.parametrize("force", [False, True])
def test_a_dataset_of_other_text_came_meanwhile(
    tmp_path: Path, book: Path, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    (tmp_path / "other.txt").write_text(TEXT + "!", encoding="utf-8")
    other, out = tokenize(tmp_path / "other.txt", tmp_path / "other").dataset, tmp_path / "out"
    meanwhile(monkeypatch, lambda: shutil.copytree(other.path, out))
    if force:
        assert tokenize(book, out, force=True).dataset.fingerprint != other.fingerprint
        return
    with pytest.raises(DatasetError, match="other text or settings"):
        tokenize(book, out)
    assert open_dataset(out).fingerprint == other.fingerprint


@pytest.mark.parametrize("force", [False, True])
def test_another_folder_that_came_meanwhile_stays(
    tmp_path: Path, book: Path, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    out = tmp_path / "out"

    def act() -> None:
        out.mkdir()
        (out / "precious.txt").write_text("mine")

    meanwhile(monkeypatch, act)
    with pytest.raises(StorageError, match="already there"):
        tokenize(book, out, force=force)
    assert (out / "precious.txt").read_text() == "mine"


@pytest.mark.parametrize("force", [[], ["force"]])
def test_pairs(tmp_path: Path, book: Path, force: list[str]) -> None:
    pair = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(ROUNDS), *force],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        for _ in range(2)
    ]
    reused = []
    for _ in range(ROUNDS):
        for process in pair:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", process.communicate()[1]
        for process in pair:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        reused.append([process.stdout.readline() for process in pair if process.stdout])
    assert [process.communicate()[1] for process in pair] == ["", ""]
    for both in reused:
        assert "False\n" in both
        assert not force or "True\n" not in both
    assert {path.name for path in (tmp_path / "out").iterdir()} == {str(number) for number in range(ROUNDS)}
