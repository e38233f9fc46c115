"""An interrupted preparation is continued, and ends with the bytes of an unbroken one."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gptcli.config import DataConfig, TokenizerConfig
from gptcli.dataset import preparation, progress, shards, vocabulary, writing
from gptcli.dataset.folder import is_dataset, open_dataset
from gptcli.dataset.preparing import Prepared, find_or_prepare, tokenize
from gptcli.errors import CorpusError, StorageError
from gptcli.storage import FolderLock, unfinished_of
from gptcli.tokenizer import bytelevel, processes
from gptcli.tokenizer.bytelevel import Tokenizer
from gptcli.tokenizer.corpus import pattern
from tests.tokenizer.text_samples import LESSON

SAVE_EVERY = 700
KINDS = ["char", "bpe", "given", "several", "rows"]


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (preparation, writing):
        monkeypatch.setattr(module, "SAVE_EVERY_BYTES", SAVE_EVERY)
    monkeypatch.setattr(shards, "MAX_SHARD_TOKENS", 900)
    monkeypatch.setattr(pattern, "PIECE_CHARACTERS", 300)
    monkeypatch.setattr(bytelevel, "_SHORT_CHARACTERS", 30)
    monkeypatch.setattr("gptcli.tokenizer.char._PART_CHARACTERS", 300)


def inputs(folder: Path, kind: str) -> list[Path]:
    """Texts with repeated and new words, of which several are shorter and longer than the steps."""
    chance = random.Random(1)
    words = LESSON.split()
    if kind == "rows":
        rows = (" ".join(chance.choices(words, k=chance.randint(1, 400))) for _ in range(25))
        texts = {"rows.jsonl": "\n".join(json.dumps({"text": row}) for row in rows)}
    else:
        texts = {
            f"{number}.txt": " ".join(chance.choices(words, k=length)) + "\n"
            for number, length in enumerate([1500] if kind != "several" else [3, 900, 1, 40, 500, 2])
        }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, tmp_path: Path, bpe: Tokenizer) -> Callable[..., Prepared]:
    """Tokenizes one kind of text to a folder."""
    texts = inputs(tmp_path, request.param)
    given = tmp_path / "tokenizer.json"
    given.write_text(bpe.to_json(), encoding="utf-8")
    kind = {"char": "char", "given": str(given), "rows": str(given)}.get(request.param, "bpe")
    return lambda out, **more: tokenize(texts, out, tokenizer=kind, vocab_size=300 if kind == "bpe" else None, **more)


def content(folder: Path) -> dict[str, bytes]:
    """The files of a dataset; its name apart."""
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    files["dataset.json"] = files["dataset.json"].replace(f'"{folder.name}"'.encode(), b'""')
    return files


class Interruption:
    """Raises an error at a call of a method."""

    def __init__(self, at: int, error: BaseException) -> None:
        self.left, self.error = at, error

    def __call__(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                raise self.error
            return real(*arguments, **options)

        return act


def interrupted(out: Path, make: Callable[..., Prepared], at: int, error: BaseException | None = None) -> bool:
    """Make a dataset, interrupted when ids are written for the `at`-th time. False where it ended before."""
    cut = Interruption(at, error or KeyboardInterrupt())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards.ShardWriter, "write", cut(shards.ShardWriter.write))
        try:
            make(out)
        except type(cut.error):
            return True
    return False


def test_interrupted_anywhere(tmp_path: Path, make: Callable[..., Prepared]) -> None:
    whole = make(tmp_path / "whole")
    assert not any("Continued" in note for note in whole.notes)
    places = 0
    for at in range(1, 200, 3):
        out = tmp_path / f"out{at}"
        if not interrupted(out, make, at):
            break
        assert not is_dataset(out)
        notes = make(out).notes
        places += any("Continued after" in note for note in notes)
        assert content(out) == content(whole.dataset.path), f"interrupted at {at}"
        assert open_dataset(out, verify=True).documents == whole.dataset.documents
        assert not unfinished_of(out).exists()
        shutil.rmtree(out)
    assert places > 3


def test_interrupted_again_and_again(tmp_path: Path, make: Callable[..., Prepared]) -> None:
    """Each process gets only a little further."""
    whole, out, rounds = make(tmp_path / "whole"), tmp_path / "out", 0
    while interrupted(out, make, 9):
        rounds += 1
        assert rounds < 100
    assert rounds > 1
    assert content(out) == content(whole.dataset.path)


@pytest.fixture
def book(tmp_path: Path) -> Path:
    return inputs(tmp_path, "bpe")[0]


def make_book(book: Path) -> Callable[..., Prepared]:
    return lambda out, **more: tokenize(book, out, tokenizer="bpe", vocab_size=300, **more)


def test_a_control_that_continues_elsewhere(tmp_path: Path, book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, out = make_book(book), tmp_path / "out"
    whole = make(tmp_path / "whole").dataset.path
    assert interrupted(out, make, 8)
    real = progress.Place.of
    monkeypatch.setattr(progress.Place, "of", lambda begun, **place: real(begun, **place | {"character": 1}))
    shutil.rmtree(unfinished_of(out))
    assert interrupted(out, make, 8)
    try:
        make(out)
    except CorpusError:
        return
    assert content(out) != content(whole)


def test_a_vocabulary_is_learned_once(tmp_path: Path, book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, out = make_book(book), tmp_path / "out"
    whole = make(tmp_path / "whole")
    assert interrupted(out, make, 1)
    monkeypatch.setattr(vocabulary, "train_bpe", None)
    assert [note for note in make(out).notes if "Continued" not in note] == whole.notes
    assert content(out) == content(whole.dataset.path)


def test_several_processes_and_one_continue_each_other(
    tmp_path: Path, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, whole = make_book(book), make_book(book)(tmp_path / "whole").dataset.path
    for cores in ((4, 1), (1, 4)):
        out = tmp_path / f"out{cores[0]}"
        monkeypatch.setattr(processes, "BYTES_EACH", 1)
        monkeypatch.setattr(processes, "_BATCH_CHARACTERS", 900)
        monkeypatch.setattr(processes, "cores", lambda cores=cores: cores[0])
        assert interrupted(out, make, 12)
        monkeypatch.setattr(processes, "cores", lambda cores=cores: cores[1])
        assert any("Continued" in note for note in make(out).notes)
        assert content(out) == content(whole)


def damage_shard(folder: Path) -> None:
    shard = max(folder.glob("*.npy"))
    data = bytearray(shard.read_bytes())
    data[128] ^= 1
    shard.write_bytes(data)


def cut_shard(folder: Path) -> None:
    shard = max(folder.glob("*.npy"))
    shard.write_bytes(shard.read_bytes()[:-200])


def damage_finished_shard(folder: Path) -> None:
    (shard := folder / "train-00000.npy").write_bytes(shard.read_bytes()[:-1] + b"\xff")


def damage_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{", encoding="utf-8")


def damage_state(folder: Path) -> None:
    folder.with_suffix(".unfinished.json").write_bytes(b'{"format": 1')


def other_version(folder: Path) -> None:
    state = folder.with_suffix(".unfinished.json")
    state.write_text(json.dumps(json.loads(state.read_bytes()) | {"version": "0.0.1"}), encoding="utf-8")


def remove_state(folder: Path) -> None:
    folder.with_suffix(".unfinished.json").unlink()


@pytest.mark.parametrize(
    "damage",
    [damage_shard, cut_shard, damage_finished_shard, damage_tokenizer, damage_state, other_version, remove_state],
)
def test_damaged_work_is_begun_anew(tmp_path: Path, book: Path, damage: Callable[[Path], None]) -> None:
    make, out = make_book(book), tmp_path / "out"
    whole = make(tmp_path / "whole").dataset.path
    assert interrupted(out, make, 10)
    damage(unfinished_of(out))
    assert not any("Continued" in note for note in make(out).notes)
    assert content(out) == content(whole)


def test_work_on_another_text_is_not_continued(tmp_path: Path, book: Path) -> None:
    make, out = make_book(book), tmp_path / "out"
    assert interrupted(out, make, 10)
    text = book.read_text(encoding="utf-8")
    book.write_text(text.replace("e", "3", 1), encoding="utf-8")
    assert not any("Continued" in note for note in make(out).notes)
    assert content(out) == content(make(tmp_path / "whole").dataset.path)


def test_outdated_work_of_train_is_removed(tmp_path: Path, book: Path) -> None:
    root = tmp_path / "data"

    def make(size: int) -> Prepared:
        config = TokenizerConfig(kind="bpe", vocab_size=size)
        return find_or_prepare([str(book)], [root], config, DataConfig())

    def unfinished() -> Iterator[Path]:
        return root.glob(".*.unfinished")

    assert interrupted(root, lambda _: make(300), 10)
    (first,) = unfinished()
    with FolderLock(first):  # a process is at work there
        assert interrupted(root, lambda _: make(310), 10)
        assert len({*unfinished()}) == 2
    assert interrupted(root, lambda _: make(310), 10)
    (second,) = unfinished()
    assert second != first
    assert any("Continued" in note for note in make(310).notes)
    assert not any(unfinished())


def test_a_second_process_works_by_itself(tmp_path: Path, book: Path) -> None:
    make, out = make_book(book), tmp_path / "out"
    assert interrupted(out, make, 10)
    home = unfinished_of(out)
    before = {path: path.stat().st_mtime_ns for path in home.rglob("*")}
    with FolderLock(home):
        assert not any("Continued" in note for note in make(out).notes)
        assert {path: path.stat().st_mtime_ns for path in home.rglob("*")} == before
    assert make(out).reused
    assert not home.exists()


def test_what_a_text_is_refused_for_leaves_nothing(tmp_path: Path, book: Path) -> None:
    out = tmp_path / "out"
    assert interrupted(out, make_book(book), 10, CorpusError("The text changed."))
    assert not unfinished_of(out).exists()


def test_a_full_disk_keeps_the_work(tmp_path: Path, book: Path) -> None:
    out = tmp_path / "out"
    assert interrupted(out, make_book(book), 10, StorageError("The disk is full."))
    assert any("Continued" in note for note in make_book(book)(out).notes)


def test_a_small_text_leaves_no_work(tmp_path: Path, book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "SAVE_EVERY_BYTES", 1 << 26)
    assert interrupted(tmp_path / "out", make_book(book), 10)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.txt"]
