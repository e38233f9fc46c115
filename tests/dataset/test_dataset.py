"""Dataset folders: what preparing writes, when it reuses, and how damage is reported."""

from __future__ import annotations

import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcli.config import DataConfig, TokenizerConfig
from gptcli.dataset import preparation, shards, splits, vocabulary, writing
from gptcli.dataset.folder import Dataset, is_dataset, open_dataset
from gptcli.dataset.place import dataset_roots
from gptcli.dataset.preparing import Prepared, find_or_prepare, tokenize
from gptcli.dataset.shards import TokenStream
from gptcli.errors import CorpusError, DatasetError, StorageError, TokenizerError
from gptcli.storage import disk
from gptcli.tokenizer.char import char_tokenizer
from gptcli.tokenizer.tokenizer import load_tokenizer
from gptcli.ui.preparing import describe
from tests.tokenizer.text_samples import LESSON, some, texts

TEXT = LESSON * 4
FINGERPRINT = "5d321cf2da57d86f21d01570ed998492c8050995448538f4027f8094b972bce9"


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return str(path)


def make(out: Path, *inputs: str, kind: str = "auto", force: bool = False, **data: Any) -> Prepared:
    return tokenize(inputs, out, tokenizer=kind, vocab_size=400 if kind == "bpe" else None, force=force, **data)


def all_ids(stream: TokenStream) -> list[int]:
    ids: list[int] = stream.windows(np.array([0]), len(stream))[0].tolist()
    return ids


def everything(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def book(tmp_path: Path) -> str:
    return write(tmp_path, "book.txt", TEXT)


def splits_hold_the_text(dataset: Dataset, text: str, training: int) -> bool:
    ids = [all_ids(split.stream) for split in (dataset.train, dataset.val)]
    whole = [dataset.tokenizer.encode(part) for part in (text[:training], text[training:])]
    return ids == whole and [dataset.train.characters, dataset.val.characters] == [training, len(text) - training]


@pytest.mark.parametrize("kind", ["char", "bpe"])
def test_splits_hold_the_text(tmp_path: Path, book: str, kind: str) -> None:
    dataset = make(tmp_path / "out", book, kind=kind).dataset
    assert splits_hold_the_text(dataset, TEXT, int(0.9 * len(TEXT)))
    assert dataset.train.bytes + dataset.val.bytes == len(TEXT.encode())
    assert dataset.train.tokens == len(dataset.train.stream)
    assert dataset.tokenizer.kind == kind


def test_splits_hold_the_text_control(tmp_path: Path, book: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = splits.PartReader.read
    monkeypatch.setattr(splits.PartReader, "read", lambda self, part: (piece[::-1] for piece in real(self, part)))
    assert not splits_hold_the_text(make(tmp_path / "out", book, kind="char").dataset, TEXT, int(0.9 * len(TEXT)))


@some
@given(parts=st.lists(texts, min_size=1, max_size=3), fraction=st.floats(0.1, 0.9), size=st.integers(3, 50))
def test_any_texts(tmp_path_factory: pytest.TempPathFactory, parts: list[str], fraction: float, size: int) -> None:
    folder = tmp_path_factory.mktemp("any")
    parts = ["abcdefgh" * 3 + part.replace("\0", "") + "xyz" for part in parts]
    inputs = [write(folder, f"{n}.txt", part) for n, part in enumerate(parts)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "MAX_SHARD_TOKENS", size)
        dataset = make(folder / "out", *inputs, kind="char", val_fraction=fraction).dataset
    ids = all_ids(dataset.train.stream) + all_ids(dataset.val.stream)
    separator = [dataset.tokenizer.end_of_text] if len(parts) > 1 else []
    assert ids == [token for part in parts for token in [*separator, *dataset.tokenizer.encode(part)]]
    total = sum(map(len, parts))
    assert dataset.train.characters == int((1 - fraction) * total)
    assert dataset.train.characters + dataset.val.characters == total


def test_windows_over_shards_equal_windows_over_one() -> None:
    ids = np.arange(1000, dtype=np.uint16)
    one, several = TokenStream([ids]), TokenStream([ids[:1], ids[1:400], ids[400:410], ids[410:]])
    starts = np.array([0, 1, 395, 399, 405, 980, 5])
    expected = np.stack([ids[start : start + 20] for start in starts])
    for stream in (one, several):
        windows = stream.windows(starts, 20)
        assert windows.dtype == np.int64
        assert (windows == expected).all()
        assert stream.windows(np.array([], dtype=np.int64), 20).shape == (0, 20)
        for bad in (-1, 981):
            with pytest.raises(AssertionError):
                stream.windows(np.array([bad]), 20)


def test_shards_are_plain_numpy_files(tmp_path: Path, book: str) -> None:
    out = tmp_path / "out"
    dataset = make(out, book, kind="char").dataset
    array = np.load(out / "train-00000.npy")
    assert (array.dtype, array.tolist()) == (np.dtype("u1"), all_ids(dataset.train.stream))
    assert shards.dtype_for(256) == "uint8"
    assert shards.dtype_for(257) == "uint16"
    assert shards.dtype_for(65_535) == "uint16"
    assert shards.dtype_for(65_536) == "uint32"
    assert sorted(path.name for path in out.iterdir()) == [
        "dataset.json",
        "tokenizer.json",
        "train-00000.npy",
        "val-00000.npy",
    ]


def test_a_dataset_of_one_byte_per_token_is_that_of_two(
    tmp_path: Path, book: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions wrote two: a run on either resumes on the other."""
    monkeypatch.setattr(shards, "MAX_SHARD_TOKENS", 100)
    now = make(tmp_path / "now", book, kind="char").dataset
    for module in (shards, writing):
        monkeypatch.setattr(module, "dtype_for", lambda vocab_size: "uint16")
    before = make(tmp_path / "before", book, kind="char").dataset
    folders = [tmp_path / name for name in ("now", "before")]
    assert [{np.load(path).dtype.name for path in folder.glob("*.npy")} for folder in folders] == [
        {"uint8"},
        {"uint16"},
    ]
    assert "uint16_sha256" not in (tmp_path / "before" / "dataset.json").read_text(encoding="utf-8")
    assert now.fingerprint == before.fingerprint
    starts = np.arange(len(now.train.stream) - 8)
    assert (now.train.stream.windows(starts, 8) == before.train.stream.windows(starts, 8)).all()
    joined = TokenStream.joined([now.val.stream, before.val.stream])
    assert all_ids(joined) == 2 * all_ids(now.val.stream)


def test_the_fingerprint_is_that_of_earlier_versions(tmp_path: Path) -> None:
    """Computed by a version that wrote two bytes for each token."""
    text = write(tmp_path, "text.txt", "The quick brown fox jumps over the lazy dog.\n" * 9)
    assert make(tmp_path / "out", text, kind="char").dataset.fingerprint == FINGERPRINT


def test_the_manifest_names_no_absolute_path(tmp_path: Path) -> None:
    write(tmp_path, "books/a.txt", TEXT)
    write(tmp_path, "books/deep/b.txt", TEXT)
    make(tmp_path / "out", str(tmp_path / "books"))
    content = (tmp_path / "out" / "dataset.json").read_text(encoding="utf-8")
    assert str(tmp_path) not in content
    assert [source["name"] for source in json.loads(content)["sources"]] == ["a.txt", "deep/b.txt"]


def test_start_ids(tmp_path: Path, book: str) -> None:
    other = write(tmp_path, "other.txt", TEXT)
    line = write(tmp_path, "line.txt", "no line end in this text")
    several = make(tmp_path / "several", book, other).dataset
    assert (several.start_id, several.documents, several.uses_end_of_text) == (several.tokenizer.end_of_text, 2, True)
    for kind in ("char", "bpe"):
        one = make(tmp_path / f"one-{kind}", book, kind=kind).dataset
        assert (one.tokenizer.decode([one.start_id]), one.documents, one.uses_end_of_text) == ("\n", 1, False)
    bare = make(tmp_path / "bare", line).dataset
    assert bare.tokenizer.decode([bare.start_id]) == " "
    unspaced = make(tmp_path / "unspaced", write(tmp_path, "unspaced.txt", "一二二三" * 9), kind="char").dataset
    assert unspaced.tokenizer.decode([unspaced.start_id]) == "二"


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("kind", ["char", "bpe"])
def test_a_text_of_one_line_starts_from_a_frequent_token(tmp_path: Path, kind: str, end: str) -> None:
    """Not from its rare first word, nor from the newline at its end, which is not in the training split."""
    line = write(tmp_path, "line.txt", "Zanzibar" + " the cat and the dog" * 200 + end)
    dataset = make(tmp_path / "line", line, kind=kind).dataset
    assert dataset.tokenizer.decode([dataset.start_id]) == {"char": " ", "bpe": " the"}[kind]
    assert open_dataset(tmp_path / "line").start_id == dataset.start_id


def test_a_newline_that_is_rare_is_no_start(tmp_path: Path) -> None:
    words = " the cat and the dog" * 4000
    for name, text, start in (("rare", words + "\n" + words, " the"), ("lines", f"{words}\n" * 9, " the")):
        dataset = make(tmp_path / name, write(tmp_path, f"{name}.txt", text), kind="bpe").dataset
        assert dataset.tokenizer.decode([dataset.start_id]) == start
    short = write(tmp_path, "short.txt", (" the cat and the dog" * 400 + "\n") * 9)
    dataset = make(tmp_path / "short", short, kind="bpe").dataset
    assert dataset.tokenizer.decode([dataset.start_id]) == "\n"


def test_auto_chooses_and_says_why(tmp_path: Path, book: str, monkeypatch: pytest.MonkeyPatch) -> None:
    note = make(tmp_path / "a", book).notes[-1]
    assert "characters" in note
    assert "tokenizer.kind = bpe" not in note
    monkeypatch.setattr(vocabulary, "BPE_NOTE_FROM_BYTES", 1000)
    assert "`tokenizer.kind = bpe`" in make(tmp_path / "larger", book).notes[-1]
    monkeypatch.setattr(vocabulary, "CHAR_BELOW_BYTES", 1000)
    large = make(tmp_path / "b", book)
    assert large.dataset.tokenizer.kind == "bpe"
    assert any("BPE, since the text has" in note for note in large.notes)
    monkeypatch.undo()
    monkeypatch.setattr(vocabulary, "MAX_ALPHABET", 20)
    varied = make(tmp_path / "c", book)
    assert varied.dataset.tokenizer.kind == "bpe"
    assert any("distinct characters are too many" in note for note in varied.notes)


def test_a_vocabulary_size_asks_for_bpe(tmp_path: Path, book: str) -> None:
    """Also that which is the default; and it is another dataset than the one without."""

    def made(**settings: Any) -> Prepared:
        return find_or_prepare([book], [tmp_path / "data"], TokenizerConfig(**settings), DataConfig())

    assert made().dataset.tokenizer.kind == "char"
    stated = made(vocab_size=300)
    assert stated.dataset.tokenizer.kind == "bpe"
    assert "Tokenizer: BPE, since a vocabulary size was given." in stated.notes
    assert made(kind="bpe", vocab_size=300).dataset.path == stated.dataset.path
    assert made(vocab_size=8192).dataset.tokenizer.kind == "bpe"
    assert made(kind="bpe").reused, "8192 entries are the default"
    assert made(kind="char", vocab_size=300).dataset.tokenizer.kind == "char"


def test_a_tokenizer_from_a_file(tmp_path: Path, book: str) -> None:
    first = make(tmp_path / "first", book, kind="bpe").dataset
    other = write(tmp_path, "other.txt", "the cat sat there")
    second = make(tmp_path / "second", other, kind=str(tmp_path / "first")).dataset
    assert second.tokenizer.fingerprint == first.tokenizer.fingerprint
    make(tmp_path / "chars", other, kind="char")
    with pytest.raises(TokenizerError, match="does not know"):
        make(tmp_path / "third", book, kind=str(tmp_path / "chars"))
    with pytest.raises(TokenizerError, match="There is no tokenizer"):
        make(tmp_path / "third", book, kind=str(tmp_path / "nowhere.json"))
    assert not (tmp_path / "third").exists()


def test_unchanged_input_is_not_tokenized_twice(tmp_path: Path, book: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root, config = [tmp_path / "data"], TokenizerConfig()
    first = find_or_prepare([book], root, config, DataConfig())
    assert not first.reused
    assert first.dataset.path.name.startswith("book-")
    assert first.dataset.name == "book"
    with monkeypatch.context() as patch:
        patch.setattr(preparation, "write_dataset", None)
        again = find_or_prepare([book], root, config, DataConfig())
        folder = find_or_prepare([str(first.dataset.path)], root, config, DataConfig())
    assert again.reused
    assert folder.reused
    assert again.dataset.path == folder.dataset.path == first.dataset.path
    others = [
        find_or_prepare([book], root, TokenizerConfig(kind="bpe", vocab_size=300), DataConfig()),
        find_or_prepare([book], root, config, DataConfig(val_fraction=0.5)),
        find_or_prepare([write(tmp_path, "book.txt", TEXT + "!")], root, config, DataConfig()),
    ]
    assert len({first.dataset.path, *(other.dataset.path for other in others)}) == 4
    assert not any(other.reused for other in others)


def test_an_output_that_is_there(tmp_path: Path, book: str) -> None:
    out, other = tmp_path / "out", write(tmp_path, "other.txt", "another text altogether")
    first = make(out, book).dataset.fingerprint
    assert make(out, book).reused
    with pytest.raises(DatasetError, match="other text or settings"):
        make(out, other)
    assert open_dataset(out).fingerprint == first
    assert make(out, other, force=True).dataset.fingerprint != first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["book.txt", "other.txt", "out"]


@pytest.mark.parametrize("force", [False, True])
def test_another_folder_is_never_replaced(tmp_path: Path, book: str, force: bool) -> None:
    foreign = write(tmp_path, "folder/precious.txt", "mine")
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    for out in (tmp_path / "folder", Path(foreign), tmp_path / "link"):
        with pytest.raises(StorageError, match="is already there"):
            make(out, book, force=force)
    assert Path(foreign).read_text() == "mine"
    (tmp_path / "empty").mkdir()
    assert is_dataset(make(tmp_path / "empty", book, force=force).dataset.path)


def test_the_place_of_the_held_out_text(tmp_path: Path) -> None:
    for name, size in (("a", 3000), ("b", 3000), ("c", 300)):
        (tmp_path / f"{name}.txt").write_text(LESSON * (size // len(LESSON)))

    def noted(*names: str) -> list[str]:
        notes = tokenize([tmp_path / f"{name}.txt" for name in names], tmp_path / "".join(names)).notes
        return [note for note in notes if note.startswith("Validation")]

    assert noted("a") == []
    [last] = noted("a", "b")
    assert f"all of it in '{tmp_path / 'b.txt'}'" in last
    [earlier] = noted("a", "b", "c")
    assert f"from '{tmp_path / 'b.txt'}' on" in earlier


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_read(
    tmp_path: Path, book: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    for below in ("file/data", "file/deeper/data"):
        with pytest.raises(StorageError, match="not a directory") as refused:
            make(tmp_path / below, "no such text.txt")
        assert "`out`" in refused.value.hint
    assert make(tmp_path / "new" / "folders" / "data", book)
    monkeypatch.setattr(disk.os, "access", lambda folder, mode: folder != tmp_path)  # root may write anywhere
    with pytest.raises(StorageError, match="permission denied"):
        make(tmp_path / "data", "no such text.txt")


def test_the_working_folder_is_refused_before_anything_is_read(
    tmp_path: Path, book: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for out in (Path(), tmp_path / "here", Path("../here")):
        with pytest.raises(StorageError, match="current directory"):
            make(out, "no such text.txt")
    made = make(tmp_path / "made", book).dataset
    monkeypatch.chdir(made.path)
    assert make(Path(), book).reused
    with pytest.raises(StorageError, match="current directory"):
        make(Path(), book, force=True)


@pytest.mark.parametrize(
    ("folder", "name"),
    [(".x", "x"), ("my data.v2", "my data.v2"), ("a\nb", "a-b"), ("\udcff", "text"), ("...", "text")],
)
def test_any_folder_can_be_a_dataset(tmp_path: Path, book: str, folder: str, name: str) -> None:
    assert make(tmp_path / folder, book).dataset.name == name


def test_an_interrupted_replacement_is_restored(tmp_path: Path, book: str) -> None:
    out = make(tmp_path / "out", book).dataset.path
    aside = tmp_path / f".out-{2**22 + 1}.replaced"  # by a process that is no more
    out.rename(aside)
    assert not is_dataset(out), "looking changes nothing"
    assert aside.exists()
    assert find_or_prepare([str(out)], [tmp_path / "data"], TokenizerConfig(), DataConfig()).reused
    out.rename(aside)
    assert make(out, book).reused
    assert not aside.exists()


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    short = write(tmp_path, "short.txt", "abcd")
    with pytest.raises(CorpusError, match="validation part has 1 token, and needs 2"):
        make(tmp_path / "new" / "out", short)
    assert not (tmp_path / "new" / "out").exists()
    blank = write(tmp_path, "blank.txt", " ")
    with pytest.raises(CorpusError):
        make(tmp_path / "other" / "out", blank)
    assert not (tmp_path / "other").exists()


def test_a_text_that_changes_while_it_is_read(tmp_path: Path, book: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = preparation.make_tokenizer

    def meanwhile(*arguments: Any) -> Any:
        write(tmp_path, "book.txt", TEXT[:-9])
        return real(*arguments)

    monkeypatch.setattr(preparation, "make_tokenizer", meanwhile)
    with pytest.raises(CorpusError, match="changed while it was read"):
        make(tmp_path / "out", book)
    assert not (tmp_path / "out").exists()


def test_a_dataset_is_not_text(tmp_path: Path, book: str) -> None:
    made = str(make(tmp_path / "out", book).dataset.path)
    for inputs in ([made], [book, made]):
        with pytest.raises(CorpusError, match="is a dataset already") as caught:
            make(tmp_path / "again", *inputs)
        assert "'book.txt'" in caught.value.hint, "the text to name instead"
    with pytest.raises(CorpusError, match="is a dataset already"):
        find_or_prepare([made, book], [tmp_path / "data"], TokenizerConfig(), DataConfig())


def test_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    dataset = find_or_prepare(["-"], [tmp_path], TokenizerConfig(), DataConfig()).dataset
    assert dataset.name == "standard-input"
    assert splits_hold_the_text(dataset, TEXT, int(0.9 * len(TEXT)))


def test_names_are_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {
        "../my book (2).txt": "my-book-2",
        "..": tmp_path.name,
        ".": "here",
        "日本.txt": "日本",
    }
    for argument, name in names.items():
        (tmp_path / "here").mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / "here")
        if argument.endswith(".txt"):
            write(Path(), argument, TEXT)
        else:
            write(Path(argument), "x.txt", TEXT)
        made = find_or_prepare([argument], [tmp_path / "here" / ".data"], TokenizerConfig(), DataConfig())
        assert made.dataset.name == name


def test_unknown_characters_of_a_given_tokenizer(tmp_path: Path, book: str) -> None:
    chars = str(make(tmp_path / "chars", book, kind="char").dataset.path)
    other = write(tmp_path, "other.txt", "the cat ☃ sat ☃\U0001f980 on the mat\n" * 9)
    with pytest.raises(TokenizerError) as caught:
        make(tmp_path / "out", book, other, kind=chars)
    for fact in ("other.txt", "☃", "U+2603", "U+1F980"):
        assert fact in caught.value.message
    assert "`unknown = skip`" in caught.value.hint
    assert "`tokenizer.kind = auto`" in caught.value.hint
    skipping = make(tmp_path / "out", other, kind=chars, unknown="skip")
    ids = all_ids(skipping.dataset.train.stream) + all_ids(skipping.dataset.val.stream)
    kept = "the cat  sat  on the mat\n" * 9
    assert skipping.dataset.tokenizer.decode(ids) == kept
    assert skipping.dataset.train.characters + skipping.dataset.val.characters == len(kept)
    assert any("27 characters" in note and "☃" in note for note in skipping.notes)
    assert make(tmp_path / "out", other, kind=chars, unknown="skip").reused
    with pytest.raises(DatasetError, match="other text or settings"):
        make(tmp_path / "out", write(tmp_path, "kept/other.txt", kept), kind=chars, unknown="skip")


def test_skipping_nothing_changes_nothing(tmp_path: Path, book: str) -> None:
    chars = str(make(tmp_path / "chars", book, kind="char").dataset.path)
    plain = make(tmp_path / "plain" / "out", book, kind=chars).dataset
    skipping = make(tmp_path / "skipping" / "out", book, kind=chars, unknown="skip").dataset
    assert everything(plain.path) == everything(skipping.path)
    roots, config = [tmp_path / "data"], TokenizerConfig(kind=chars)
    found = find_or_prepare([book], roots, config, DataConfig(), unknown="skip").dataset
    assert find_or_prepare([book], roots, config, DataConfig()).dataset.path == found.path


def test_a_skipping_dataset_is_found_again(tmp_path: Path, book: str) -> None:
    config = TokenizerConfig(kind=str(make(tmp_path / "chars", book, kind="char").dataset.path))
    other = write(tmp_path, "other.txt", "the cat ☃ sat on the mat")
    first = find_or_prepare([other], [tmp_path / "data"], config, DataConfig(), unknown="skip")
    again = find_or_prepare([other], [tmp_path / "data"], config, DataConfig(), unknown="skip")
    assert (first.reused, again.reused, again.dataset.path) == (False, True, first.dataset.path)
    assert "1 character " in first.notes[-1]
    assert again.notes
    with pytest.raises(TokenizerError):
        find_or_prepare([other], [tmp_path / "data"], config, DataConfig())
    strange = write(tmp_path, "strange.txt", "☃☃☃")
    with pytest.raises(CorpusError, match="no character that the tokenizer knows"):
        make(tmp_path / "out", strange, kind=config.kind, unknown="skip")


def test_a_root_that_cannot_be_written(tmp_path: Path, book: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working folder is read-only, or a file has the name of the root: the dataset goes beside the run."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    roots = dataset_roots(tmp_path / "elsewhere" / "run")
    assert roots == (Path("data"), tmp_path / "elsewhere" / "data")
    write(tmp_path / "here", "data", "a file")
    first = find_or_prepare([book], roots, TokenizerConfig(), DataConfig())
    assert first.dataset.path.parent == roots[1]
    assert str(first.dataset.path) in first.notes[-1]
    assert find_or_prepare([book], roots, TokenizerConfig(), DataConfig()).reused
    write(tmp_path, "blocked", "a file")
    other = write(tmp_path, "other.txt", TEXT + "!")
    with pytest.raises(StorageError) as caught:
        find_or_prepare([other], dataset_roots(tmp_path / "blocked" / "run"), TokenizerConfig(), DataConfig())
    assert "data" in caught.value.message
    assert "`out`" in caught.value.hint
    (tmp_path / "here" / "data").unlink()
    assert find_or_prepare([other], roots, TokenizerConfig(), DataConfig()).dataset.path.parent == Path("data")
    shutil.rmtree("data")
    read_only = os.stat(".").st_ino
    monkeypatch.setattr(os, "access", lambda path, mode: os.stat(path).st_ino != read_only)
    assert find_or_prepare([other], roots, TokenizerConfig(), DataConfig()).dataset.path.parent == roots[1]


def test_roots_are_never_the_run_itself() -> None:
    assert dataset_roots(Path("runs/book")) == (Path("data"), Path("runs/data"))
    assert dataset_roots(Path("book")) == (Path("data"),)
    assert dataset_roots(Path("/x/data")) == (Path("data"), Path("/x/datasets"))


def test_nouns_agree_with_numbers(tmp_path: Path) -> None:
    made = make(tmp_path / "out", write(tmp_path, "a.txt", "a" * 40))
    assert "Tokenizer: 1 character, since" in made.notes[-1]
    assert "2 ids (1 character, end of text)" in describe(made.dataset)


def damage_cut(out: Path) -> None:
    (out / "train-00000.npy").write_bytes((out / "train-00000.npy").read_bytes()[:-2])


def damage_bit(out: Path) -> None:
    content = bytearray((out / "val-00000.npy").read_bytes())
    content[-1] ^= 1
    (out / "val-00000.npy").write_bytes(content)


def damage_missing(out: Path) -> None:
    (out / "val-00000.npy").unlink()


def damage_tokenizer(out: Path) -> None:
    path = out / "tokenizer.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    values["version"] = "1.1"
    path.write_text(json.dumps(values), encoding="utf-8")


def damage_other_tokenizer(out: Path) -> None:
    (out / "tokenizer.json").write_text(char_tokenizer("abc").to_json(), encoding="utf-8")


def damage_no_tokenizer(out: Path) -> None:
    (out / "tokenizer.json").unlink()


def damage_manifest(out: Path) -> None:
    (out / "dataset.json").write_bytes((out / "dataset.json").read_bytes()[:-40])


def damage_key(out: Path) -> None:
    change(out, extra=1)


def damage_path(out: Path) -> None:
    manifest = json.loads((out / "dataset.json").read_text(encoding="utf-8"))
    manifest["train"]["shards"][0]["file"] = "../out/train-00000.npy"
    change(out, train=manifest["train"])


def damage_start(out: Path) -> None:
    change(out, start_id=10**6)


def change(out: Path, **values: object) -> None:
    manifest = json.loads((out / "dataset.json").read_text(encoding="utf-8"))
    (out / "dataset.json").write_text(json.dumps(manifest | values), encoding="utf-8")


DAMAGES = [damage_cut, damage_bit, damage_missing, damage_tokenizer, damage_other_tokenizer, damage_no_tokenizer]
DAMAGES += [damage_manifest, damage_key, damage_path, damage_start]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_noticed(tmp_path: Path, book: str, damage: Any) -> None:
    out = tmp_path / "out"
    make(out, book)
    damage(out)
    with pytest.raises(DatasetError) as caught:
        open_dataset(out)
    assert "damaged" in caught.value.message
    assert caught.value.hint
    assert not make(out, book, force=True).reused
    assert open_dataset(out).documents == 1


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_dataset_of_train_is_made_again(tmp_path: Path, book: str, damage: Any) -> None:
    def prepare() -> Prepared:
        return find_or_prepare([book], [tmp_path / "data"], TokenizerConfig(), DataConfig())

    whole = prepare().dataset
    damage(whole.path)
    again = prepare()
    assert not again.reused
    assert any(str(whole.path) in note for note in again.notes), "the note names the folder"
    assert (again.dataset.path, again.dataset.fingerprint) == (whole.path, whole.fingerprint)
    assert prepare().reused


def test_a_damaged_dataset_of_the_user_is_refused(tmp_path: Path, book: str) -> None:
    out = tmp_path / "mine"
    make(out, book)
    damage_cut(out)
    before = everything(out)
    with pytest.raises(DatasetError, match="damaged"):
        find_or_prepare([str(out)], [tmp_path / "data"], TokenizerConfig(), DataConfig())
    assert everything(out) == before


def test_sizes_alone_are_checked_on_request(tmp_path: Path, book: str) -> None:
    out = tmp_path / "out"
    make(out, book)
    damage_bit(out)
    open_dataset(out, verify=False)
    with pytest.raises(DatasetError):
        open_dataset(out, verify=True)


def test_other_formats_and_folders(tmp_path: Path, book: str) -> None:
    out = tmp_path / "out"
    make(out, book)
    change(out, format=3)
    with pytest.raises(DatasetError, match="has format 3"):
        open_dataset(out)
    with pytest.raises(DatasetError, match="is not a dataset folder"):
        open_dataset(tmp_path)
    assert not is_dataset(book)
    assert not is_dataset(tmp_path / "nowhere")


def test_progress_reaches_the_end_of_each_stage(tmp_path: Path, book: str) -> None:
    seen: dict[str, tuple[int, int]] = {}
    tokenize(
        book,
        tmp_path / "out",
        tokenizer="bpe",
        vocab_size=300,
        on_progress=lambda stage, done, total: seen.update({stage: (done, total)}),
    )
    size = len(TEXT.encode())
    assert list(seen) == ["hashing", "reading", "training tokenizer", "encoding"]
    assert [seen[stage] for stage in ("hashing", "reading", "encoding")] == [(size, size)] * 3
    assert load_tokenizer(tmp_path / "out").kind == "bpe"
