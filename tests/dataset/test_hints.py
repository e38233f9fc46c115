"""Errors about texts name a next step that fits the text at hand."""

from __future__ import annotations

import io
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gptcli.config import DataConfig
from gptcli.dataset.finding import find_sources
from gptcli.dataset.preparing import tokenize
from gptcli.dataset.refusals import utf8_alone
from gptcli.dataset.scanning import scan
from gptcli.errors import CorpusError, GptcliError, TokenizerError
from gptcli.report.text import describe_tokens
from gptcli.tokenizer.char import char_tokenizer
from gptcli.tokenizer.tokenizer import Tokenizer


def refused(path: str | Path, skip_unknown: Tokenizer | None = None) -> CorpusError:
    """The error of commands that have no option for another encoding, such as `inspect`."""
    with pytest.raises(CorpusError) as caught, utf8_alone(), find_sources([str(path)], DataConfig()) as found:
        scan(found, lambda _count: None, skip_unknown=skip_unknown)
    return caught.value


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_the_command_that_converts_a_file_can_be_typed(
    encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "it's mine.txt", "-dash.txt"):
        Path(name).write_bytes("caf\xe9, cr\xe8me\n".encode(encoding))
        command = refused(name).hint.partition(": ")[2]
        assert shlex.split(command)[0] == "iconv"
        subprocess.run(command, shell=True, check=True)
        assert Path(name.replace(".txt", "-utf8.txt")).read_text(encoding="utf-8") == "caf\xe9, cr\xe8me\n"


def test_standard_input_in_another_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO("caf\xe9\n".encode("latin-1"))))
    hint = refused("-").hint
    assert "iconv -f ISO-8859-1" in hint
    assert ">" not in hint


def test_empty_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO()))
    assert "Pipe a text" in refused("-").hint


def test_a_text_without_a_known_character(tmp_path: Path) -> None:
    (tmp_path / "zh.txt").write_text("世界", encoding="utf-8")
    error = refused(tmp_path / "zh.txt", char_tokenizer("abc"))
    assert "no character that the tokenizer knows" in error.message
    assert "UTF-8" not in error.hint
    assert "characters" in error.hint


def test_a_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_dir(self: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "is_dir", is_dir)
    assert "permissions" in refused(tmp_path).hint


def test_unknown_characters_can_be_skipped_or_another_tokenizer_made(tmp_path: Path) -> None:
    (tmp_path / "abc.txt").write_text("abc\n" * 50)
    (tmp_path / "zh.txt").write_text("世界\n" * 50, encoding="utf-8")
    tokenizer = tokenize(tmp_path / "abc.txt", tmp_path / "d").dataset.path / "tokenizer.json"
    with pytest.raises(TokenizerError) as caught:
        tokenize(tmp_path / "zh.txt", tmp_path / "e", tokenizer=tokenizer)
    assert "`unknown = skip`" in caught.value.hint
    assert "`tokenizer.kind = auto`" in caught.value.hint
    assert "run" not in caught.value.hint
    tokenize(tmp_path / "zh.txt", tmp_path / "e", tokenizer="auto")
    with pytest.raises(TokenizerError) as caught:  # of a model, whose tokenizer nobody can choose
        char_tokenizer("abc").encode("世")
    assert caught.value.hint == "Skip them with `unknown = skip`."


def test_inspecting_unknown_characters_names_no_option_that_inspect_lacks(tmp_path: Path) -> None:
    (tmp_path / "abc.txt").write_text("abc\n" * 50)
    (tmp_path / "zh.txt").write_text("世界\n", encoding="utf-8")
    with pytest.raises(GptcliError) as caught:
        describe_tokens(tokenize(tmp_path / "abc.txt", tmp_path / "d").dataset.path, tmp_path / "zh.txt")
    assert "世" in caught.value.message
    assert "`" not in caught.value.hint
