"""Settings that had no effect on the text at hand are noted, and only where they were stated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gptcli.dataset.preparing import tokenize
from gptcli.errors import CorpusError
from tests.dataset.test_rows import as_parquet
from tests.dataset.test_sources import file_of, look_at


def idle(*inputs: str | Path, **settings: Any) -> list[str]:
    """The notes about settings without effect."""
    return [note for note in look_at(*inputs, **settings).notes if "has no effect" in note]


def test_a_separator_that_does_not_occur(tmp_path: Path) -> None:
    path, rows = file_of(tmp_path, "a.txt", "one---two"), file_of(tmp_path, "b.jsonl", '{"text": "one---"}\n')
    assert idle(path, rows, doc_separator="---") == []
    assert ["'+++'" in note for note in idle(path, rows, doc_separator="+++")] == [True]
    assert ["not jsonl" in note for note in idle(rows, doc_separator="---")] == [True]


def test_patterns_that_match_nothing(tmp_path: Path) -> None:
    for name in ("a.txt", "drafts/b.txt", "node_modules/c.js"):
        file_of(tmp_path / "texts", name, "text " * 99)
    seen = idle(tmp_path / "texts", exclude=("Drafts", "draft", "node_modules"), include=("*.txt", "*.md"))
    assert [note.partition("`")[2].partition("`")[0] for note in seen] == [
        "data.include = *.md",
        "data.exclude = draft",
    ]
    assert ["folders" in note for note in idle(tmp_path / "texts/a.txt", exclude=("*.md",))] == [True]
    assert idle(tmp_path / "texts") == idle(tmp_path / "texts/a.txt") == []
    tokenize(tmp_path / "texts", tmp_path / "out")
    again = tokenize(tmp_path / "texts", tmp_path / "out", settings={"data.exclude": ["darfts"]})
    assert again.reused
    assert any("`data.exclude = darfts` has no effect" in note for note in again.notes), "also where nothing is read"


def test_a_column_of_plain_text_and_an_encoding_of_parquet(tmp_path: Path) -> None:
    text, rows = file_of(tmp_path, "a.txt", "text"), file_of(tmp_path, "b.jsonl", '{"body": "one"}\n')
    table = file_of(tmp_path, "c.parquet", as_parquet([{"body": "one"}]))
    assert ["`data.text_field = body`" in note for note in idle(text, text_field="body")] == [True]
    assert ["`data.encoding = cp1252`" in note for note in idle(table, encoding="cp1252")] == [True]
    assert idle(text, rows, table, text_field="body", encoding="cp1252") == []


def test_notes_on_settings_do_not_hide_errors(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="holds no file of a format"):
        look_at(tmp_path, exclude=("*.md",))
