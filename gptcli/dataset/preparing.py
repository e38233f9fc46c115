"""Preparing dataset folders from text, each once: what is there already is found again by a hash of its sources."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from gptcli import storage
from gptcli.config import DataConfig, TokenizerConfig
from gptcli.dataset.folder import Dataset, is_dataset, open_dataset
from gptcli.dataset.manifest import DATASET_FILE, FORMAT, SourceEntry, digest, is_dataset_name, read_manifest
from gptcli.dataset.sources import STANDARD_INPUT, OnBytes, TextFile, find_texts, hash_text, printable, size_of
from gptcli.dataset.survey import survey
from gptcli.dataset.writing import Report, make_tokenizer, require_known, split_parts, write_dataset
from gptcli.errors import CorpusError, DatasetError, StorageError
from gptcli.tokenizer.document import TOKENIZER_FILE
from gptcli.tokenizer.tokenizer import Tokenizer, is_path, load_tokenizer

OnProgress = Callable[[str, int, int], None]
"""Called with the stage ("hashing", "reading", "training tokenizer", "encoding"), bytes done, and bytes in all."""

_MAX_NAME_CHARACTERS = 60
_OUR_FILES = re.compile(rf"{re.escape(DATASET_FILE)}|{re.escape(TOKENIZER_FILE)}|(train|val)-[0-9]+\.npy")


@dataclass(frozen=True)
class Prepared:
    """A dataset, and how it came about."""

    dataset: Dataset
    reused: bool = False
    """Whether it was there already."""
    notes: list[str] = field(default_factory=list)
    """Sentences that people should read."""


def put_back(*paths: str | Path) -> None:
    """Put back each dataset that a killed process was about to replace; to be called before anything looks for it."""
    for path in map(Path, paths):
        with suppress(OSError, ValueError, StorageError):
            if not path.exists():
                storage.remove_leftovers(path.parent, of=path.name)


def name_of(inputs: Sequence[str]) -> str:
    """What the dataset of `inputs` is called, before it is there. Raises DatasetError."""
    return read_manifest(Path(inputs[0])).name if is_dataset(inputs[0]) else _safe_name(inputs[0])


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
                return Prepared(open_dataset(out), reused=True)
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
    given: Tokenizer | None = None,
    scratch: Path | None = None,
    on_progress: OnProgress | None = None,
) -> Prepared:
    """The dataset of `inputs`: a dataset folder as it stands, or texts as `root/<name>-<8 hex of the key>/`.

    A `given` tokenizer replaces the one that `tokenizer` asks for. Where `scratch` is given, a missing dataset is made
    below it instead. Raises as `prepare` does.
    """
    put_back(*inputs)
    if len(inputs) == 1 and is_dataset(inputs[0]):
        return Prepared(open_dataset(Path(inputs[0])), reused=True)
    with _find_sources(inputs, tokenizer, data, on_progress, given) as sources:
        name = _safe_name(inputs[0])
        out = root / f"{name}-{sources.key[:8]}"
        put_back(out)
        _refuse_foreign(out)
        if is_dataset(out):
            return Prepared(open_dataset(out), reused=True)
        out = (scratch or root) / out.name
        storage.remove_leftovers(out.parent)
        try:
            return sources.write(out, name)
        except StorageError:
            if not is_dataset(out):
                raise
            return Prepared(open_dataset(out), reused=True)  # another process was quicker with the same text


@dataclass(frozen=True)
class _Sources:
    """The texts that a command names, hashed: what a dataset is made from."""

    files: list[TextFile]
    entries: dict[TextFile, SourceEntry]
    tokenizer: TokenizerConfig
    given: Tokenizer | None
    """The tokenizer, if it is one that is there already."""
    data: DataConfig
    report: Report
    key: str

    def write(self, out: Path, name: str) -> Prepared:
        """Make the dataset folder `out` anew."""
        look = survey(self.files, self.report("reading"))
        splits = split_parts(look, look.training_characters(self.data.val_fraction))
        sources = tuple(self.entries[text.file] for text in look.texts)
        with storage.new_directory(out, manifest=None, replace=out.exists()) as new:
            if self.given:
                require_known(self.given, look)
                made, notes = self.given, list[str]()
            else:
                made, notes = make_tokenizer(self.tokenizer, look, splits[0], self.report)
            write_dataset(new, look, splits, made, sources, name=name, key=self.key, report=self.report)
        dataset = open_dataset(out, verify=False)
        if dataset.documents > 1 and not dataset.uses_end_of_text:
            notes.append("The tokenizer has no <|endoftext|>, so nothing stands between the documents.")
        return Prepared(dataset, notes=[*look.notes, *notes])


@contextmanager
def _find_sources(
    inputs: Sequence[str],
    tokenizer: TokenizerConfig,
    data: DataConfig,
    on_progress: OnProgress | None,
    given: Tokenizer | None = None,
) -> Iterator[_Sources]:
    for path in inputs:
        if path != STANDARD_INPUT and is_dataset(path):
            raise CorpusError(f"'{path}' is a dataset already, not text.", "Give it to train, by itself.")
    if given is None and is_path(tokenizer.kind):
        given = load_tokenizer(Path(tokenizer.kind))  # an error is reported before any text is read
    with find_texts(inputs, data.include) as files:
        report = _reporter(on_progress, sum(size_of(file) for file in files))
        on_bytes = report("hashing")
        entries = {}
        for file in files:
            size, sha256 = hash_text(file)
            entries[file] = SourceEntry(name=printable(file.name), size=size, sha256=sha256)
            on_bytes(size)
        settings = _settings(tokenizer, given, data)
        key = digest([FORMAT, settings, [entries[file].model_dump() for file in files]])
        yield _Sources(
            files=files, entries=entries, tokenizer=tokenizer, given=given, data=data, report=report, key=key
        )


def _settings(tokenizer: TokenizerConfig, given: Tokenizer | None, data: DataConfig) -> list[str | int | float | None]:
    """The settings that a dataset depends on: a given tokenizer counts by its content, wherever it lies."""
    if given:
        return [given.fingerprint, None, data.val_fraction]
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
        what = "is not a folder"
        if out.is_dir() and not out.is_symlink():
            if all(_OUR_FILES.fullmatch(path.name) for path in out.iterdir()):
                return
            what = "is a folder of something else"
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
