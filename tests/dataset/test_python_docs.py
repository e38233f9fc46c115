"""The corpus python-docs: prose out of docstrings, the same each time, without running anything."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from gptcli.dataset import python_docs as module
from gptcli.dataset.python_docs import docstrings, prose, python_docs
from gptcli.errors import CorpusError


def silent(_stage: str, _done: int, _total: int) -> None:
    """No progress is shown."""


@pytest.mark.parametrize(
    ("documentation", "text"),
    [
        ("Use :func:`json.dumps` and :class:`~email.Message`.", "Use json.dumps and email.Message."),
        ("Use :ref:`the guide <guide>` or ``x or y`` or `this'.", "Use the guide or x or y or this."),
        ("An exception is *raised*, or **not**, with *args here.", "An exception is raised, or not, with *args here."),
        ("split(text, sep=None) -> list\n\nSplit a text at each separator.", "Split a text at each separator."),
        ("S.find(sub[, start]) -> int\nReturn the lowest index of all.", "Return the lowest index of all."),
        ("Add two numbers to get one.\n\n>>> add(1, 2)\n3\n\nThen the sum is returned.",
         "Add two numbers to get one.\n\nThen the sum is returned."),
        ("A Long Title Of It\n==================\n\nText below that title stands.",
         "A Long Title Of It\n\nText below that title stands."),
        ("Some statements look like this:\n\n    def f(x):\n        return x\n\nThat was a function there.",
         "Some statements look like this:\n\nThat was a function there."),
        ('The grammar of it is this:\n\n   assert_stmt ::= "assert" expression', "The grammar of it is this:"),
        ("    Indented lines\n    of a docstring stay.\n", "Indented lines\nof a docstring stay."),
        ("Too short", ""),
        ("", ""),
        ("+-----+-----+\n| a b | c d |\n+-----+-----+", ""),
    ],
)  # fmt: skip
def test_prose(documentation: str, text: str) -> None:
    assert prose(documentation) == text


def test_docstrings_are_read_and_never_run() -> None:
    source = (
        '"""Module."""\nraise SystemExit\nclass A:\n    """Class."""\n    async def f(self):\n        """Method."""\n'
    )
    assert [text for text in docstrings(source) if text] == ["Module.", "Class.", "Method."]
    assert [*docstrings("print 'another Python'")] == []


@pytest.fixture
def small_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library of a hundred small modules."""
    library = tmp_path / "library"
    for folder in ("pydoc_data", "test", "site-packages", "email"):
        (library / folder).mkdir(parents=True)
    for number in range(100):
        text = f"Module number {number} of the small library, which does nothing."
        (library / f"m{number}.py").write_text(
            f'"""{text}"""\ndef f():\n    "A copy of the same sentence everywhere in it."\n'
        )
    topics = {"if": "The if statement is used\nfor conditional execution.", "x": "Short."}
    (library / "pydoc_data/topics.py").write_text(f"topics = {topics!r}\n")
    for unwanted in ("test/test_a.py", "site-packages/b.py"):
        (library / unwanted).write_text('"""This documentation does not belong to the library at all."""')
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(library))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return library


def test_each_documentation_is_a_document_once(small_library: Path) -> None:
    documents = [json.loads(line)["text"] for line in python_docs(silent).read_text().splitlines()]
    assert len(documents) == len(set(documents)) == 102
    assert "The if statement is used\nfor conditional execution." in documents
    assert not any("belong to the library" in document for document in documents)


def test_the_text_is_made_once_for_each_library(small_library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stages: list[tuple[str, int, int]] = []
    first = python_docs(lambda *event: stages.append(event))
    assert stages[-1][1] == stages[-1][2] > 0
    before = first.read_bytes()
    monkeypatch.setattr(module, "_lines", None)
    assert python_docs(silent) == first
    monkeypatch.undo()
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(small_library))
    monkeypatch.setenv("XDG_CACHE_HOME", str(small_library / "other"))
    again = python_docs(silent)
    assert (again.name, again.read_bytes()) == (first.name, before)
    (small_library / "m0.py").write_text('"""Another documentation of the first of the modules."""')
    assert python_docs(silent).name != first.name


def test_a_python_without_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(tmp_path))
    with pytest.raises(CorpusError, match="sources of its library are not installed"):
        python_docs(silent)


def test_the_real_library(tmp_path: Path) -> None:
    """In a process of its own, which shows that nothing of the library is imported for it."""
    program = (
        "import json, sys; from gptcli.dataset.python_docs import python_docs; path = python_docs(lambda *_: None);"
        "print(json.dumps([str(path), 'turtle' in sys.modules, 'this' in sys.modules, 'antigravity' in sys.modules]))"
    )
    environment = {"XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    path, *imported = json.loads(done.stdout)
    assert not any(imported)
    documents = [json.loads(line)["text"] for line in Path(path).read_text(encoding="utf-8").splitlines()]
    text = "\n".join(documents)
    assert 1_000_000 < len(text) < 5_000_000
    assert len(documents) > 3_000
    assert ">>>" not in text.replace("'>>>'", "")
    assert ":func:`" not in text
    assert sum(character.isalpha() or character.isspace() for character in text) > 0.9 * len(text)
