"""Dataset folders from token files of other tools: ids are checked and copied, so that training reads one format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from gptcli import storage
from gptcli.config import DataConfig, TokenizerConfig
from gptcli.dataset.folder import is_dataset, open_dataset
from gptcli.dataset.manifest import (
    DATASET_FILE,
    DatasetManifest,
    SourceEntry,
    SplitEntry,
    TokenizerEntry,
    digest,
    read_manifest,
)
from gptcli.dataset.preparation import Prepared, reporter
from gptcli.dataset.shards import BegunShards, ShardWriter, dtype_for
from gptcli.dataset.sources import OnBytes, OnProgress
from gptcli.dataset.token_files import TokenFile
from gptcli.dataset.writing import start_id
from gptcli.errors import CorpusError, DatasetError, UsageError, counted
from gptcli.tokenizer.document import TOKENIZER_FILE
from gptcli.tokenizer.tokenizer import Tokenizer, is_path, load_tokenizer

MAX_HELD_OUT = 2_500_000
"""Most tokens that are held out where no share is stated."""
_BLOCK = 1 << 20
"""Ids that are checked and copied at once."""


def import_tokens(
    files: Sequence[TokenFile],
    out: Path,
    config: TokenizerConfig,
    data: DataConfig,
    on_progress: OnProgress | None,
    *,
    name: str,
    force: bool,
) -> Prepared:
    """The dataset folder `out` of token files: made, or opened if it exists already.

    Files whose names say so are held out, or else the last part of all ids. Raises UsageError where no tokenizer is
    named or a setting has no effect, CorpusError for an id that the tokenizer does not have, and DatasetError where
    `out` is a dataset of something else.
    """
    kept, held_out, cut = splits_of(files, config, data)
    tokenizer = load_tokenizer(Path(config.kind))
    report = reporter(on_progress, sum(file.bytes for file in files))
    on_bytes = report("hashing")
    sources = tuple(_source(file, on_bytes) for file in files)
    listed = [entry.model_dump() for entry in sources]
    key = digest(["tokens", tokenizer.fingerprint, data.val_fraction, [file.offset for file in files], listed])
    if is_dataset(out) and not force:
        if read_manifest(out).key != key:
            hint = "Choose another place with `out`, or replace it with `force`."
            raise DatasetError(f"'{out}' is a dataset of other tokens or settings.", hint)
        return Prepared(open_dataset(out), reused=True)
    with storage.new_directory(out, manifest=None, replace=True) as new:
        importer = _Importer(new, tokenizer, report("copying"))
        train = importer.split("train", kept, 0, cut)
        val = importer.split("val", held_out or kept, 0 if held_out else cut, None)
        new.write(TOKENIZER_FILE, tokenizer.to_json().encode())
        manifest = importer.manifest(train, val, sources, name=name, key=key)
        new.write(DATASET_FILE, manifest.to_json())
    return Prepared(open_dataset(out, verify=False), notes=[validation_note(held_out, val.tokens)])


def splits_of(
    files: Sequence[TokenFile], config: TokenizerConfig, data: DataConfig
) -> tuple[list[TokenFile], list[TokenFile], int]:
    """The files for training, those for validation, and the number of ids of the first that are trained on.

    Raises as `import_tokens` does, before any id is read.
    """
    kept, held_out = ([file for file in files if file.is_validation is wanted] for wanted in (False, True))
    _refuse_idle_settings(config, data, has_validation=bool(held_out))
    tokens = sum(file.tokens for file in kept)
    if not tokens:
        raise CorpusError("All of the token files are for validation, by their names.", "Name those for training, too.")
    return kept, held_out, tokens if held_out else tokens - _held_out_tokens(tokens, data.val_fraction)


def validation_note(held_out: Sequence[TokenFile], tokens: int) -> str:
    """A sentence that says which ids are held out."""
    what = ", ".join(file.path.name for file in held_out) or f"the last {counted(tokens, 'token')}"
    return f"Validation: {what}."


def _refuse_idle_settings(config: TokenizerConfig, data: DataConfig, *, has_validation: bool) -> None:
    if not is_path(config.kind):
        hint = "Name it, such as `tokenizer.kind = gpt2/tokenizer.json`."
        raise UsageError("Token files do not say which tokenizer made them.", hint)
    used = {"format"} | ({"val_fraction"} if not has_validation else set())
    for name, field in DataConfig.model_fields.items():
        if name not in used and getattr(data, name) != field.default:
            why = "a file is held out by its name" if name == "val_fraction" else "token files hold no text"
            raise UsageError(f"`data.{name}` has no effect: {why}.", "Leave it out.")


def _source(file: TokenFile, on_bytes: OnBytes) -> SourceEntry:
    with storage.disk_errors(file.path, "Reading"):
        size, sha256 = file.path.stat().st_size, storage.sha256_of_file(file.path)
    on_bytes(size)
    return SourceEntry(name=file.path.name, size=size, sha256=sha256)


def _held_out_tokens(tokens: int, val_fraction: float | None) -> int:
    if val_fraction is not None:
        return max(1, round(val_fraction * tokens))
    return max(1, min(tokens // 10, MAX_HELD_OUT))


class IdCounts:
    """How often each id of a tokenizer was read, and the size of their text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._counts = np.zeros(tokenizer.vocab_size, dtype=np.int64)

    def checked(
        self, files: Sequence[TokenFile], start: int, stop: int | None, on_bytes: OnBytes
    ) -> Iterator[np.ndarray]:
        """The ids start..stop of the files, end to end and in blocks, once they are counted.

        Raises CorpusError for one outside the vocabulary.
        """
        before = 0
        for file in files:
            first, last = max(start - before, 0), file.tokens if stop is None else min(stop - before, file.tokens)
            ids = file.ids()
            for begin in range(first, last, _BLOCK):
                block = np.asarray(ids[begin : min(begin + _BLOCK, last)])
                if int(block.max()) >= len(self._counts):
                    raise self._outside(file, block, begin)
                self._counts += np.bincount(block, minlength=len(self._counts))
                on_bytes(block.nbytes)
                yield block
            before += file.tokens

    @property
    def tokens(self) -> int:
        return int(self._counts.sum())

    @property
    def ends_of_text(self) -> int:
        end_of_text = self._tokenizer.end_of_text
        return 0 if end_of_text is None else int(self._counts[end_of_text])

    def text_size(self) -> tuple[int, int]:
        """Characters and UTF-8 bytes."""
        texts = [self._tokenizer.token_bytes(token) for token in range(self._tokenizer.vocab_size)]
        # A character of UTF-8 has one byte that does not continue another, so that tokens need not be decoded together.
        characters = np.array([sum(byte & 0xC0 != 0x80 for byte in text) for text in texts])
        return int(self._counts @ characters), int(self._counts @ np.array([*map(len, texts)]))

    def _outside(self, file: TokenFile, block: np.ndarray, begin: int) -> CorpusError:
        largest, place, known = int(block.max()), begin + int(block.argmax()), counted(len(self._counts), "id")
        message = f"'{file.path}' has the id {largest:,} at place {place:,}, but the tokenizer has only {known}."
        hint = "Name the tokenizer that made the file with `tokenizer.kind`, or its format with `data.format`."
        return CorpusError(message, hint)


class _Importer:
    """Writes ids to a dataset's folder, and counts their text."""

    def __init__(self, new: storage.NewDirectory, tokenizer: Tokenizer, on_bytes: OnBytes) -> None:
        self._new, self._tokenizer, self._on_bytes = new, tokenizer, on_bytes
        self._ends_of_text = 0

    def split(self, name: str, files: Sequence[TokenFile], start: int, stop: int | None) -> SplitEntry:
        """Write the ids start..stop of the files, end to end."""
        counts = IdCounts(self._tokenizer)
        dtype = dtype_for(self._tokenizer.vocab_size)
        with ShardWriter(self._new, name, dtype, BegunShards()) as writer:
            for ids in counts.checked(files, start, stop, self._on_bytes):
                writer.write(ids)
            shards = writer.finish()
        tokens, (characters, size) = counts.tokens, counts.text_size()
        if tokens < 2 or not size:
            what = "training" if name == "train" else "validation"
            message = f"The {what} part has {counted(tokens, 'token')} with {counted(size, 'byte')} of text, too few."
            raise CorpusError(message, "Use larger files, or another `data.val_fraction`.")
        self._ends_of_text += counts.ends_of_text
        return SplitEntry(tokens=tokens, characters=max(1, characters), bytes=size, shards=shards)

    def manifest(
        self, train: SplitEntry, val: SplitEntry, sources: tuple[SourceEntry, ...], *, name: str, key: str
    ) -> DatasetManifest:
        tokenizer, end_of_text = self._tokenizer, self._tokenizer.end_of_text
        is_separated = end_of_text is not None and self._ends_of_text > 0
        return DatasetManifest(
            format=1,
            name=name,
            key=key,
            tokenizer=TokenizerEntry.of(tokenizer),
            documents=max(1, self._ends_of_text),
            uses_end_of_text=is_separated,
            start_id=end_of_text if is_separated and end_of_text is not None else start_id(tokenizer, self._new, train),
            train=train,
            val=val,
            sources=sources,
        )
