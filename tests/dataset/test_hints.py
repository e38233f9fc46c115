"""Errors about texts name a next step that fits the text at hand."""

from __future__ import annotations

import gzip
import io
import lzma
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
from tests.dataset.test_sources import look_at


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


OTHER_FORMATS = {
    "a.doc": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0", ".docx"),
    "a": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0", ".docx"),
    "a.xls": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0", ".csv"),
    "a.xlsx": (b"PK\x03\x04\0\xff", ".csv"),
    "a.pptx": (b"PK\x03\x04\0\xff", "PDF"),
    "a.mobi": (b"Book\0\xff", ".epub"),
    "a.rtf": (b"{\\rtf1\\ansi text}", ".docx"),
}


@pytest.mark.parametrize("name", OTHER_FORMATS)
def test_documents_of_other_programs_are_named_with_the_format_to_save_as(name: str, tmp_path: Path) -> None:
    content, wanted = OTHER_FORMATS[name]
    (tmp_path / name).write_bytes(content)
    assert wanted in refused(tmp_path / name).hint


def test_rtf_can_be_read_as_characters(tmp_path: Path) -> None:
    (tmp_path / "a.rtf").write_bytes(OTHER_FORMATS["a.rtf"][0])
    assert "`data.format = text`" in refused(tmp_path / "a.rtf").hint
    assert look_at(tmp_path / "a.rtf", format="text").characters == len(OTHER_FORMATS["a.rtf"][0])


DAMAGED = {
    "a.txt.gz": (b"no archive", "is no .gz file", "Rename"),
    "b.txt.gz": (gzip.compress(b"text" * 99)[:-9], "it is cut off", "again"),
    "a.txt.xz": (lzma.compress(b"text" * 99)[:-6] + b"??????", "cannot be unpacked", "again"),
    "a.parquet": (b"PAR1 and more than eight bytes", "cut off, or no Parquet", "again"),
    "a.pdf": (b"nothing", "does not begin as a PDF", "new PDF"),
    "b.pdf": (b"%PDF-1.4 nothing", "it is cut off", "new PDF"),
    "a.docx": (b"PK\x03\x04 cut off", "it is cut off", "Word"),
    "a.html": (b"<meta charset=gbk><p>\x81\xff", "byte 0x81 cannot be decoded as gb18030", "browser"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_told_in_our_words(name: str, tmp_path: Path) -> None:
    package = {"parquet": "pyarrow", "pdf": "pypdf", "html": "lxml"}.get(name.rpartition(".")[2])
    pytest.importorskip(package or "gptcli")
    content, words, hint = DAMAGED[name]
    (tmp_path / name).write_bytes(content)
    error = refused(tmp_path / name)
    assert words in error.message
    assert hint in error.hint
