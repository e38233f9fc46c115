"""Kept hashes: an unchanged file is not read again, and a changed one always is."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from gptcli.config import DataConfig, TokenizerConfig
from gptcli.dataset import hashes
from gptcli.dataset.finding import find_sources
from gptcli.dataset.folder import open_dataset
from gptcli.dataset.hashes import HASHES_FILE, KeptHashes, SourceHashes
from gptcli.dataset.key import dataset_key
from gptcli.dataset.manifest import SourceEntry, digest
from gptcli.dataset.preparing import Prepared, find_or_prepare, tokenize
from gptcli.dataset.sources import Source
from gptcli.errors import CorpusError, DatasetError
from tests.tokenizer.text_samples import LESSON

TEXT = LESSON * 4
HOUR = 3_600_000_000_000


@pytest.fixture(autouse=True)
def always_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashes, "_WORTH_BYTES", 0)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file was written an hour ago."""
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + HOUR)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of sources that are hashed, and of shards."""
    names: list[str] = []
    of_sources, of_shards = SourceHashes._add, hashes.mismatch

    def add(self: SourceHashes, source: Source, sha256: bytes) -> None:
        names.append(source.name)
        of_sources(self, source, sha256)

    def mismatch(folder: Path, files: Any, *, hashes: bool = True) -> str:
        names.extend(files if hashes else [])
        return of_shards(folder, files, hashes=hashes)

    monkeypatch.setattr(SourceHashes, "_add", add)
    monkeypatch.setattr(hashes, "mismatch", mismatch)
    return names


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def prepare(book: Path) -> Prepared:
    return find_or_prepare([str(book)], [book.parent / "data"], TokenizerConfig(), DataConfig())


@pytest.mark.usefixtures("later")
def test_an_unchanged_text_and_its_dataset_are_hashed_once(book: Path, hashed: list[str]) -> None:
    first = prepare(book)
    assert hashed == ["book.txt"]
    hashed.clear()
    assert prepare(book).reused
    tokenize(book, first.dataset.path)
    open_dataset(first.dataset.path)
    assert hashed == []


def test_a_file_that_was_written_just_now_is_hashed_again(book: Path, hashed: list[str]) -> None:
    prepare(book)
    prepare(book)
    assert hashed == ["book.txt", "book.txt"]


def test_a_dataset_without_hashes_gets_them(book: Path, hashed: list[str], later: None) -> None:
    folder = prepare(book).dataset.path
    (folder / HASHES_FILE).unlink()
    hashed.clear()
    assert prepare(book).reused
    assert sorted(hashed) == ["book.txt", "train-00000.npy", "val-00000.npy"]
    hashed.clear()
    prepare(book)
    assert hashed == []


def replace_and_set_times(book: Path) -> None:
    """Another text of the same length, with the old modification time."""
    before = book.stat()
    book.write_text(TEXT.swapcase(), encoding="utf-8")
    os.utime(book, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_by_another_file(book: Path) -> None:
    other = book.with_name("other")
    other.write_text(TEXT.swapcase(), encoding="utf-8")
    shutil.copystat(book, other)
    other.replace(book)


def append(book: Path) -> None:
    with open(book, "a", encoding="utf-8") as file:
        file.write("!")


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("change", [replace_and_set_times, replace_by_another_file, append])
def test_a_changed_text_is_noticed(book: Path, change: Any) -> None:
    first = prepare(book).dataset
    change(book)
    assert prepare(book).dataset.fingerprint != first.fingerprint


@pytest.mark.usefixtures("later")
def test_a_control_without_times_and_inode(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashes, "_stamp", lambda status: hashes._STAMP.pack(status.st_size, 0, 0, 0))
    monkeypatch.setattr(SourceHashes, "_refuse_change", lambda *_: None)
    first = prepare(book).dataset
    replace_and_set_times(book)
    assert prepare(book).dataset.fingerprint == first.fingerprint


@pytest.mark.usefixtures("later")
def test_a_changed_shard_is_noticed(book: Path) -> None:
    folder = prepare(book).dataset.path
    shard, before = folder / "train-00000.npy", (folder / "train-00000.npy").stat()
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(DatasetError, match="was altered"):
        open_dataset(folder)


@pytest.mark.usefixtures("later")
def test_hashes_that_cannot_be_used_are_computed_again(book: Path, hashed: list[str]) -> None:
    folder = prepare(book).dataset.path
    good = (folder / HASHES_FILE).read_bytes()
    flipped = good[:40] + bytes([good[40] ^ 1]) + good[41:]
    for bad in (b"", good[:-1], flipped, b"{}", good + b"\0"):
        hashed.clear()
        (folder / HASHES_FILE).write_bytes(bad)
        assert prepare(book).reused
        assert "book.txt" in hashed
        assert (folder / HASHES_FILE).read_bytes() == good, "it is mended"


@pytest.mark.usefixtures("later")
def test_a_folder_that_cannot_be_written_is_no_problem(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = prepare(book).dataset.path
    (folder / HASHES_FILE).unlink()
    (folder / HASHES_FILE).mkdir()
    assert prepare(book).reused


@pytest.mark.usefixtures("later")
def test_hashes_are_for_a_place(book: Path) -> None:
    """A file of the same name, size, times and even inode elsewhere is another file."""
    first = prepare(book)
    with find_sources([str(book)], DataConfig()) as found:
        kept = KeptHashes([first.dataset.path])
        assert kept.sha256(hashes.key_of_path(found.sources[0].path), book.stat())
        assert not kept.sha256(hashes.key_of_path(book.with_name("other.txt")), book.stat())


@pytest.mark.parametrize("several", [False, True])
def test_a_text_that_changes_between_hashing_and_the_end(
    tmp_path: Path, book: Path, several: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if several:
        (tmp_path / "second.txt").write_text("Another text", encoding="utf-8")
    real = SourceHashes.refuse_changes

    def change(self: SourceHashes) -> None:
        append(book)
        real(self)

    monkeypatch.setattr(SourceHashes, "refuse_changes", change)
    with pytest.raises(CorpusError, match="changed while it was read"):
        tokenize([*tmp_path.glob("*.txt")], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_keys_are_those_of_earlier_versions(tmp_path: Path) -> None:
    entries = [SourceEntry(name=f"{name}é\n.txt", size=3, sha256=64 * name) for name in "ab"]
    sources = [Source(tmp_path / f"{name}.txt", name, name) for name in "ab"]
    settings = ["bpe", 8192, None]
    dumped = [entry.model_dump() for entry in entries]
    for one in sources:
        one.path.write_text("x", encoding="utf-8")
    paired = list(zip(sources, entries, strict=True))
    assert dataset_key(settings, DataConfig(), paired) == digest([1, settings, dumped])
    reading = DataConfig(encoding="cp1252", newline="lf")
    expected = digest([1, settings, dumped, {"encoding": "cp1252", "newline": "lf"}])
    assert dataset_key(settings, reading, paired) == expected


def test_a_folder_of_many_files_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "texts").mkdir()
    for number in range(30):
        (tmp_path / f"texts/{number}.txt").write_text(f"{TEXT[: 50 * number + 1]} {number}", encoding="utf-8")
    opened: list[str] = []
    real = os.open

    def counting(path: Any, *arguments: Any, **options: Any) -> int:
        if str(path).endswith(".txt"):
            opened.append(str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", counting)
    tokenize(tmp_path / "texts", tmp_path / "out", tokenizer="bpe", vocab_size=300)
    assert len(opened) == len({*opened}) == 30
