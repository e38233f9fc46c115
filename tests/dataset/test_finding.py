"""Folders: which files are read, which are skipped and why, and what the summary says."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gptcli.config import DataConfig
from gptcli.dataset import compression
from gptcli.dataset.finding import Skipped, find_sources
from gptcli.dataset.preparing import tokenize
from gptcli.dataset.previewing import preview
from gptcli.errors import CorpusError
from tests.dataset.test_sources import content_of, file_of, look_at

SKIPPED = {
    ".git/": "hidden",
    ".hidden.txt": "hidden",
    "node_modules/": "vendored",
    "sub/__pycache__/": "vendored",
    "sub/build/": "vendored",
    "code.py": ".py",
    "package-lock.json": "generated",
    "picture.PNG": ".png",
    "LICENSE": "without a suffix",
    "empty.txt": "blank",
    "binary.txt": "binary",
    "run/": "models and datasets",
}


def a_folder(folder: Path) -> None:
    for name in ("A.TXT", "b.markdown", "sub/c.rst", "sub/d.Md"):
        file_of(folder, name, name)
    for name in ("code.py", ".hidden.txt", "picture.PNG", "LICENSE", ".git/x.txt", "node_modules/x/y.md"):
        file_of(folder, name, "x")
    for name in ("sub/__pycache__/x.txt", "sub/build/x.txt", "run/README.md", "run/tokenizer.json"):
        file_of(folder, name, "x")
    file_of(folder, "package-lock.json", '[{"text": "x"}]')
    file_of(folder, "empty.txt", "")
    file_of(folder, "binary.txt", b"\0")


def test_what_a_folder_gives_and_why_the_rest_is_skipped(tmp_path: Path) -> None:
    a_folder(tmp_path)
    seen = look_at(tmp_path)
    assert [source.name for source in seen.sources] == ["A.TXT", "b.markdown", "sub/c.rst", "sub/d.Md"]
    assert {one.name: one.reason for one in seen.summary.skipped} == SKIPPED
    assert seen.summary.files == 4
    sentence = seen.notes[0]
    assert sentence.startswith("4 files read, 12 skipped: 3 vendored, 2 hidden, ")


def test_include(tmp_path: Path) -> None:
    a_folder(tmp_path)
    assert [*content_of(tmp_path, include=("*.PY", "sub/*.rst"))] == ["code.py", "sub/c.rst"]
    with pytest.raises(CorpusError, match=r"no file that matches \*\.tex"):
        look_at(tmp_path, include=("*.tex",))


def test_exclude(tmp_path: Path) -> None:
    for name in ("a.txt", "drafts/b.txt", "old/c.txt", "old/keep/d.txt"):
        file_of(tmp_path, name, name)
    with find_sources([str(tmp_path)], DataConfig(exclude=("Drafts/", "./old/*.txt", "keep"))) as found:
        assert [source.name for source in found.sources] == ["a.txt"]
        assert found.skipped == (
            Skipped("drafts/", "excluded"),
            Skipped("old/keep/", "excluded"),
            Skipped("old/c.txt", "excluded"),
        )


def test_a_folder_that_is_named_is_read_whatever_its_name(tmp_path: Path) -> None:
    file_of(tmp_path, "build/a.txt", "x")
    assert [*content_of(tmp_path / "build")] == ["a.txt"]


def test_a_file_given_twice(tmp_path: Path) -> None:
    path = file_of(tmp_path, "books/a.txt", "text")
    (tmp_path / "link.txt").symlink_to(path)
    for twice in ((path, path), (tmp_path / "books", path), (path, tmp_path / "books"), (path, tmp_path / "link.txt")):
        with pytest.raises(CorpusError, match="is named twice"):
            look_at(*twice)
    assert len(look_at(path, file_of(tmp_path, "same.txt", "text")).documents) == 2, "equal texts are two files"


def test_a_pipe_in_a_folder_is_not_opened(tmp_path: Path) -> None:
    file_of(tmp_path, "a.txt", "text")
    os.mkfifo(tmp_path / "b.txt")
    (tmp_path / "c.txt").symlink_to(tmp_path / "nowhere")
    assert [one.name for one in look_at(tmp_path).summary.skipped] == ["b.txt", "c.txt"]


def test_missing_packages_are_an_error_or_a_skipped_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "backports", None)
    monkeypatch.setattr(compression.sys, "version_info", (3, 11))  # type: ignore[attr-defined]
    file_of(tmp_path, "a.txt", "text")
    for name in ("b.parquet", "c.txt.zst"):
        path = file_of(tmp_path, name, b"PAR1")
        with pytest.raises(CorpusError, match="needs further packages") as caught:
            look_at(path)
        assert "pip install 'gptcli[data]'" in caught.value.hint
    seen = look_at(tmp_path)
    assert len(seen.documents) == 1
    assert "1 .parquet that need pip install 'gptcli[data]'" in seen.notes[0]


def test_all_files_in_other_encodings_are_listed_at_once(tmp_path: Path) -> None:
    for number in range(12):
        file_of(tmp_path, f"{number:02}.txt", f"caf\xe9 {number}".encode("latin-1"))
    file_of(tmp_path, "z.txt", "good")
    with pytest.raises(CorpusError, match=r"^12 files cannot be decoded\.") as caught:
        look_at(tmp_path)
    assert [f"{number:02}.txt" in caught.value.message for number in range(12)] == [True] * 10 + [False] * 2
    assert "And 2 more." in caught.value.message
    assert "`data.encoding = latin-1`" in caught.value.hint
    assert len(look_at(tmp_path, encoding="latin-1").documents) == 13


def test_a_preview_says_what_tokenize_would_read_and_writes_nothing(tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    a_folder(texts)
    file_of(texts, "rows.jsonl", '{"text": "one"}\n{"text": " "}\n{"text": "two"}\n' * 20)
    before = sorted(tmp_path.rglob("*"))
    seen = preview(texts, settings={"data.exclude": ["*.markdown"]})
    assert sorted(tmp_path.rglob("*")) == before
    assert (seen.files, seen.documents, seen.beginnings) == ({"text": 3, "jsonl": 1}, 43, ("A.TXT", "one"))
    assert Skipped("b.markdown", "excluded") in seen.skipped
    made = tokenize(texts, tmp_path / "out", settings={"data.exclude": ["*.markdown"]})
    assert (made.dataset.documents, made.summary.formats) == (seen.documents, seen.files)
    assert made.summary.skipped == seen.skipped
    assert made.dataset.train.characters + made.dataset.val.characters == seen.characters
    again = tokenize(texts, tmp_path / "out", settings={"data.exclude": ["*.markdown"]})
    assert again.reused
    assert any("files found" in note for note in again.notes)


def test_a_link_to_a_file_of_the_same_folder_is_skipped(tmp_path: Path) -> None:
    file_of(tmp_path, "texts/b.txt", "text")
    (tmp_path / "texts/a.txt").symlink_to("b.txt")
    (tmp_path / "texts/c.txt").hardlink_to(tmp_path / "texts/b.txt")
    (tmp_path / "texts/sub").mkdir()
    (tmp_path / "texts/sub/b.txt").symlink_to(tmp_path / "texts/b.txt")
    file_of(tmp_path, "outside/d.txt", "more")
    (tmp_path / "texts/d.txt").symlink_to(tmp_path / "outside/d.txt")
    seen = look_at(tmp_path / "texts")
    assert [source.name for source in seen.sources] == ["b.txt", "d.txt"], "the file itself, not its links"
    assert [(one.name, one.reason) for one in seen.summary.skipped] == [
        (name, "repeated by links") for name in ("c.txt", "a.txt", "sub/b.txt")
    ]


def test_a_linked_folder_is_not_entered_and_counted(tmp_path: Path) -> None:
    file_of(tmp_path, "texts/a.txt", "text")
    (tmp_path / "texts/all").symlink_to(tmp_path)
    assert [(one.name, one.reason) for one in look_at(tmp_path / "texts").summary.skipped] == [
        ("all/", "linked folders")
    ]


def test_files_of_a_folder_that_cannot_be_read_are_skipped_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of them is kept: no document, no character, and no copy that a later file could repeat."""
    rows = [f'{{"text": "a row, number {number}, of {number * 7} that were written once"}}\n' for number in range(150)]
    file_of(tmp_path, "a.json", '{"text": "first"}\n' + "".join(rows) + '{"text": "ξ"}\n{"text": [}\n')
    file_of(tmp_path, "b.docx", b"PK\x03\x04\xff")
    file_of(tmp_path, "c.txt", "caf\xe9".encode("utf-16"))
    file_of(tmp_path, "d.jsonl", "".join(rows[:10]))
    file_of(tmp_path, "e.txt", "secret")
    with pytest.raises(CorpusError, match=r"a\.json', line 153") as caught:
        look_at(tmp_path)
    assert "`data.errors = skip`" in caught.value.hint
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "e.txt")
    for dedup in ("off", "exact", "near"):
        if dedup == "near":
            pytest.importorskip("rensa")
        seen = look_at(tmp_path, errors="skip", dedup=dedup)
        assert [(source.name, source.findings.format) for source in seen.sources] == [("d.jsonl", "jsonl")]
        assert [document.source.name for document in seen.documents] == ["d.jsonl"] * 10
        assert "ξ" not in seen.alphabet
        assert seen.beginnings[0].startswith("a row")
        assert {one.name: one.reason for one in seen.summary.skipped} == dict.fromkeys(
            ["a.json", "b.docx", "c.txt", "e.txt"], "unreadable"
        )
        assert any("first unreadable file: '" in note and "a.json', line 153" in note for note in seen.notes)
    with pytest.raises(CorpusError, match=r"b\.docx' cannot be read"):
        look_at(tmp_path / "b.docx", errors="skip")


def test_a_folder_without_text_says_what_was_skipped(tmp_path: Path) -> None:
    file_of(tmp_path, "a.txt", b"\0")
    file_of(tmp_path, "b.txt", " ")
    with pytest.raises(CorpusError, match="1 binary, 1 blank"):
        look_at(tmp_path)
