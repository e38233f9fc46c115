"""A text that has grown: the ids of its beginning come from the earlier dataset, and equal those of encoding all."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from gptcli.dataset import preparation, progress, reusing, shards, writing
from gptcli.dataset.folder import open_dataset
from gptcli.dataset.preparing import Prepared, tokenize
from gptcli.tokenizer import bytelevel, processes
from gptcli.tokenizer.bytelevel import Tokenizer
from gptcli.tokenizer.char import char_tokenizer
from gptcli.tokenizer.corpus import pattern
from gptcli.tokenizer.processes import encoding
from tests.tokenizer.text_samples import LESSON

WORDS = LESSON.split()


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (preparation, writing):
        monkeypatch.setattr(module, "SAVE_EVERY_BYTES", 700)
    monkeypatch.setattr(shards, "MAX_SHARD_TOKENS", 900)
    monkeypatch.setattr(pattern, "PIECE_CHARACTERS", 300)
    monkeypatch.setattr(bytelevel, "_SHORT_CHARACTERS", 30)


@pytest.fixture
def given(tmp_path: Path, bpe: Tokenizer) -> Path:
    path = tmp_path / "tokenizer.json"
    path.write_text(bpe.to_json(), encoding="utf-8")
    return path


def words(count: int, seed: int = 0) -> str:
    chance = random.Random(seed)
    return " ".join(chance.choices(WORDS, k=count))


def write(folder: Path, texts: dict[str, str]) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def ids_and_text(folder: Path) -> dict[str, Any]:
    """The shards and the manifest, apart from the name."""
    manifest = json.loads((folder / "dataset.json").read_bytes())
    return {path.name: path.read_bytes() for path in folder.glob("*.npy")} | manifest | {"name": ""}


def again(texts: Path, given: Path, out: Path) -> Prepared:
    """The dataset after the text has changed. Fails unless it equals that of encoding everything."""
    prepared = tokenize(texts, out, tokenizer=given, force=True)
    fresh = tokenize(texts, out.with_name("fresh"), tokenizer=given, force=True)
    assert not reused(fresh)
    assert ids_and_text(prepared.dataset.path) == ids_and_text(fresh.dataset.path)
    shutil.rmtree(fresh.dataset.path)
    open_dataset(out, verify=True)
    return prepared


def reused(prepared: Prepared) -> bool:
    return any("were reused" in note for note in prepared.notes)


BOOK = {"book.txt": words(2500)}
SEVERAL = {f"{number}.txt": words(500, number) for number in range(4)}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (BOOK, {"book.txt": BOOK["book.txt"] + words(900, 1)}, True),
        (BOOK, {"book.txt": BOOK["book.txt"] + " " + words(9000, 1)}, True),
        (BOOK, {"book.txt": BOOK["book.txt"][:-2000]}, True),
        (BOOK, {"book.txt": "x" + BOOK["book.txt"]}, False),
        (BOOK, BOOK | {"more.txt": words(700, 5)}, False),  # documents are separated now
        (SEVERAL, SEVERAL | {"5.txt": words(700, 5)}, True),
        (SEVERAL, SEVERAL | {"2a.txt": words(700, 5)}, True),
        (SEVERAL, SEVERAL | {"3.txt": SEVERAL["3.txt"] + "!", "4.txt": words(100)}, True),
        (SEVERAL, {"0.txt": SEVERAL["0.txt"] + SEVERAL["1.txt"]} | {n: SEVERAL[n] for n in ("2.txt", "3.txt")}, True),
        (SEVERAL, SEVERAL | {"0.txt": "Another beginning."}, False),
    ],
)
def test_the_ids_are_those_of_encoding_everything(
    tmp_path: Path, given: Path, before: dict[str, str], after: dict[str, str], expected: bool
) -> None:
    texts, out = write(tmp_path / "texts", before), tmp_path / "out"
    assert not reused(tokenize(texts, out, tokenizer=given))
    write(texts, after)
    assert reused(again(texts, given, out)) == expected
    write(texts, after | {"9.txt": words(300, 3)})
    again(texts, given, out)  # marks of a dataset that was made in this way


def test_only_the_rest_is_encoded(tmp_path: Path, given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, out = write(tmp_path / "texts", BOOK), tmp_path / "out"
    tokenize(texts, out, tokenizer=given)
    write(texts, {"book.txt": BOOK["book.txt"] + words(200, 1)})
    encoded: list[str] = []

    def counting(tokenizer: Tokenizer, size: int) -> Any:
        real = tokenizer.encode_texts
        monkeypatch.setattr(tokenizer, "encode_texts", lambda found: real(encoded.append(t) or t for t in found))
        return encoding(tokenizer, size)

    monkeypatch.setattr(processes, "encoding", counting)
    tokenize(texts, out, tokenizer=given, force=True)
    assert sum(map(len, encoded)) < len(BOOK["book.txt"]) / 2


def test_ids_of_two_bytes_are_not_reused_where_one_is_enough(
    tmp_path: Path, given: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions wrote characters in two bytes."""
    given.write_text(char_tokenizer(BOOK["book.txt"]).to_json(), encoding="utf-8")
    texts, out = write(tmp_path / "texts", BOOK), tmp_path / "out"
    with monkeypatch.context() as earlier:
        for module in (writing, progress, shards):
            earlier.setattr(module, "dtype_for", lambda vocab_size: "uint16")
        tokenize(texts, out, tokenizer=given)
    write(texts, {"book.txt": BOOK["book.txt"] + words(900, 1)})
    assert not reused(again(texts, given, out))


def test_every_place_to_grow_from(tmp_path: Path, given: Path) -> None:
    """The old text ends at each of many places: within words, blanks and contractions."""
    texts, out = tmp_path / "texts", tmp_path / "out"
    chance = random.Random(4)
    text = words(1800, 7)
    for _ in range(12):
        end = chance.randrange(1500, len(text))
        write(texts, {"book.txt": text[:end]})
        tokenize(texts, out, tokenizer=given, force=True)
        write(texts, {"book.txt": text})
        again(texts, given, out)


def test_a_control_without_comparing_the_text(tmp_path: Path, given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, out = write(tmp_path / "texts", BOOK), tmp_path / "out"
    tokenize(texts, out, tokenizer=given)
    write(texts, {"book.txt": "x" + BOOK["book.txt"]})
    monkeypatch.setattr(reusing, "_same", lambda marks, *_, **__: iter(marks))
    with pytest.raises(AssertionError):
        again(texts, given, out)


@pytest.mark.parametrize("damage", ["train-00000.npy", "marks.json", "tokenizer.json"])
def test_a_damaged_dataset_is_not_reused(tmp_path: Path, given: Path, damage: str) -> None:
    texts, out = write(tmp_path / "texts", BOOK), tmp_path / "out"
    tokenize(texts, out, tokenizer=given)
    data = bytearray((out / damage).read_bytes())
    data[300] ^= 1
    (out / damage).write_bytes(data)
    write(texts, {"book.txt": BOOK["book.txt"] + words(200, 1)})
    assert reused(again(texts, given, out)) == (damage == "tokenizer.json"), "which is not read"
