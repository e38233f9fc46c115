"""Reading untrusted files: bounded, strict, and never from a pipe."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gptcli.untrusted import MAX_DEPTH, MAX_DIGITS, is_plain_name, read_bounded, strict_json


def test_valid_json() -> None:
    assert strict_json(b'{"a": [1, -2.5e3, true, null], "b": {"a": "\\ud83d\\ude00 \xc3\xa9"}}') == {
        "a": [1, -2500.0, True, None],
        "b": {"a": "😀 é"},
    }
    assert strict_json("\ufeff[]".encode()) == [], "a byte-order mark is allowed"
    assert strict_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    assert strict_json(b"9" * MAX_DIGITS) == int("9" * MAX_DIGITS)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"a": 1, "b": 2, "a": 1}', "the key 'a' twice"),
        (b'[{"x": {"a": 1, "a": 2}}]', "the key 'a' twice"),
        (b"[NaN]", "NaN"),
        (b"[-Infinity]", "Infinity"),
        (b"[1e999]", "too large"),
        (b"9" * (MAX_DIGITS + 1), "too large"),
        (b"9" * 5000, "too large"),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "too deeply"),
        (b"[" * 100_000, "too deeply"),
        (b'{"a":' * 100_000, "too deeply"),
        (b'["\\ud83d"]', "half a character"),
        (b'{"\\udc00": 1}', "half a character"),
        (b'{"a": 1', "line 1"),
        (b"", "it is empty"),
        (b'["\xff"]', "UTF-8"),
        ('["a"]'.encode("utf-16"), "UTF-8"),
    ],
)
def test_refused_json(content: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        strict_json(content)


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_bounded(path, 5) == b"12345"
    with pytest.raises(ValueError, match="5 bytes; the limit is 4"):
        read_bounded(path, 4)


def test_a_huge_file_costs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with open(path, "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match="too large"):
        read_bounded(path, 1 << 20)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc here")
def test_a_file_that_claims_to_be_empty_is_bounded_too() -> None:
    with pytest.raises(ValueError, match="too large"):
        read_bounded(Path("/proc/self/status"), 10)


def test_a_pipe_is_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="not a regular file"):
        read_bounded(tmp_path / "pipe", 10)
    with pytest.raises(ValueError, match="not a regular file"):
        read_bounded(tmp_path, 10)


def test_plain_names() -> None:
    assert all(map(is_plain_name, ["model.safetensors", "a b", "step-1"]))
    assert not any(map(is_plain_name, ["", ".", "..", ".x", "a/b", "/a", "../a", "a\\b", "a\0"]))


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "it is empty"), (b" \n", "it is empty"), (b'{"a": 1,\n oops}', "line 2, column 2"), (b"\xff{}", "UTF-8")],
)
def test_damaged_json_is_said_in_plain_words(content: bytes, words: str) -> None:
    with pytest.raises(ValueError, match="it is not JSON") as caught:
        strict_json(content)
    assert words in str(caught.value)
    assert not any(foreign in str(caught.value) for foreign in ("Expecting", "codec", "char "))
