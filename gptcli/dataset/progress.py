"""How far the preparation of a dataset has come, so that the next process continues where one was killed.

The place is always one where `Tokenizer.cut` cut the text, and encoding begins anew there: the ids do not depend on
where the work was interrupted, nor on the number of processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from gptcli import __version__
from gptcli.dataset.corpus import Corpus
from gptcli.dataset.hashes import HASHES_FILE
from gptcli.dataset.manifest import Dtype, ShardEntry, SplitEntry
from gptcli.dataset.shards import BegunShards, crc32_of_shard, dtype_for, shard_name
from gptcli.errors import StorageError, TokenizerError
from gptcli.storage import FileEntry, UnfinishedDirectory, mismatch, to_json
from gptcli.tokenizer.document import TOKENIZER_FILE
from gptcli.tokenizer.tokenizer import Tokenizer, load_tokenizer
from gptcli.untrusted import strict_json

SAVE_EVERY_BYTES = 1 << 26
"""Text that is encoded between two saves. Less text is prepared in seconds, and its unfinished work is not kept."""

MARKS_FILE = "marks.json"
BEGINNING = b"\xff"
"""No byte of UTF-8."""

_Count = Annotated[int, Field(ge=0)]


class Place(BaseModel):
    """A place in a split: all before it is on the disk."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    part: _Count = 0
    """Number of the part of the split in which encoding continues."""
    character: _Count = 0
    """Its document's first character that is not encoded."""
    characters: _Count = 0
    """Of the split, before this place."""
    bytes: _Count = 0
    """Of the split, in UTF-8, before this place."""
    shards: Annotated[tuple[ShardEntry, ...], Field(strict=False)] = ()
    """Finished ones."""
    tokens: _Count = 0
    """Of the unfinished shard."""
    crc32: _Count = 0
    """Of these tokens."""

    @classmethod
    def of(cls, begun: BegunShards, *, part: int, character: int, characters: int, bytes: int) -> Place:
        return cls(
            part=part,
            character=character,
            characters=characters,
            bytes=bytes,
            shards=begun.finished,
            tokens=begun.tokens,
            crc32=begun.crc32,
        )

    def mark(self, digest: str) -> Mark:
        """The mark at this place."""
        tokens = self.tokens + sum(shard.tokens for shard in self.shards)
        return Mark(
            part=self.part,
            character=self.character,
            characters=self.characters,
            bytes=self.bytes,
            tokens=tokens,
            digest=digest,
        )

    def begun(self) -> BegunShards:
        return BegunShards(self.shards, self.tokens, self.crc32)


class Mark(BaseModel):
    """A place in a training split, and the text between it and the mark before."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    part: _Count
    character: _Count
    characters: _Count
    bytes: _Count
    tokens: _Count
    """All ids before it."""
    digest: str
    """Hexadecimal blake2b of the text, with `BEGINNING` where a document begins."""


class Reused(NamedTuple):
    """The ids that were taken over."""

    place: Place
    marks: tuple[Mark, ...]
    folder: Path
    """The dataset that they are from."""


class Progress(BaseModel):
    """The state of an unfinished dataset."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: Literal[1] = 1
    version: str = __version__
    """Of gptcli: another one may read or cut the text in another way."""
    key: str
    documents: _Count
    characters: _Count
    tokenizer: str
    """Its fingerprint."""
    train: SplitEntry | None = None
    """The training split, once it is finished."""
    marks: Annotated[tuple[Mark, ...], Field(strict=False)] = ()
    """Of the training split."""
    place: Place = Place()
    """In the training split, or else in the validation split."""

    @property
    def bytes(self) -> int:
        """Bytes of text that are encoded."""
        return self.place.bytes + (self.train.bytes if self.train else 0)


class Journal:
    """The progress of an unfinished dataset, read and saved."""

    def __init__(self, new: UnfinishedDirectory, key: str, corpus: Corpus, earlier: Sequence[Path] = ()) -> None:
        """`earlier`: datasets whose ids may be reused."""
        self._new, self._key, self._corpus, self.earlier = new, key, corpus, earlier
        self.reused: Reused | None = None
        """The ids of an earlier dataset with which the work began."""
        self.tokenizer: Tokenizer | None = None
        """The tokenizer of the work that is there."""
        self.progress = self._usable()
        """The progress of the work that is there; None if it is of other text or settings, or damaged."""
        new.keep_only(self._names(self.progress) if self.progress else {HASHES_FILE})

    def begin(self, tokenizer: Tokenizer) -> Progress:
        """The progress from which to continue. New work begins with the tokenizer, which may take long to train."""
        if self.progress and self.progress.tokenizer == tokenizer.fingerprint:
            return self.progress
        self._new.keep_only({HASHES_FILE})
        self._new.write(TOKENIZER_FILE, tokenizer.to_json().encode())
        progress = self._beginning(tokenizer)
        self.save(progress)
        return progress

    def finish(self, progress: Progress) -> None:
        """Write the marks, by which the ids can be reused when the text has grown."""
        self._new.write(MARKS_FILE, to_json([mark.model_dump() for mark in progress.marks]))

    def save(self, progress: Progress) -> None:
        self._new.save_state(to_json(progress.model_dump(mode="json")))

    def _usable(self) -> Progress | None:
        try:
            found = Progress.model_validate(strict_json(self._new.state() or b""))
            self.tokenizer = load_tokenizer(self._new.path / TOKENIZER_FILE)
            same = found.model_copy(update={"train": None, "place": Place(), "marks": ()}) == self._beginning(
                self.tokenizer
            )
            if same and self._is_whole(found, dtype_for(self.tokenizer.vocab_size)):
                return found
        except (ValueError, TokenizerError, StorageError, OSError):  # ValidationError is a ValueError
            pass
        self.tokenizer = None
        return None

    def _beginning(self, tokenizer: Tokenizer) -> Progress:
        documents, characters = len(self._corpus.documents), self._corpus.characters
        return Progress(key=self._key, documents=documents, characters=characters, tokenizer=tokenizer.fingerprint)

    def _is_whole(self, progress: Progress, dtype: Dtype) -> bool:
        """Whether the shards are as they were written."""
        if any(shard.dtype != dtype for shard in _finished(progress)):
            return False
        files = {shard.file: FileEntry(shard.bytes, shard.sha256) for shard in _finished(progress)}
        if mismatch(self._new.path, files):
            return False
        place = progress.place
        path = self._new.path / _unfinished_shard(progress)
        return not place.tokens or crc32_of_shard(path, place.tokens, dtype) == place.crc32

    def _names(self, progress: Progress) -> set[str]:
        unfinished = [_unfinished_shard(progress)] if progress.place.tokens else []
        return {TOKENIZER_FILE, HASHES_FILE, *unfinished, *(shard.file for shard in _finished(progress))}


def _finished(progress: Progress) -> tuple[ShardEntry, ...]:
    return (*(progress.train.shards if progress.train else ()), *progress.place.shards)


def _unfinished_shard(progress: Progress) -> str:
    return shard_name("val" if progress.train else "train", len(progress.place.shards))
