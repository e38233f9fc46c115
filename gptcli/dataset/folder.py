"""Opening dataset folders.

data/book-1a2b3c4d/
    dataset.json       manifest: files with hashes, and where the text came from
    tokenizer.json
    train-00000.npy    token ids
    val-00000.npy
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gptcli.dataset.hashes import mismatch_of_shards
from gptcli.dataset.manifest import (
    DAMAGED_HINT,
    DATASET_FILE,
    DamagedDataset,
    SourceEntry,
    SourceTotal,
    SplitEntry,
    read_manifest,
)
from gptcli.dataset.shards import TokenStream, open_shard
from gptcli.errors import TokenizerError, clause, reason_of
from gptcli.storage import FileEntry, mismatch
from gptcli.tokenizer.document import TOKENIZER_FILE
from gptcli.tokenizer.tokenizer import Tokenizer, load_tokenizer

_ALWAYS_HASHED_BYTES = 1_000_000_000


@dataclass(frozen=True)
class Split:
    """One split: its tokens, and the sizes of its text."""

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
    """The id that an empty prompt starts from."""
    documents: int
    uses_end_of_text: bool
    sources: tuple[SourceEntry, ...]
    """Each source, up to `LISTED_SOURCES`."""
    train: Split
    val: Split
    source_total: SourceTotal | None = None
    """The sum of all sources where they are too many to list."""

    @property
    def end_id(self) -> int | None:
        """The id of `<|endoftext|>`, if it separates the documents."""
        return self.tokenizer.end_of_text if self.uses_end_of_text else None


def is_dataset(path: str | Path) -> bool:
    """Whether `path` has the manifest of a dataset folder; see also `place.restore_interrupted`."""
    try:
        return (Path(path) / DATASET_FILE).is_file()
    except (OSError, ValueError):
        return False


def open_dataset(path: Path, *, verify: bool | None = None) -> Dataset:
    """Open a dataset folder.

    Sizes are always checked, hashes if `verify` is true. None: up to 1 GB of tokens, and only of shards that may have
    changed since they were last hashed. Raises DatasetError if anything is missing, cut off, altered or of another
    format.
    """
    manifest = read_manifest(path)
    shards = manifest.shards()
    files = {shard.file: FileEntry(shard.bytes, shard.sha256) for shard in shards}
    is_small = sum(shard.bytes for shard in shards) <= _ALWAYS_HASHED_BYTES
    try:
        keeps = verify is None and is_small
        problem = mismatch_of_shards(path, shards) if keeps else mismatch(path, files, hashes=bool(verify))
    except OSError as error:
        problem = f"'{path}' cannot be read ({reason_of(error)})"
    if problem:
        raise _damaged(path, problem)
    if not (path / TOKENIZER_FILE).is_file():
        raise _damaged(path, f"'{path / TOKENIZER_FILE}' is missing")
    try:
        tokenizer = load_tokenizer(path / TOKENIZER_FILE)
    except TokenizerError as error:
        raise _damaged(path, clause(error.message)) from None
    expected = manifest.tokenizer
    if tokenizer.fingerprint != expected.fingerprint or tokenizer.vocab_size != expected.vocab_size:
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
        source_total=manifest.source_total,
    )


def _open_split(path: Path, entry: SplitEntry, vocab_size: int) -> Split:
    shards = [open_shard(path / shard.file, shard.tokens, shard.dtype) for shard in entry.shards]
    return Split(entry.tokens, entry.characters, entry.bytes, TokenStream(shards, vocab_size))


def _damaged(path: Path, problem: str) -> DamagedDataset:
    return DamagedDataset(f"The dataset '{path}' is damaged: {problem}.", DAMAGED_HINT)
