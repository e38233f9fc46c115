"""Finding, reading and scanning text, and how bad input is reported."""

from __future__ import annotations

import errno
import io
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcli.config import DataConfig
from gptcli.dataset import readers, sources
from gptcli.dataset.corpus import Corpus
from gptcli.dataset.documents import Document
from gptcli.dataset.finding import find_sources
from gptcli.dataset.plain_text import read_text
from gptcli.dataset.scanning import scan
from gptcli.dataset.sources import Source
from gptcli.dataset.splits import PartReader, split_parts
from gptcli.errors import CorpusError, StorageError
from tests.tokenizer.text_samples import some, texts


def look_at(*inputs: Path | str, **settings: Any) -> Corpus:
    with find_sources([str(given) for given in inputs], DataConfig(**settings)) as found:
        return scan(found, lambda _: None)


def content_of(*inputs: Path | str, **settings: Any) -> dict[str, str]:
    with find_sources([str(given) for given in inputs], DataConfig(**settings)) as found:
        return {source.name: "".join(read_text(source, lambda _: None)) for source in found.sources}


def file_of(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@some
@given(text=texts, chunk=st.integers(8, 40))
def test_pieces_join_to_the_text(tmp_path_factory: pytest.TempPathFactory, text: str, chunk: int) -> None:
    text = text.replace("\0", "") + "x"
    path = file_of(tmp_path_factory.getbasetemp(), "any.txt", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "CHUNK_BYTES", chunk)
        assert "".join(read_text(Source(path, "any", "any"), lambda _: None)) == text.removeprefix("\ufeff")


def test_folders_are_read_in_order_and_hidden_ones_are_not(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.md", "a/y.txt", "a.txt", ".git/x.txt", ".hidden.txt", "code.py"):
        file_of(tmp_path, name, name)
    assert list(content_of(tmp_path)) == ["a/y.txt", "a/z.md", "a.txt", "b.txt"]
    assert list(content_of(tmp_path, include=("*.py",))) == ["code.py"]
    assert list(content_of(tmp_path / "code.py", tmp_path / "a")) == ["code.py", "y.txt", "z.md"]


def test_standard_input_is_read_more_than_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("né".encode())))
    with find_sources(["-"], DataConfig()) as found:
        assert ["".join(read_text(found.sources[0], lambda _: None)) for _ in range(2)] == ["né", "né"]
    with pytest.raises(CorpusError, match="only once"):
        content_of("-", "-")


def test_standard_input_that_cannot_be_read_or_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(error: int) -> Callable[..., Any]:
        def fail(*arguments: object, **options: object) -> None:
            raise OSError(error, os.strerror(error))

        return fail

    stdin = io.TextIOWrapper(io.BytesIO(b"text"))
    monkeypatch.setattr("sys.stdin", stdin)
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "TemporaryFile", fails(errno.ENOSPC))
        with pytest.raises(StorageError, match="no space left on device") as refusal:
            content_of("-")
    assert "another place with TMPDIR" in refusal.value.hint
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=SimpleNamespace(read=fails(errno.EISDIR))))
    with pytest.raises(CorpusError, match="Standard input cannot be read: is a directory"):
        content_of("-")


def test_nothing_of_standard_input_stays_after_a_kill(tmp_path: Path) -> None:
    script = "from gptcli.config import DataConfig\nfrom gptcli.dataset.finding import find_sources\n"
    script += "with find_sources(['-'], DataConfig()): pass"
    reader = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, env=os.environ | {"TMPDIR": str(tmp_path)}
    )
    assert reader.stdin is not None
    reader.stdin.write(b"text\n" * 300_000)  # far more than a pipe holds, so the copy has begun when this returns
    reader.stdin.flush()
    reader.send_signal(signal.SIGKILL)
    reader.wait()
    reader.stdin.close()
    assert list(tmp_path.iterdir()) == []


def test_a_reader_of_another_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line in the table is all it takes: here, each line of a file is a document."""

    def read_lines(source: Source, on_bytes: Callable[[int], None]) -> Iterator[Iterator[str]]:
        text = "".join(read_text(source, on_bytes))
        return (iter([line[:2], line[2:]]) if len(line) > 2 else iter([line]) for line in text.split("\n"))

    monkeypatch.setitem(readers.READERS, ".lines", read_lines)
    path = file_of(tmp_path, "a.lines", "first line\n \nsecond line\nthird")
    corpus = look_at(path, file_of(tmp_path, "b.txt", "one\ntwo"))
    sizes = [(document.index, document.characters) for document in corpus.documents]
    assert sizes == [(0, 10), (2, 11), (3, 5), (0, 7)], "the blank line is not a document"
    assert [source.name for source in corpus.sources] == ["a.lines", "b.txt"]
    train, val = split_parts(corpus, 15)
    reader = PartReader(corpus)
    assert ["".join(reader.read(part)) for part in train] == ["first line", "secon"]
    assert ["".join(reader.read(part)) for part in val] == ["d line", "third", "one\ntwo"]
    assert ["".join(reader.read(part)) for part in train] == ["first line", "secon"], "again, from the start"


def test_a_sentence_begins_with_a_capital(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfabc")))
    assert look_at("-").notes == ("Standard input starts with a byte-order mark, which is dropped.",)


def test_notes_about_bom_and_crlf(tmp_path: Path) -> None:
    path = file_of(tmp_path, "a.txt", b"\xef\xbb\xbfone\r\ntwo\r\n")
    seen = look_at(path)
    assert (seen.characters, seen.bytes, seen.alphabet[:2]) == (10, 10, ("\n", "\r"))
    assert [note.removeprefix(f"'{path}' ") for note in seen.notes] == [
        "starts with a byte-order mark, which is dropped.",
        "has CRLF line ends; they are kept (`data.newline = lf` converts them).",
    ]
    file_of(tmp_path, "b.txt", b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert (
        look_at(tmp_path).notes[2]
        == f"2 files have CRLF line ends; they are kept (`data.newline = lf` converts them) (the first: '{path}')."
    )


def test_runs_and_datasets_in_a_folder_are_skipped(tmp_path: Path) -> None:
    for name in ("a.txt", "runs/a/README.md", "runs/a/tokenizer.json", "runs/a/checkpoints/x.txt", "runs/notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")
    assert [*content_of(tmp_path)] == ["a.txt", "runs/notes.txt"]
    assert [*content_of(tmp_path / "runs/a", include=("*.md",))] == ["README.md"], "named by itself"


def test_empty_and_binary_files_in_folders_are_skipped_with_a_note(tmp_path: Path) -> None:
    file_of(tmp_path, "a.txt", "text")
    file_of(tmp_path, "empty.txt", "")
    file_of(tmp_path, "picture.txt", b"\x89PNG\0\0")
    seen = look_at(tmp_path)
    assert [document.source.name for document in seen.documents] == ["a.txt"]
    assert [(one.name, one.reason) for one in seen.summary.skipped] == [
        ("empty.txt", "blank"),
        ("picture.txt", "binary"),
    ]
    assert seen.notes == ("1 file read, 2 skipped: 1 blank, 1 binary.",)


def test_a_folder_of_blanks(tmp_path: Path) -> None:
    file_of(tmp_path, "a.txt", " \n")
    with pytest.raises(CorpusError, match="hold no text"):
        look_at(tmp_path)


BAD: dict[str, tuple[str, bytes, str, str]] = {
    "empty": ("a.txt", b"", "is empty", "holds text"),
    "only a mark": ("a.txt", b"\xef\xbb\xbf", "is empty", "holds text"),
    "blank": ("a.txt", b" \r\n\t\n", "is blank", "holds text"),
    "binary": ("a.txt", b"\x7fELF\x02\x01\0\0\0\x05\0\0\0\xff", "is a binary file", "Name a text"),
    "NUL": ("a.txt", b"some text\0 and more", "NUL bytes", "Name a text"),
    "UTF-16": ("a.txt", "hello\n".encode("utf-16"), "is UTF-16", "`data.encoding = utf-16`"),
    "UTF-16LE": ("a.txt", "hello né\n".encode("utf-16-le"), "is UTF-16", "`data.encoding = utf-16`"),
    "UTF-16BE": ("a.txt", "hello né\n".encode("utf-16-be"), "is UTF-16", "`data.encoding = utf-16`"),
    "UTF-32": ("a.txt", "hello\n".encode("utf-32"), "is UTF-32", "`data.encoding = utf-32`"),
    "Latin-1": ("a.txt", b"one\ntwo caf\xe9 x\n", r"byte 0xE9 at offset 11, line 2", "`data.encoding = latin-1`"),
    "Latin-1 after a mark": (
        "a.txt",
        b"\xef\xbb\xbfone\n\xe9 x\n",
        r"byte 0xE9 at offset 7, line 2",
        "`data.encoding = latin-1`",
    ),
    "Windows-1252": ("a.txt", b"it\x92s na\xefve\n", r"byte 0x92 at offset 2, line 1", "`data.encoding = cp1252`"),
    "not Windows-1252": ("a.txt", b"\x81 and \x92\n", r"byte 0x81", "`data.encoding = auto`"),
    "one bad byte": ("a.txt", "é ü ö ".encode() + b"\xff" + " ä é ü".encode(), r"0xFF", "`data.errors = replace`"),
    "cut off": ("a.txt", b"one\n\xe2\x82", r"byte 0xE2 at offset 4, line 2", "`data.errors = replace`"),
    "surrogate": ("a.txt", b"one\xed\xa0\x80", r"byte 0xED at offset 3, line 1", "`data.errors = replace`"),
    "gzip": ("a.txt", b"\x1f\x8b\x08\xff", "is a gzip archive", "Unpack"),
    "zip": ("a.zip", b"text", "is a zip archive", "Unpack"),
    "parquet": ("a.parquet", b"text", "Parquet file|further packages", ""),
    "pt": ("a.PT", b"text", r"is a data file \(.pt\)", "text file"),
    "bin": ("a.bin", b"text", r"is a data file \(.bin\)", "text file"),
    "pkl": ("a.pkl", b"text", r"is a data file \(.pkl\)", "text file"),
}


@pytest.mark.parametrize(("name", "content", "message", "hint"), BAD.values(), ids=BAD.keys())
def test_bad_files(tmp_path: Path, name: str, content: bytes, message: str, hint: str) -> None:
    with pytest.raises(CorpusError, match=message) as caught:
        look_at(file_of(tmp_path, name, content))
    assert hint in caught.value.hint
    assert caught.value.message.endswith(".")


def test_the_offset_is_right_beyond_the_first_chunk(tmp_path: Path) -> None:
    path = file_of(tmp_path, "a.txt", "é\n".encode() * 700_000 + b"\xff")
    with pytest.raises(CorpusError, match="byte 0xFF at offset 2,100,000, line 700,001"):
        look_at(path)
    path = file_of(tmp_path, "b.txt", b"ab\n" * 700_000 + b"\0")
    with pytest.raises(CorpusError, match="NUL"):
        look_at(path)


def test_paths_that_are_not_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.txt")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket.txt"))
        for path in ("/dev/null", tmp_path / "fifo.txt", tmp_path / "socket.txt"):
            with pytest.raises(CorpusError, match="is a device, pipe or socket"):
                content_of(path)
    with pytest.raises(CorpusError, match="There is no file or folder"):
        content_of(tmp_path / "missing.txt")
    with pytest.raises(CorpusError, match=r"no file that matches \*\.rst"):
        content_of(tmp_path, include=("*.rst",))
    with pytest.raises(CorpusError, match="no text to read"):
        content_of()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = file_of(tmp_path, "a.txt", "text")
    path.chmod(0)
    with pytest.raises(CorpusError, match="cannot be read: permission denied"):
        look_at(path)


def test_default_split() -> None:
    def training(characters: int, size: int, fraction: float | None = None) -> int:
        document = Document(Source(Path("x"), "x", "x"), 0, characters, size)
        return Corpus((document,)).training_characters(fraction)

    assert training(1_115_394, 1_115_394) == 1_003_854  # nanoGPT's split of Shakespeare
    assert training(1_000_000_000, 1_000_000_000) == 990_000_000
    assert training(1_000_000_000, 2_000_000_000) == 995_000_000
    assert training(1000, 1000, 0.25) == 750
