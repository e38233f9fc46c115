"""More sources than `dataset.json` lists, and documents that are read once."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from gptcli.config import DataConfig
from gptcli.dataset import preparation, spool, writing
from gptcli.dataset.finding import find_sources
from gptcli.dataset.folder import open_dataset
from gptcli.dataset.preparing import tokenize
from gptcli.dataset.scanning import scan
from gptcli.dataset.splits import Part, PartReader
from gptcli.dataset.spool import Spool
from gptcli.errors import DatasetError
from gptcli.report.text import describe_dataset
from gptcli.storage import unnamed_file
from tests.tokenizer.text_samples import LESSON

FILES = 12


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "texts").mkdir()
    for number in range(FILES):
        text = f"{LESSON[7 * number :]} {number}\n" * (1 + number % 3)
        (tmp_path / f"texts/{number}é.txt").write_text(text, encoding="utf-8")
    return tmp_path / "texts"


@pytest.fixture
def few_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "LISTED_SOURCES", FILES - 1)


@pytest.mark.usefixtures("few_are_listed")
def test_many_sources_are_summed_up(tmp_path: Path, folder: Path) -> None:
    prepared = tokenize(folder, tmp_path / "out").dataset
    values = json.loads((tmp_path / "out/dataset.json").read_bytes())
    assert values["format"] == 2
    assert "sources" not in values
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    lines = sorted(f"{hashlib.sha256(data).hexdigest()}  {name}\n".encode() for name, data in files.items())
    assert values["source_total"] == {
        "files": FILES,
        "bytes": sum(map(len, files.values())),
        "sha256": hashlib.sha256(b"".join(lines)).hexdigest(),
    }
    again = open_dataset(tmp_path / "out", verify=True)
    assert again.fingerprint == prepared.fingerprint
    assert again.source_total
    assert again.source_total.files == FILES
    report = describe_dataset(tmp_path / "out")
    assert report.sources == ()
    assert report.source_total
    assert report.source_total.name == f"{FILES} files"
    assert tokenize(folder, tmp_path / "out").reused


def test_the_key_and_the_ids_do_not_depend_on_it(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = tokenize(folder, tmp_path / "listed").dataset
    monkeypatch.setattr(writing, "LISTED_SOURCES", FILES - 1)
    summed = tokenize(folder, tmp_path / "summed").dataset
    assert summed.fingerprint == listed.fingerprint
    keys = {json.loads((tmp_path / name / "dataset.json").read_bytes())["key"] for name in ("listed", "summed")}
    assert len(keys) == 1


@pytest.mark.usefixtures("few_are_listed")
@pytest.mark.parametrize(
    "change",
    [
        {"format": 1},
        {"sources": [{"name": "a", "size": 1, "sha256": "0" * 64}]},
        {"source_total": None},
        {"source_total": {"files": 0, "bytes": 0, "sha256": "0" * 64}},
        {"format": 3},
    ],
)
def test_a_sum_that_does_not_fit_is_refused(tmp_path: Path, folder: Path, change: dict[str, Any]) -> None:
    tokenize(folder, tmp_path / "out")
    path = tmp_path / "out/dataset.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | change), encoding="utf-8")
    with pytest.raises(DatasetError):
        open_dataset(tmp_path / "out")


def texts_of(folder: Path, kept: Spool | None) -> list[list[list[str]]]:
    """The pieces of each document, whole and a part of it, twice."""
    with find_sources([str(folder)], DataConfig(doc_separator="\n")) as found:
        corpus = scan(found, lambda _: None, spool=kept)
        reader = PartReader(corpus)
        return [
            [
                list(reader.read(part))
                for part in (Part(document, 0, document.characters), Part(document, 1, min(5, document.characters)))
            ]
            for _ in range(2)
            for document in corpus.documents
        ]


@pytest.mark.parametrize("room", [0, 1000, 1 << 30])
def test_documents_come_in_the_same_pieces(folder: Path, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "_MAX_BYTES", room)
    monkeypatch.setattr(spool, "_BLOCK_BYTES", 300)
    expected = texts_of(folder, None)
    with unnamed_file() as file:
        assert texts_of(folder, Spool(file)) == expected


def test_a_full_disk_costs_nothing_but_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, real, left = texts_of(folder, None), os.pwrite, [2]

    def pwrite(descriptor: int, data: bytes, place: int) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        return real(descriptor, data[:100], place)

    monkeypatch.setattr(os, "pwrite", pwrite)
    monkeypatch.setattr(spool, "_BLOCK_BYTES", 300)
    with unnamed_file() as file:
        assert texts_of(folder, Spool(file)) == expected
    assert left[0] < 0


def test_documents_of_a_source_that_is_left_out_are_forgotten() -> None:
    with unnamed_file() as file:
        kept = Spool(file)
        for text in ("one", "two", "", "three"):
            kept.add([text.encode()] if text else [])
        assert [kept.read(number) for number in range(5)] == [["one"], ["two"], [], ["three"], []]
        kept.cut(1)
        kept.add(["né".encode(), b"w"])
        assert [kept.read(number) for number in range(3)] == [["one"], ["né", "w"], []]


def test_no_place_for_temporary_files(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_it = tokenize(folder, tmp_path / "with").dataset.fingerprint

    def none() -> Any:
        raise preparation.StorageError("There is no temporary folder.")

    monkeypatch.setattr(preparation.storage, "unnamed_file", none)
    assert tokenize(folder, tmp_path / "without").dataset.fingerprint == with_it
