"""Encodings: what is refused and how, what `data.encoding` and `data.errors` do, and line ends."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcli.config import DataConfig, parse_section
from gptcli.dataset import sources
from gptcli.dataset.decoding import decoded, detected
from gptcli.dataset.preparing import tokenize
from gptcli.dataset.readers import read_documents
from gptcli.dataset.sources import Source
from gptcli.errors import ConfigError, CorpusError
from tests.dataset.test_sources import file_of, look_at
from tests.tokenizer.text_samples import some, texts

NEWLINE = b"\n"
GERMAN = "Der Käse heißt „Gouda“ – für 5 €.\n" * 40
ENCODINGS = ["cp1252", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "shift_jis", "gb18030", "utf-7", "utf-8-sig"]


def source_of(path: Path, **settings: str) -> Source:
    return Source(path, path.name, f"'{path}'", settings=parse_section(DataConfig, settings))


def text_of(path: Path, **settings: str) -> str:
    return "".join(decoded(source_of(path, **settings), lambda _: None))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_any_encoding_in_any_pieces(tmp_path: Path, encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "あいう漢字 abc\n" * 9 if encoding in ("shift_jis", "gb18030") else GERMAN
    path = file_of(tmp_path, "a.txt", text.encode(encoding))
    for chunk in (1, 7, 1 << 17):
        monkeypatch.setattr(sources, "CHUNK_BYTES", chunk)
        assert text_of(path, encoding=encoding) == text


@some
@given(data=st.binary(max_size=60), chunk=st.integers(1, 9), encoding=st.sampled_from(["utf-8", "utf-16", "cp1252"]))
def test_errors_are_those_of_python(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, chunk: int, encoding: str
) -> None:
    """Replaced and skipped text is what Python's codec gives for the whole file, wherever it is cut into pieces."""
    data = codecs.BOM_UTF16_LE + data if encoding == "utf-16" else data
    path = file_of(tmp_path_factory.getbasetemp(), "any.txt", data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "CHUNK_BYTES", chunk)
        for errors, name in (("replace", "replace"), ("skip", "ignore")):
            expected = data.decode(encoding, name).removeprefix("\ufeff")
            assert text_of(path, encoding=encoding, errors=errors) == expected


@some
@given(text=texts, extra=st.binary(min_size=1, max_size=3), chunk=st.integers(1, 40))
def test_the_offset_of_the_first_wrong_byte(
    tmp_path_factory: pytest.TempPathFactory, text: str, extra: bytes, chunk: int
) -> None:
    good = text.replace("\ufeff", "").encode()
    path = file_of(tmp_path_factory.getbasetemp(), "any.txt", good + b"\xff" + extra)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "CHUNK_BYTES", chunk)
        place = f"byte 0xFF at offset {len(good):,}, line {good.count(NEWLINE) + 1:,}"
        with pytest.raises(CorpusError, match=place):
            text_of(path)


def test_errors_are_counted(tmp_path: Path) -> None:
    path = file_of(tmp_path, "a.txt", "ab\ufffd é".encode() + b"\xff\xfe cd \x80" * 3)
    replaced, skipped = look_at(path, errors="replace"), look_at(path, errors="skip")
    assert "Replaced by U+FFFD: 9 sequences of bytes that cannot be decoded." in replaced.notes
    assert "Skipped 9 sequences of bytes that cannot be decoded." in skipped.notes
    assert replaced.characters - skipped.characters == 9


def test_utf_16_with_and_without_a_mark(tmp_path: Path) -> None:
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        path = file_of(tmp_path, f"{encoding}.txt", GERMAN.encode(encoding))
        with pytest.raises(CorpusError, match="UTF-16") as caught:
            look_at(path)
        assert "`data.encoding = utf-16`" in caught.value.hint
        assert text_of(path, encoding="utf-16") == GERMAN, "as the hint says"


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "utf-16", "utf-16-be", "utf-32", "shift_jis"])
def test_auto_finds_the_encoding(tmp_path: Path, encoding: str) -> None:
    pytest.importorskip("charset_normalizer")
    text = "日本語の文章です。猫が座っていました。\n" * 20 if encoding == "shift_jis" else GERMAN
    path = file_of(tmp_path, "a.txt", b"" + text.encode(encoding))
    assert text_of(path, encoding="auto") == text
    found = look_at(path, encoding="auto").notes
    assert any("Encodings found" in note for note in found) == (encoding != "utf-8")


def test_auto_looks_beyond_ascii(tmp_path: Path) -> None:
    path = file_of(tmp_path, "a.txt", b"plain text\n" * 300_000 + GERMAN.encode("utf-8"))
    assert detected(source_of(path)) == "utf-8"
    assert detected(source_of(file_of(tmp_path, "b.txt", "only ASCII"))) == "utf-8"


@pytest.mark.parametrize("name", ["rot13", "base64", "no-such", "undefined", ""])
def test_what_is_no_encoding(name: str) -> None:
    with pytest.raises(ConfigError, match="encoding"):
        parse_section(DataConfig, {"encoding": name})


def test_names_of_one_encoding_are_one(tmp_path: Path) -> None:
    assert DataConfig(encoding="UTF8") == DataConfig()
    path = file_of(tmp_path, "a.txt", GERMAN)
    tokenize(path, tmp_path / "out")
    assert tokenize(path, tmp_path / "out", settings={"data.encoding": "U8"}).reused


@some
@given(text=st.text(alphabet="a\r\n", max_size=30), chunk=st.integers(1, 5))
def test_line_ends(tmp_path_factory: pytest.TempPathFactory, text: str, chunk: int) -> None:
    path = file_of(tmp_path_factory.getbasetemp(), "any.txt", text)
    expected = {"keep": text, "lf": text.replace("\r\n", "\n").replace("\r", "\n")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "CHUNK_BYTES", chunk)
        for newline, wanted in expected.items():
            documents = read_documents(source_of(path, newline=newline), lambda _: None)
            assert "".join(piece for pieces in documents for piece in pieces) == wanted


def test_converted_line_ends_are_no_surprise(tmp_path: Path) -> None:
    path = file_of(tmp_path, "a.txt", "one\r\ntwo\r\n")
    assert look_at(path, newline="lf").notes == ()
    assert look_at(path, newline="lf").alphabet == tuple("\nenotw")
