"""Dataset folders: opening them, and preparing them from text.

data/book-1a2b3c4d/
    dataset.json       what is here, with hashes; where the text came from
    tokenizer.json
    train-00000.npy    token ids
    val-00000.npy
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gptcli import storage
from gptcli.config import DataConfig, TokenizerConfig
from gptcli.errors import CorpusError, DatasetError, StorageError, TokenizerError, reason_of
from gptcli.text.corpus import STANDARD_INPUT, OnBytes, TextFile, find_texts, hash_text, printable, size_of
from gptcli.text.manifest import (
    FORMAT,
    MANIFEST_FILE,
    SourceEntry,
    SplitEntry,
    digest,
    is_dataset_name,
    read_manifest,
)
from gptcli.text.survey import survey
from gptcli.text.tokenizer import Tokenizer, is_path, load_tokenizer
from gptcli.text.tokenizer_json import TOKENIZER_FILE
from gptcli.text.tokens import TokenStream, open_shard
from gptcli.text.writing import Report, make_tokenizer, split_parts, write_dataset

OnProgress = Callable[[str, int, int], None]
"""Called with the stage ("hashing", "reading", "training tokenizer", "encoding"), bytes done, and bytes in all."""

_ALWAYS_HASHED_BYTES = 1_000_000_000
_MAX_NAME_CHARACTERS = 60
_OUR_FILES = re.compile(rf"{re.escape(MANIFEST_FILE)}|{re.escape(TOKENIZER_FILE)}|(train|val)-[0-9]+\.npy")


@dataclass(frozen=True)
class Split:
    """One split: counts of its tokens and of the text that they stand for, and the tokens themselves."""

    tokens: int
    characters: int
    bytes: int
    stream: TokenStream


@dataclass(frozen=True)
class Dataset:
    """An open dataset folder."""

    path: Path
    name: str
    fingerprint: str
    """Hexadecimal sha256 of tokenizer and tokens, the same wherever the folder lies."""
    tokenizer: Tokenizer
    start_id: int
    """What an empty prompt starts from."""
    documents: int
    uses_end_of_text: bool
    sources: tuple[SourceEntry, ...]
    train: Split
    val: Split

    @property
    def end_id(self) -> int | None:
        """What a text ends with, if documents are told apart."""
        return self.tokenizer.end_of_text if self.uses_end_of_text else None


@dataclass(frozen=True)
class Prepared:
    """A dataset, whether it was there already, and sentences that people should read."""

    dataset: Dataset
    reused: bool
    notes: list[str]


def is_dataset(path: str | Path) -> bool:
    """Whether `path` is a dataset folder, as far as its manifest's presence tells; see `put_back`."""
    try:
        return (Path(path) / MANIFEST_FILE).is_file()
    except (OSError, ValueError):
        return False


def put_back(*paths: str | Path) -> None:
    """Put back each dataset that a killed process was about to replace; to be called before anything looks for it."""
    for path in map(Path, paths):
        with suppress(OSError, ValueError, StorageError):
            if not path.exists():
                storage.remove_leftovers(path.parent, of=path.name)


def name_of(inputs: Sequence[str]) -> str:
    """What the dataset of `inputs` is called, before it is there. Raises DatasetError."""
    return read_manifest(Path(inputs[0])).name if is_dataset(inputs[0]) else _safe_name(inputs[0])


def open_dataset(path: Path, *, verify: bool | None = None) -> Dataset:
    """Open a dataset folder.

    Sizes are always checked; hashes where `verify` is true, by default up to 1 GB of tokens. Raises DatasetError if
    anything is missing, cut off, altered or of another format.
    """
    manifest = read_manifest(path)
    files = {shard.file: storage.FileEntry(shard.bytes, shard.sha256) for shard in manifest.shards()}
    size = sum(shard.bytes for shard in manifest.shards())
    hashes = size <= _ALWAYS_HASHED_BYTES if verify is None else verify
    try:
        problem = storage.mismatch(path, files, hashes=hashes)
    except OSError as error:
        problem = f"'{path}' cannot be read ({reason_of(error)})"
    if problem:
        raise _damaged(path, problem)
    if not (path / TOKENIZER_FILE).is_file():
        raise _damaged(path, f"'{path / TOKENIZER_FILE}' is missing")
    try:
        tokenizer = load_tokenizer(path / TOKENIZER_FILE)
    except TokenizerError as error:
        raise _damaged(path, error.message[:1].lower() + error.message[1:].rstrip(".")) from None
    told = manifest.tokenizer
    if tokenizer.fingerprint != told.fingerprint or tokenizer.vocab_size != told.vocab_size:
        raise _damaged(path, f"'{path / TOKENIZER_FILE}' was altered (its fingerprint differs)")
    return Dataset(
        path=path,
        name=manifest.name,
        fingerprint=manifest.fingerprint(),
        tokenizer=tokenizer,
        start_id=manifest.start_id,
        documents=manifest.documents,
        uses_end_of_text=manifest.uses_end_of_text,
        sources=manifest.sources,
        train=_open_split(path, manifest.train, tokenizer.vocab_size),
        val=_open_split(path, manifest.val, tokenizer.vocab_size),
    )


def prepare(
    inputs: Sequence[str],
    out: Path,
    tokenizer: TokenizerConfig,
    data: DataConfig,
    *,
    force: bool = False,
    on_progress: OnProgress | None = None,
) -> Prepared:
    """Turn texts into the dataset folder `out`, which appears complete or not at all.

    Where `out` is a dataset of exactly these sources and settings it is opened instead, unless `force` asks to make it
    anew. Another dataset is replaced only with `force`, and what is no dataset never. Raises CorpusError,
    TokenizerError, DatasetError or StorageError.
    """
    put_back(out, *inputs)
    _refuse_foreign(out)
    if force or not is_dataset(out):
        storage.refuse_working_folder(out)
    with _find_sources(inputs, tokenizer, data, on_progress) as sources:
        if is_dataset(out) and not force:
            if read_manifest(out).key == sources.key:
                return Prepared(open_dataset(out), True, [])
            raise DatasetError(
                f"'{out}' is a dataset of other text or settings.",
                "Choose another place with --out, or replace it with --force.",
            )
        return sources.write(out, out.name if is_dataset_name(out.name) else _plain(out.name))


def find_or_prepare(
    inputs: Sequence[str],
    root: Path,
    tokenizer: TokenizerConfig,
    data: DataConfig,
    *,
    scratch: Path | None = None,
    on_progress: OnProgress | None = None,
) -> Prepared:
    """The dataset of `inputs`: a dataset folder as it stands, or texts as `root/<name>-<8 hex of the key>/`.

    Where `scratch` is given, what is not there yet is made below it instead. Raises as `prepare` does.
    """
    put_back(*inputs)
    if len(inputs) == 1 and is_dataset(inputs[0]):
        return Prepared(open_dataset(Path(inputs[0])), True, [])
    with _find_sources(inputs, tokenizer, data, on_progress) as sources:
        name = _safe_name(inputs[0])
        out = root / f"{name}-{sources.key[:8]}"
        put_back(out)
        _refuse_foreign(out)
        if is_dataset(out):
            return Prepared(open_dataset(out), True, [])
        out = (scratch or root) / out.name
        storage.remove_leftovers(out.parent)
        try:
            return sources.write(out, name)
        except StorageError:
            if not is_dataset(out):
                raise
            return Prepared(open_dataset(out), True, [])  # another process was quicker with the same text


@dataclass(frozen=True)
class _Sources:
    """The texts that a command names, hashed: what a dataset is made from."""

    files: list[TextFile]
    entries: dict[TextFile, SourceEntry]
    tokenizer: TokenizerConfig
    data: DataConfig
    report: Report
    key: str

    def write(self, out: Path, name: str) -> Prepared:
        """Make the dataset folder `out` anew."""
        look = survey(self.files, self.report("reading"))
        splits = split_parts(look, look.training_characters(self.data.val_fraction))
        sources = tuple(self.entries[text.file] for text in look.texts)
        with storage.new_directory(out, manifest=None, replace=out.exists()) as new:
            made, notes = make_tokenizer(self.tokenizer, look, splits[0], self.report)
            write_dataset(new, look, splits, made, sources, name=name, key=self.key, report=self.report)
        dataset = open_dataset(out, verify=False)
        if dataset.documents > 1 and not dataset.uses_end_of_text:
            notes.append("The tokenizer has no <|endoftext|>, so nothing stands between the documents.")
        return Prepared(dataset, False, [*look.notes, *notes])


@contextmanager
def _find_sources(
    inputs: Sequence[str], tokenizer: TokenizerConfig, data: DataConfig, on_progress: OnProgress | None
) -> Iterator[_Sources]:
    for given in inputs:
        if given != STANDARD_INPUT and is_dataset(given):
            raise CorpusError(f"'{given}' is a dataset already, not text.", "Give it to train, by itself.")
    settings = _settings(tokenizer, data)  # a tokenizer that cannot be read is told before any text is read
    with find_texts(inputs, data.include) as files:
        report = _reporter(on_progress, sum(size_of(file) for file in files))
        on_bytes = report("hashing")
        entries = {}
        for file in files:
            size, sha256 = hash_text(file)
            entries[file] = SourceEntry(name=printable(file.name), size=size, sha256=sha256)
            on_bytes(size)
        key = digest([FORMAT, settings, [entries[file].model_dump() for file in files]])
        yield _Sources(files, entries, tokenizer, data, report, key)


def _settings(tokenizer: TokenizerConfig, data: DataConfig) -> list[str | int | float | None]:
    """The settings that a dataset depends on: a tokenizer file counts by its content, wherever it lies."""
    if is_path(tokenizer.kind):
        return [load_tokenizer(Path(tokenizer.kind)).fingerprint, None, data.val_fraction]
    size = None if tokenizer.kind == "char" else tokenizer.entries
    return [tokenizer.wanted, size, data.val_fraction]


def _reporter(on_progress: OnProgress | None, total: int) -> Report:
    """Begins stages; each adds up its bytes and passes the sum on."""

    def begin(stage: str) -> OnBytes:
        done = 0

        def add(count: int) -> None:
            nonlocal done
            done += count
            if on_progress:
                on_progress(stage, min(done, total), total)

        add(0)
        return add

    return begin


def _refuse_foreign(out: Path) -> None:
    """Raise StorageError where `out` exists and is neither empty nor a dataset folder of ours, whole or damaged."""
    with storage.disk_errors(out, "Reading"):
        if not out.exists() and not out.is_symlink():
            return
        names = None if out.is_symlink() or not out.is_dir() else [path.name for path in out.iterdir()]
    ours = names is not None and all(_OUR_FILES.fullmatch(name) for name in names)
    if not ours:
        what = "is a folder of something else" if names is not None else "is not a folder"
        raise StorageError(f"'{out}' is already there and {what}.", "Choose another place with --out.")


def _safe_name(given: str) -> str:
    """A folder name from an input: letters, digits, dot, dash and underscore."""
    path = Path("standard-input") if given == STANDARD_INPUT else Path(given)
    stem = path.name if path.is_dir() else path.stem
    if not stem or stem == "..":
        stem = path.resolve().name
    return _plain(stem)


def _plain(name: str) -> str:
    """.my book → my-book; `text` if nothing is left."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:_MAX_NAME_CHARACTERS] or "text"


def _open_split(path: Path, entry: SplitEntry, vocab_size: int) -> Split:
    shards = [open_shard(path / shard.file, shard.tokens, shard.dtype) for shard in entry.shards]
    return Split(entry.tokens, entry.characters, entry.bytes, TokenStream(shards, vocab_size))


def _damaged(path: Path, problem: str) -> DatasetError:
    return DatasetError(
        f"The dataset '{path}' is damaged: {problem}.", "Delete the folder and prepare it again from the text."
    )
