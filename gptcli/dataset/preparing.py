"""Preparing dataset folders from text. A hash of sources and settings finds a dataset that exists already."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gptcli import storage
from gptcli.config import DataConfig, TokenizerConfig, parse_section
from gptcli.config.values import nest
from gptcli.dataset.corpus import Corpus
from gptcli.dataset.finding import Found, find_sources
from gptcli.dataset.folder import Dataset, is_dataset, open_dataset
from gptcli.dataset.importing import import_tokens
from gptcli.dataset.key import dataset_key
from gptcli.dataset.manifest import DamagedDataset, SourceEntry, read_manifest
from gptcli.dataset.notes import notes_on_idle_patterns
from gptcli.dataset.place import name_of_folder, name_of_text, refuse_foreign, restore_interrupted, writable_root
from gptcli.dataset.readers import format_of
from gptcli.dataset.scanning import scan
from gptcli.dataset.sources import STANDARD_INPUT, BeginStage, OnBytes, OnProgress, Source, size_of, stored_chunks
from gptcli.dataset.splits import split
from gptcli.dataset.summary import ReadSummary
from gptcli.dataset.token_files import are_token_files, find_token_files
from gptcli.dataset.vocabulary import make_tokenizer, require_bpe_for_size, require_known
from gptcli.dataset.writing import FEW_TOKENS, write_dataset
from gptcli.errors import CorpusError, DatasetError, counted
from gptcli.paths import given_path, output_path, text_paths
from gptcli.tokenizer import Unknown
from gptcli.tokenizer.tokenizer import Tokenizer, is_path, load_tokenizer


@dataclass(frozen=True)
class Prepared:
    """A dataset that is ready to be trained on."""

    dataset: Dataset
    reused: bool = False
    """Whether it existed already."""
    notes: list[str] = field(default_factory=list)
    """Sentences for the user about its text and tokenizer."""
    summary: ReadSummary = field(default_factory=ReadSummary)
    """Files that were read and skipped."""


def tokenize(
    texts: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    tokenizer: str | Path = "auto",
    vocab_size: int | None = None,
    val_fraction: float | None = None,
    include: Sequence[str] | None = None,
    unknown: Unknown = "error",
    settings: Mapping[str, Any] | None = None,
    force: bool = False,
    on_progress: OnProgress | None = None,
) -> Prepared:
    """Turn texts into the dataset folder `out`, which appears complete or not at all.

    texts: text files, folders, addresses, names of corpora, or "-" for standard input; or token files of nanoGPT, llm.c
        or datatrove, with the path of their tokenizer (docs/data.md).
    tokenizer: "char", "bpe", the path of a tokenizer.json or vocab.json, or "auto": characters below 5 MB of text,
        else BPE.
    vocab_size: entries of a BPE vocabulary, by default 8,192. With it, "auto" is BPE.
    val_fraction: share of the text, its last part, held out for validation; by default 10 %, less for large text.
    include: file name patterns to read from folders, by default every format that can be read.
    unknown: "skip" leaves out characters that a tokenizer given by its path does not know, and adds a note.
    settings: fields of the config's sections `data` and `tokenizer` by dotted name, such as
        {"data.encoding": "cp1252"}.
    force: replace another dataset at `out`. A folder with other files is never replaced.

    A dataset of exactly these sources and settings at `out` is opened instead, unless `force` is set. Raises UsageError
    for settings that contradict each other, ConfigError, CorpusError, TokenizerError, DatasetError or StorageError.

    >>> tokenize("book.txt", "data/book").dataset.train.tokens  # doctest: +SKIP
    1003854
    """
    stated = {"tokenizer.kind": str(tokenizer), "tokenizer.vocab_size": vocab_size}
    values = nest(stated | {"data.val_fraction": val_fraction, "data.include": include} | dict(settings or {}))
    config = parse_section(TokenizerConfig, values["tokenizer"])
    given_path(config.kind)
    data = parse_section(DataConfig, values.get("data", {}))
    require_bpe_for_size(config.kind, config.vocab_size)
    inputs, out = text_paths(texts), output_path(out)
    restore_interrupted(out, *inputs)
    refuse_foreign(out)
    if force or not is_dataset(out):
        storage.refuse_working_folder(out)
    if are_token_files(inputs, data.format):
        files = find_token_files(inputs, data.format)
        report = reporter(on_progress, sum(file.offset + file.tokens * file.dtype.itemsize for file in files))
        name = name_of_folder(out)
        return Prepared(*import_tokens(files, out, config, data, report, name=name, force=force))
    with _preparation(inputs, config, data, unknown, on_progress) as preparation:
        if is_dataset(out) and not force:
            return preparation.reuse(out, "Choose another place with `out`, or replace it with `force`.")
        return preparation.write(lambda key: out, name_of_folder(out), force=force)


def find_or_prepare(
    inputs: Sequence[str],
    roots: Sequence[Path],
    tokenizer: TokenizerConfig,
    data: DataConfig,
    *,
    given: Tokenizer | None = None,
    unknown: Unknown = "error",
    scratch: Path | None = None,
    on_progress: OnProgress | None = None,
) -> Prepared:
    """The dataset of `inputs`: a dataset folder itself, or texts as `<root>/<name>-<8 hex of the key>/`.

    It is looked for in all of `roots` (see `place.dataset_roots`), and made in the first that can be written; in
    `scratch` instead, if that is given. A damaged one among them is made again, with a note. A `given` tokenizer
    replaces the one that `tokenizer` asks for. Raises as `tokenize` does.
    """
    restore_interrupted(*inputs)
    if len(inputs) == 1 and is_dataset(inputs[0]):
        return Prepared(open_dataset(Path(inputs[0])), reused=True)
    with _preparation(inputs, tokenizer, data, unknown, on_progress, given) as preparation:
        name = name_of_text(inputs[0])
        damage: list[str] = []
        for found in (root / f"{name}-{key[:8]}" for root in roots for key in preparation.possible_keys()):
            restore_interrupted(found)
            try:
                if is_dataset(found):
                    return preparation.reuse(found, "Move it to another place.")
            except DamagedDataset as error:
                damage.append(f"{error.message} It is made again from the text.")
        root = scratch or writable_root(roots)
        storage.remove_leftovers(root)
        prepared = preparation.write(lambda key: root / f"{name}-{key[:8]}", name, force=bool(damage))
        prepared.notes[:0] = damage
        if root not in (scratch, roots[0]):
            note = f"'{roots[0]}' cannot be written, so the dataset is kept in '{prepared.dataset.path}'."
            prepared.notes.append(note)
        return prepared


class _MadeMeanwhile(Exception):  # noqa: N818 - not an error
    """Another process was quicker with the same dataset folder."""


@dataclass(frozen=True)
class _Preparation:
    """The hashed sources and the settings that a dataset is made from."""

    found: Found
    entries: dict[Source, SourceEntry]
    config: TokenizerConfig
    given: Tokenizer | None
    """The tokenizer, if it exists already."""
    data: DataConfig
    unknown: Unknown
    report: BeginStage

    def key(self, *, has_skipped: bool = False) -> str:
        """The key of the dataset. It depends on the content of a given tokenizer, not on its path."""
        settings: list[str | int | float | None]
        if self.given:
            settings = [self.given.fingerprint, None, self.data.val_fraction, *(["skip"] if has_skipped else [])]
        else:
            size = None if self.config.kind == "char" else self.config.entries
            settings = [self.config.wanted, size, self.data.val_fraction]
        return dataset_key(settings, self.data, self.entries)

    def possible_keys(self) -> list[str]:
        """The keys that the dataset may have. Only a scan of the text shows whether characters are skipped."""
        may_skip = self.given and self.unknown == "skip"
        return [self.key(), *([self.key(has_skipped=True)] if may_skip else [])]

    def reuse(self, path: Path, hint: str = "Choose another place with `out`.") -> Prepared:
        """Open the dataset at `path`. Raises DatasetError, with a hint, if it is one of other sources or settings."""
        key = read_manifest(path).key
        if key not in self.possible_keys():
            raise DatasetError(f"'{path}' is a dataset of other text or settings.", hint)
        skipped = "The dataset is without the characters that the tokenizer does not know."
        summary = ReadSummary(dict(Counter(map(format_of, self.found.sources)).most_common()), self.found.skipped)
        notes = [
            *self.found.notes,
            summary.sentence("found"),
            *notes_on_idle_patterns(self.found),
            skipped if key != self.key() else "",
        ]
        return Prepared(open_dataset(path), reused=True, notes=[*filter(None, notes)], summary=summary)

    def write(self, place: Callable[[str], Path], name: str, *, force: bool = False) -> Prepared:
        """Make the dataset at `place(key)`, or open the one that another process has made there meanwhile."""
        skip_unknown = self.given if self.unknown == "skip" else None
        corpus = scan(self.found, self.report("reading"), skip_unknown=skip_unknown)
        if self.given:
            require_known(self.given, corpus, is_chosen=is_path(self.config.kind))
        key = self.key(has_skipped=corpus.has_skipped)
        out = place(key)
        refuse_foreign(out)
        with ExitStack() as turn:
            try:
                with storage.new_directory(out, manifest=None, replace=True) as new:
                    notes = self._fill(new, corpus, name, key)
                    turn.enter_context(storage.alone_in(out.parent))  # without locks, the slower one fails to rename
                    refuse_foreign(out)  # it may have appeared since
                    if is_dataset(out) and not force:
                        raise _MadeMeanwhile
            except _MadeMeanwhile:
                return self.reuse(out)
            dataset = open_dataset(out, verify=False)
            if dataset.val.tokens < FEW_TOKENS:
                few = counted(dataset.val.tokens, "token")
                notes.insert(0, f"The validation part has only {few}: its loss is rough.")
            return Prepared(dataset, notes=notes, summary=corpus.summary)

    def _fill(self, new: storage.NewDirectory, corpus: Corpus, name: str, key: str) -> list[str]:
        """Write the files of the dataset, and return the notes about it."""
        train, val, note = split(corpus, self.data.val_fraction)
        notes = [*corpus.notes, *filter(None, [note])]
        tokenizer = self.given
        if tokenizer is None:
            tokenizer, more = make_tokenizer(self.config, corpus, train, self.report)
            notes += more
        entries = tuple(self.entries[source] for source in corpus.sources)
        on_bytes = self.report("encoding")
        write_dataset(new, corpus, (train, val), tokenizer, entries, name=name, key=key, on_bytes=on_bytes)
        if len(corpus.documents) > 1 and tokenizer.end_of_text is None:
            notes.append("The tokenizer has no <|endoftext|>, so nothing separates the documents.")
        return notes


@contextmanager
def _preparation(
    inputs: Sequence[str],
    config: TokenizerConfig,
    data: DataConfig,
    unknown: Unknown,
    on_progress: OnProgress | None,
    given: Tokenizer | None = None,
) -> Iterator[_Preparation]:
    for path in inputs:
        if path != STANDARD_INPUT and is_dataset(path):
            raise CorpusError(f"'{path}' is a dataset already, not text.", "Train on it, without other text.")
    if given is None and is_path(config.kind):
        given = load_tokenizer(Path(config.kind))  # an error is reported before any text is read
    with find_sources(inputs, data, on_progress) as found:
        report = reporter(on_progress, sum(map(size_of, found.sources)))
        on_bytes = report("hashing")
        entries = {source: _entry_of(source, on_bytes) for source in found.sources}
        yield _Preparation(found, entries, config, given, data, unknown, report)


def _entry_of(source: Source, on_bytes: OnBytes) -> SourceEntry:
    size, sha256 = 0, hashlib.sha256()
    for chunk in stored_chunks(source):
        sha256.update(chunk)
        size += len(chunk)
        on_bytes(len(chunk))
    name = source.name.encode(errors="surrogateescape").decode(errors="replace")  # a file's name may be no UTF-8
    return SourceEntry(name=name, size=size, sha256=sha256.hexdigest())


def reporter(on_progress: OnProgress | None, total: int) -> BeginStage:
    """A function that begins a stage of `total` bytes, and passes the sum of its bytes to `on_progress`."""

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
