"""Token files of nanoGPT, llm.c and datatrove as datasets: the same ids and sizes as from the text itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gptcli.dataset import importing
from gptcli.dataset.folder import Dataset, Split
from gptcli.dataset.preparing import tokenize
from gptcli.dataset.previewing import preview
from gptcli.dataset.token_files import are_token_files
from gptcli.errors import CorpusError, DatasetError, UsageError
from gptcli.tokenizer.tokenizer import Tokenizer

Write = Callable[[Path, np.ndarray], None]
TEXT = "It’s naïve – 世界. \n" * 400


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A dataset of TEXT whose BPE tokenizer is used, too. Do not change it: tests share it."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    return tokenize(folder / "text.txt", folder / "data", tokenizer="bpe", vocab_size=280, val_fraction=0.2).dataset


@pytest.fixture
def known(made: Dataset) -> Path:
    return made.path / "tokenizer.json"


def ids_of(split: Split) -> np.ndarray:
    return split.stream.windows(np.array([0]), split.tokens)[0]


def nanogpt(path: Path, ids: np.ndarray) -> None:
    ids.astype("<u2").tofile(path)


def llmc(path: Path, ids: np.ndarray, magic: int = 20240520, version: int = 1, dtype: str = "<u2") -> None:
    header = np.zeros(256, dtype="<i4")
    header[:3] = magic, version, len(ids)
    path.write_bytes(header.tobytes() + ids.astype(dtype).tobytes())


def llmc_for_llama(path: Path, ids: np.ndarray) -> None:
    llmc(path, ids, 20240801, 7, "<u4")


def datatrove(path: Path, ids: np.ndarray, dtype: str = "<u2") -> None:
    ids.astype(dtype).tofile(path)
    np.array([len(ids) // 2, len(ids)], dtype="<u8").tofile(f"{path}.index")


def wide_datatrove(path: Path, ids: np.ndarray) -> None:
    datatrove(path, ids, "<u4")


def check_same(found: Dataset, made: Dataset) -> None:
    assert found.fingerprint == made.fingerprint
    for split, expected in ((found.train, made.train), (found.val, made.val)):
        assert np.array_equal(ids_of(split), ids_of(expected))
        assert (split.characters, split.bytes) == (expected.characters, expected.bytes)


@pytest.mark.parametrize("write", [nanogpt, llmc, llmc_for_llama, datatrove, wide_datatrove])
def test_two_files_are_the_dataset_of_their_text(made: Dataset, known: Path, tmp_path: Path, write: Write) -> None:
    suffix = "ds" if "datatrove" in write.__name__ else "bin"
    files = [tmp_path / f"{split}.{suffix}" for split in ("train", "val")]
    for file, split in zip(files, (made.train, made.val), strict=True):
        write(file, ids_of(split))
    prepared = tokenize(files, tmp_path / "data", tokenizer=known)
    check_same(prepared.dataset, made)
    assert prepared.dataset.start_id == made.start_id
    assert tokenize(files, tmp_path / "data", tokenizer=known).reused


def test_control_sizes_of_other_tokens_are_noticed(
    made: Dataset, known: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Tokenizer.token_bytes
    monkeypatch.setattr(Tokenizer, "token_bytes", lambda self, token: plain(self, token)[:1])
    with pytest.raises(AssertionError):
        test_two_files_are_the_dataset_of_their_text(made, known, tmp_path, nanogpt)


def test_a_folder_by_its_format(made: Dataset, known: Path, tmp_path: Path) -> None:
    (tmp_path / "fine").mkdir()
    (tmp_path / "fine/readme.txt").write_text("not a token file")
    ids = ids_of(made.train)
    for number, part in enumerate(np.split(ids, [100, 350])):
        llmc(tmp_path / f"fine/fineweb_train_{number:06}.bin", part)
    llmc(tmp_path / "fine/fineweb_val_000000.bin", ids_of(made.val))
    settings = {"data.format": "llmc"}
    check_same(tokenize(tmp_path / "fine", tmp_path / "data", tokenizer=known, settings=settings).dataset, made)


@pytest.mark.parametrize("fraction", [None, 0.25])
def test_the_last_part_of_one_file_is_held_out(
    made: Dataset, known: Path, tmp_path: Path, fraction: float | None
) -> None:
    ids = ids_of(made.train)
    nanogpt(tmp_path / "all.bin", ids)
    dataset = tokenize(tmp_path / "all.bin", tmp_path / "data", tokenizer=known, val_fraction=fraction).dataset
    assert dataset.val.tokens == round((fraction or 0.1) * len(ids) - 0.4)
    assert np.array_equal(np.concatenate([ids_of(dataset.train), ids_of(dataset.val)]), ids)


def test_blocks_and_files_are_cut_anywhere(
    made: Dataset, known: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "_BLOCK", 7)
    ids = ids_of(made.train)
    for number, part in enumerate(np.split(ids, [11, 14, len(ids) - 5])):
        nanogpt(tmp_path / f"{number}.bin", part)
    files = sorted(tmp_path.glob("*.bin"))
    dataset = tokenize(files, tmp_path / "data", tokenizer=known, val_fraction=0.1).dataset
    assert np.array_equal(np.concatenate([ids_of(dataset.train), ids_of(dataset.val)]), ids)


def test_ends_of_text_separate_documents(made: Dataset, known: Path, tmp_path: Path) -> None:
    end = made.tokenizer.end_of_text
    assert end is not None
    nanogpt(tmp_path / "all.bin", np.concatenate([ids_of(made.train), [end], ids_of(made.train), [end]]))
    dataset = tokenize(tmp_path / "all.bin", tmp_path / "data", tokenizer=known).dataset
    assert (dataset.documents, dataset.uses_end_of_text, dataset.start_id) == (2, True, end)
    assert dataset.train.bytes + dataset.val.bytes == 2 * made.train.bytes


def bad_files(folder: Path) -> dict[str, tuple[str, str]]:
    """Files that cannot be used, by name, each with a fact that the message names and one of the hint."""
    nanogpt(folder / "beyond.bin", np.array([5, 6, 280, 7]))
    (folder / "odd.bin").write_bytes(b"\1\0\2")
    (folder / "empty.bin").write_bytes(b"")
    llmc(folder / "version.bin", np.arange(9), 20240520, 2)
    llmc(folder / "cut.bin", np.arange(9))
    (folder / "cut.bin").write_bytes((folder / "cut.bin").read_bytes()[:-4])
    (folder / "alone.ds").write_bytes(b"\1\0" * 9)
    datatrove(folder / "longer.ds", np.arange(9))
    (folder / "longer.ds").write_bytes(b"\1\0" * 8)
    nanogpt(folder / "val.bin", np.arange(9))
    return {
        "beyond.bin": ("the id 280 at place 2", "`tokenizer.kind`"),
        "odd.bin": ("3 bytes", "`data.format`"),
        "empty.bin": ("no ids", ""),
        "version.bin": ("version 2", "version 1"),
        "cut.bin": ("7 ids, but its header says 9", "again"),
        "alone.ds": ("'alone.ds.index'", ""),
        "longer.ds": ("16 bytes, but its index says 9 ids", ""),
        "val.bin": ("for validation", "training"),
        "nothing.bin": ("nothing.bin", "path"),
    }


def test_what_cannot_be_used(known: Path, tmp_path: Path) -> None:
    for name, (message, hint) in bad_files(tmp_path).items():
        with pytest.raises(CorpusError) as caught:
            tokenize(tmp_path / name, tmp_path / "data", tokenizer=known)
        assert message in caught.value.message
        assert hint in caught.value.hint
        assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(("magic", "fact"), [(20240522, "a file of questions"), (7, "magic 7, version 1")])
def test_another_file_is_not_taken_for_llmc(known: Path, tmp_path: Path, magic: int, fact: str) -> None:
    llmc(tmp_path / "all.bin", np.arange(9), magic)
    with pytest.raises(CorpusError, match=fact):
        tokenize(tmp_path / "all.bin", tmp_path / "data", tokenizer=known, settings={"data.format": "llmc"})


def test_llmc_is_not_taken_for_nanogpt(known: Path, tmp_path: Path) -> None:
    """Its header would be read as ids."""
    llmc(tmp_path / "all.bin", np.arange(99))
    with pytest.raises(CorpusError) as caught:
        tokenize(tmp_path / "all.bin", tmp_path / "data", tokenizer=known, settings={"data.format": "nanogpt"})
    assert "`data.format = llmc`" in caught.value.hint


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ({"tokenizer": "auto"}, "which tokenizer"),
        ({"settings": {"data.encoding": "cp1252"}}, "`data.encoding`"),
        ({"val_fraction": 0.2}, "`data.val_fraction`"),
    ],
)
def test_settings_that_token_files_need_and_cannot_use(
    known: Path, tmp_path: Path, options: dict[str, object], fact: str
) -> None:
    for name in ("train.bin", "val.bin"):
        nanogpt(tmp_path / name, np.arange(99))
    with pytest.raises(UsageError) as caught:
        tokenize(
            [tmp_path / "train.bin", tmp_path / "val.bin"],
            tmp_path / "data",
            **({"tokenizer": known} | options),  # type: ignore[arg-type]
        )
    assert fact in caught.value.message


def test_other_tokens_at_the_same_place(made: Dataset, known: Path, tmp_path: Path) -> None:
    file = tmp_path / "all.bin"
    nanogpt(file, ids_of(made.train))
    tokenize(file, tmp_path / "data", tokenizer=known)
    nanogpt(file, ids_of(made.train)[1:])
    with pytest.raises(DatasetError, match="other tokens"):
        tokenize(file, tmp_path / "data", tokenizer=known)
    assert not tokenize(file, tmp_path / "data", tokenizer=known, force=True).reused


def test_files_are_recognized_by_name_or_format() -> None:
    assert are_token_files(["a.bin", "b.ds"], "auto")
    assert are_token_files(["folder"], "llmc")
    assert not are_token_files(["a.bin", "b.txt"], "auto")
    assert not are_token_files(["a.bin"], "text")


@pytest.mark.parametrize("write", [nanogpt, llmc, wide_datatrove])
def test_a_look_at_the_files(made: Dataset, known: Path, tmp_path: Path, write: Write) -> None:
    form = {nanogpt: "nanogpt", llmc: "llmc", wide_datatrove: "datatrove"}[write]
    file = tmp_path / ("train.ds" if form == "datatrove" else "train.bin")
    write(file, ids_of(made.train))
    before = sorted(tmp_path.iterdir())
    seen = preview(file, settings={"tokenizer.kind": str(known)})
    assert (seen.files, seen.documents) == ({form: 1}, 1)
    assert (seen.characters, seen.bytes) == (made.train.characters, made.train.bytes)
    assert seen.beginnings == (TEXT[:500],)
    bits = 32 if form == "datatrove" else 16
    assert any(f"{made.train.tokens:,} ids of {bits} bits" in note for note in seen.notes)
    assert f"the last {made.train.tokens // 10:,} tokens" in seen.notes[-1]
    assert sorted(tmp_path.iterdir()) == before


def test_a_look_at_files_checks_them_as_an_import_does(made: Dataset, known: Path, tmp_path: Path) -> None:
    nanogpt(tmp_path / "train.bin", np.array([1, 2, 65_000]))
    with pytest.raises(CorpusError, match="65,000"):
        preview(tmp_path / "train.bin", settings={"tokenizer.kind": str(known)})
    with pytest.raises(UsageError, match="which tokenizer"):
        preview(tmp_path / "train.bin")
    nanogpt(tmp_path / "val.bin", np.array([1, 2]))
    with pytest.raises(CorpusError, match="for validation"):
        preview(tmp_path / "val.bin", settings={"tokenizer.kind": str(known)})
