"""Paths as people give them."""

from __future__ import annotations

from pathlib import Path

import pytest

import gptcli
from gptcli.errors import GptcliError, StorageError, UsageError
from gptcli.paths import given_path, hint_for_missing, output_path, text_paths
from gptcli.storage import disk_errors


def test_a_path_need_not_exist(tmp_path: Path) -> None:
    assert given_path(str(tmp_path / "none")) == tmp_path / "none"
    assert given_path(tmp_path) == tmp_path
    assert given_path("book.txt/inside") == Path("book.txt/inside")
    assert given_path(b"caf\xe9".decode(errors="surrogateescape")).name == "caf\udce9", "a name that is not UTF-8"


@pytest.mark.parametrize("given", ["", "a\0b", "\ud800", "a" * 300, "d/" * 3000, 5, None])
def test_a_path_that_no_file_can_have(given: object) -> None:
    with pytest.raises(GptcliError) as caught:
        given_path(given)
    assert isinstance(caught.value, UsageError) != (isinstance(given, str) and len(given) > 3)
    assert caught.value.hint
    assert len(caught.value.message) < 200


def test_an_output_is_no_address() -> None:
    assert output_path("runs/a:b") == Path("runs/a:b")
    with pytest.raises(UsageError, match="hf://me/x"):
        output_path("hf://me/x")


def test_one_text_or_several() -> None:
    assert text_paths("book.txt") == ("book.txt",)
    assert text_paths(Path("a/b")) == ("a/b",)
    assert text_paths(["a", Path("b")]) == ("a", "b")
    assert text_paths([]) == ()
    assert text_paths("https://example.com") == ("https://example.com",), "to be refused as an address"
    with pytest.raises(UsageError):
        text_paths(["a", ""])
    with pytest.raises(UsageError):
        text_paths(5)


def test_the_api_refuses_an_empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be the current folder."""
    (tmp_path / "book.txt").write_text("some text\n" * 100)
    monkeypatch.chdir(tmp_path)
    for call in (
        lambda: gptcli.train(""),
        lambda: gptcli.train("book.txt", ""),
        lambda: gptcli.plan([""]),
        lambda: gptcli.tokenize("", "d"),
        lambda: gptcli.tokenize("book.txt", ""),
        lambda: gptcli.load(""),
        lambda: gptcli.inspect(""),
        lambda: gptcli.export("", "gguf"),
    ):
        with pytest.raises(UsageError, match="empty path"):
            call()
    assert [path.name for path in tmp_path.iterdir()] == ["book.txt"]


def test_a_missing_path_has_a_hint_from_what_is_beside_it(tmp_path: Path) -> None:
    (tmp_path / "my texts").mkdir()
    (tmp_path / "my texts" / "my book.txt").touch()
    hints = {
        "my": f"quotes: '{tmp_path / 'my texts'}'",
        "my texts/my bok.txt": f"'{tmp_path / 'my texts/my book.txt'}'?",
        "something else": "Check the path.",
        "nowhere/book.txt": "Check the path.",
    }
    for missing, hint in hints.items():
        assert hint in hint_for_missing(tmp_path / missing)


def test_a_file_in_the_way_has_a_hint(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "inside", tmp_path / ("a" * 300)):
        with pytest.raises(StorageError) as caught, disk_errors(place):
            place.mkdir()
        assert "`out`" in caught.value.hint
