"""English prose that every machine has: the documentation inside Python's standard library.

The documents are the topics of `help()` (`pydoc_data.topics`) and the docstrings of the library's modules, classes and
functions. They are read from the sources as syntax trees, so that nothing is imported or run; markup, examples and
signatures are left out. The text depends on the sources alone: the same Python gives the same text.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import platform
import re
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path

from gptcli import storage
from gptcli.dataset.remote.cache import PLACE, cache_root
from gptcli.dataset.sources import OnProgress
from gptcli.errors import CorpusError

LEFT_OUT = frozenset(
    {"test", "tests", "idlelib", "lib2to3", "turtledemo", "ensurepip", "encodings", "site-packages", "dist-packages"}
)
"""Packages without documentation, with the same for each module, or that only some installations have."""

_VERSION = 1
"""Of the rules below: another number makes the text again."""
_TOPICS = "pydoc_data/topics.py"
_SHORTEST = 40
"""Characters of a document; a shorter one says nothing."""

_ROLE = re.compile(r":[a-z:+-]+:`~?!?([^`<]+?)(?:\s*<[^`>]*>)?`")
_QUOTED = re.compile(r"``(.+?)``|`([^`'\n]+)[`']")
_EMPHASIZED = re.compile(r"(?<![\w*])(\*\*?)(\w(?:[^*\n]*\w)?)\1(?![\w*])")
_RULE = re.compile(r"[=\-~*^#+.]{3,}\s*")
_CODE = re.compile(
    r"(>>>|\.\.\.|\.\. |@|#|def |class |import |from \w+ import|return |print\(|\$ )|.*(::=|\s[-+*/|]?=\s)"
)
_SIGNATURE = re.compile(r"[\w.]+\(.*\)(\s*(->|--|=>).*)?:?")
_FIELD = re.compile(r":\w+( \w+)*:")


def python_docs(on_progress: OnProgress) -> Path:
    """The file with the documentation of this Python as JSON Lines, made at the first call.

    Raises CorpusError where Python is installed without its sources, and StorageError.
    """
    library = Path(sysconfig.get_path("stdlib"))
    sources = sorted(_sources(library))
    if len(sources) < 100 or not (library / _TOPICS).is_file():
        message = f"Python's own documentation is not in '{library}': the sources of its library are not installed."
        raise CorpusError(message, "Name another text, such as the corpus shakespeare.")
    sizes = [(path.relative_to(library).as_posix(), path.stat().st_size) for path in sources]
    state = hashlib.sha256(json.dumps([_VERSION, sizes]).encode()).hexdigest()[:8]
    final = cache_root() / f"python-docs-{platform.python_version()}-{state}.jsonl"
    if not final.is_file():
        total = sum(size for _, size in sizes)
        with storage.disk_errors(final, option=PLACE):
            storage.make_directories(final.parent)
        storage.write_file(final, _lines(library, sources, total, on_progress), option=PLACE)
    return final


def prose(documentation: str) -> str:
    """The prose of a docstring or a topic: without markup, examples, tables and signatures.

    >>> prose('''split(text) -> list
    ...
    ... Split :class:`str` objects, as ``text.split`` does.
    ...
    ...     >>> split("a b")
    ...     ['a', 'b']
    ... ''')
    'Split str objects, as text.split does.'
    """
    paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(documentation).expandtabs())
    kept = (_paragraph(paragraph) for paragraph in paragraphs)
    return "\n\n".join(paragraph for paragraph in kept if paragraph)


def docstrings(source: str) -> Iterator[str]:
    """The docstrings in a Python source; none if it is in the syntax of another Python."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def _sources(library: Path) -> Iterator[Path]:
    for path in library.rglob("*.py"):
        folders = path.relative_to(library).parts[:-1]
        if not LEFT_OUT.intersection(folders) and not any(name.startswith(("config-", "__py")) for name in folders):
            yield path


def _lines(library: Path, sources: list[Path], total: int, on_progress: OnProgress) -> Iterator[bytes]:
    """A line of JSON for each document, without copies."""
    done, seen = 0, set[str]()
    for path in sources:
        source = path.read_text(encoding="utf-8", errors="replace")
        with warnings.catch_warnings(action="ignore"):  # about the sources' own syntax
            found = list(_topics(source) if path == library / _TOPICS else docstrings(source))
        for documentation in found:
            text = prose(documentation)
            if len(text) >= _SHORTEST and text not in seen:
                seen.add(text)
                yield (json.dumps({"text": text}, ensure_ascii=False) + "\n").encode()
        done += path.stat().st_size
        on_progress("reading Python's documentation", min(done, total), total)


def _topics(source: str) -> Iterator[str]:
    """The texts of `pydoc_data.topics`, which is a dictionary."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            yield from ast.literal_eval(node.value).values()


def _paragraph(paragraph: str) -> str:
    """A paragraph without markup; "" if it is no prose."""
    lines = [line for line in inspect.cleandoc(paragraph).splitlines() if not _RULE.fullmatch(line)]
    if not lines or any(_CODE.match(line.strip()) for line in lines):
        return ""
    if _SIGNATURE.fullmatch(lines[0]):
        lines = lines[1:]
    text = _ROLE.sub(r"\1", "\n".join(lines))
    text = _QUOTED.sub(lambda found: found[1] or found[2], text)
    text = _EMPHASIZED.sub(r"\2", text)
    words = re.findall(r"[A-Za-z]{2,}", text)
    letters = sum(character.isalpha() or character.isspace() for character in text)
    return text.strip() if len(words) >= 4 and letters > 0.8 * len(text) else ""
