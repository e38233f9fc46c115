"""The options that say what is read and how. The hints of errors work as they are typed."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.conftest import CommandLine
from tests.tokenizer.text_samples import LESSON

GERMAN = "Der K\u00e4se hei\u00dft \u201eGouda\u201c.\n" * 30


def hinted(stderr: str) -> list[str]:
    """The first option, with its value, that a hint names."""
    found = re.search(r"Hint:.*?(--[a-z-]+ \S+?)[.,;]?(\s|$)", stderr, re.DOTALL)
    assert found, stderr
    return shlex.split(found[1])


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "utf-16", "utf-16-le"])
def test_the_hint_about_another_encoding_works_as_typed(cli: CommandLine, tmp_path: Path, encoding: str) -> None:
    text = GERMAN if encoding != "latin-1" else "Der K\u00e4se.\n" * 30
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    refused = cli("tokenize", "a.txt", "--dry-run")
    assert refused.code == 1
    read = cli("tokenize", "a.txt", "--dry-run", "--json", *hinted(refused.stderr))
    assert json.loads(read.stdout)["beginnings"][0] == text[:500]


def test_the_hint_about_a_column_works_as_typed(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("title,summary\na,one\nb,two\n", encoding="utf-8")
    refused = cli("tokenize", "a.csv", "--dry-run")
    assert "'title', 'summary'" in refused.stderr
    assert "--text-field" in refused.stderr
    read = cli("tokenize", "a.csv", "--dry-run", "--text-field", "summary")
    assert (read.code, "1 file of csv: 2 documents" in read.stdout, "Document 2:\ntwo" in read.stdout) == (
        0,
        True,
        True,
    )


def test_tokenize_and_dry_run(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "texts/.git").mkdir(parents=True)
    (tmp_path / "texts/a.txt").write_text(LESSON, encoding="utf-8")
    (tmp_path / "texts/b.jsonl").write_text(json.dumps({"text": LESSON}) + "\n", encoding="utf-8")
    missing = cli("tokenize", "texts")
    assert (missing.code, "--out" in missing.stderr, "--dry-run" in missing.stderr) == (2, True, True)
    dry = cli("tokenize", "texts", "--dry-run", "--verbose")
    assert "2 files read (1 text, 1 jsonl), 1 skipped: 1 hidden." in dry.stderr
    assert "Skipped: .git/ (hidden)." in dry.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["texts"]
    made = cli("tokenize", "texts", "-o", "data/x", "--json", "--exclude", "*.jsonl")
    assert json.loads(made.stdout)["skipped"] == [
        {"name": ".git/", "reason": "hidden"},
        {"name": "b.jsonl", "reason": "excluded"},
    ]


def test_training_and_scoring_say_what_they_read(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text((json.dumps({"body": LESSON, "n": 1}) + "\n") * 3, encoding="utf-8")
    small = ("--preset", "nano", "--max-steps", "1", "--block-size", "16", "--batch-size", "1")
    trained = cli("train", "rows.jsonl", "-o", "runs/a", *small)
    assert trained.code == 0, trained.stderr
    assert "1 file read as jsonl." in trained.stderr
    assert "column 'body'" in trained.stderr
    (tmp_path / "german.txt").write_bytes(LESSON.encode("utf-16"))
    refused = cli("eval", "runs/a", "german.txt")
    assert refused.code == 1
    scored = cli("eval", "runs/a", "german.txt", "--json", *hinted(refused.stderr))
    assert scored.code == 0, scored.stderr


def test_the_hints_of_inspect_work_as_typed(cli: CommandLine, tmp_path: Path) -> None:
    """`inspect` reads texts by the defaults; its hints name the command that has the option."""
    (tmp_path / "two words.csv").write_text("title,summary\na,one\nb,two\n", encoding="utf-8")
    refused = cli("inspect", "two words.csv")
    assert "--text-field" in refused.stderr
    command = re.findall(r"`gptcli ([^`]+)`", refused.stderr)[0]
    assert cli(*shlex.split(command), "--text-field", "summary").code == 0
    (tmp_path / "crlf.txt").write_bytes(b"one\r\n" * 20)
    inspected = cli("inspect", "crlf.txt")
    assert "--newline lf" in inspected.stdout
    assert "data.newline" not in inspected.stdout
