"""Writing the files of a dataset folder from a corpus and a tokenizer."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gptcli import storage
from gptcli.dataset.corpus import Corpus
from gptcli.dataset.manifest import (
    DATASET_FILE,
    LISTED_SOURCES,
    DatasetManifest,
    SourceEntry,
    SplitEntry,
    TokenizerEntry,
    total_of,
)
from gptcli.dataset.progress import BEGINNING, SAVE_EVERY_BYTES, Journal, Place, Reused
from gptcli.dataset.reusing import reuse_ids
from gptcli.dataset.shards import ShardWriter, dtype_for, open_shard
from gptcli.dataset.sources import OnBytes
from gptcli.dataset.splits import Part, PartReader
from gptcli.errors import CorpusError, counted
from gptcli.tokenizer.document import TOKENIZER_FILE
from gptcli.tokenizer.processes import Encode, Encoding
from gptcli.tokenizer.tokenizer import Tokenizer

_MIN_TOKENS = 2
FEW_TOKENS = 256
"""Validation tokens below which the loss says little. Refused only where a tenth of the text would be more, so that
small texts can be trained on."""
_COUNTED_TOKENS = 2**20
"""Tokens of the training split, from its start, in which the start token is looked for."""
_RARE = 1e-4
"""Share of the tokens up to which a newline is too rare to start from."""
_BEGIN = Place()


def write_dataset(
    new: storage.NewDirectory,
    corpus: Corpus,
    splits: tuple[Iterable[Part], Iterable[Part]],
    tokenizer: Tokenizer,
    sources: Iterable[SourceEntry],
    *,
    name: str,
    key: str,
    encoding: Encoding,
    on_bytes: OnBytes,
    journal: Journal | None = None,
) -> DatasetManifest:
    """Encode both splits into the folder `new` and write its manifest last. With a journal, continue its work."""
    separator = tokenizer.end_of_text if len(corpus.documents) > 1 else None
    with encoding(tokenizer, corpus.bytes) as encode:
        writer = _SplitWriter(new, corpus, tokenizer, encode, separator, on_bytes)
        train, val = _write_splits(writer, splits, tokenizer, on_bytes, journal)
    if val.tokens < FEW_TOKENS and train.tokens + val.tokens >= 10 * FEW_TOKENS:
        message = (
            f"The validation part has only {counted(val.tokens, 'token')}, too few for a loss that says something."
        )
        raise CorpusError(message, "Hold out more, such as `data.val_fraction = 0.1`.")
    if not journal:
        new.write(TOKENIZER_FILE, tokenizer.to_json().encode())
    is_listed = len(corpus.sources) <= LISTED_SOURCES
    manifest = DatasetManifest(
        format=1 if is_listed else 2,
        name=name,
        key=key,
        tokenizer=TokenizerEntry.of(tokenizer),
        documents=len(corpus.documents),
        uses_end_of_text=separator is not None,
        start_id=start_id(tokenizer, new, train) if separator is None else separator,
        train=train,
        val=val,
        sources=tuple(sources) if is_listed else (),
        source_total=None if is_listed else total_of(sources),
    )
    new.write(DATASET_FILE, manifest.to_json())
    return manifest


def _write_splits(
    writer: _SplitWriter,
    splits: tuple[Iterable[Part], Iterable[Part]],
    tokenizer: Tokenizer,
    on_bytes: OnBytes,
    journal: Journal | None,
) -> tuple[SplitEntry, SplitEntry]:
    """Write both splits, from where the journal says."""
    train_parts, val_parts = splits
    if not journal:
        return writer.write("train", train_parts), writer.write("val", val_parts)
    progress = journal.begin(tokenizer)
    if not progress.bytes and (reused := writer.reuse(train_parts, tokenizer, journal.earlier)):
        journal.reused = reused
        progress = progress.model_copy(update={"place": reused.place, "marks": reused.marks})
        journal.save(progress)
    on_bytes(progress.bytes)
    if progress.train is None:

        def save(place: Place, digest: str) -> None:
            nonlocal progress
            progress = progress.model_copy(update={"place": place, "marks": (*progress.marks, place.mark(digest))})
            journal.save(progress)

        train = writer.write("train", train_parts, progress.place, save)
        progress = progress.model_copy(update={"train": train, "place": Place()})
        journal.save(progress)
    assert progress.train

    def save_val(place: Place, _digest: str) -> None:
        journal.save(progress.model_copy(update={"place": place}))

    val = writer.write("val", val_parts, progress.place, save_val)
    journal.finish(progress)
    return progress.train, val


class _Step(NamedTuple):
    """A text that is being encoded."""

    begins: bool
    """Whether it begins a document."""
    part: int
    """The number of its part."""
    stop: int
    """The place in its document at which it ends."""
    characters: int
    data: bytes
    """The text in UTF-8."""


class _SplitWriter:
    """Encodes the splits of a dataset into its folder, and counts their text."""

    def __init__(
        self,
        new: storage.NewDirectory,
        corpus: Corpus,
        tokenizer: Tokenizer,
        encode: Encode,
        separator: int | None,
        on_bytes: OnBytes,
    ) -> None:
        """`separator` is the id in front of each document, if there is one."""
        self._new, self._dtype, self._cut = new, dtype_for(tokenizer.vocab_size), tokenizer.cut
        self._encode, self._on_bytes, self._reader = encode, on_bytes, PartReader(corpus)
        self._separator = np.array([] if separator is None else [separator], dtype=np.uint32)
        self._corpus = corpus
        self._steps: deque[_Step] = deque()
        """The texts that are being encoded, in order."""

    def reuse(self, parts: Iterable[Part], tokenizer: Tokenizer, earlier: Iterable[Path]) -> Reused | None:
        """Take over ids of the training split from an earlier dataset."""
        return reuse_ids(self._new, tokenizer, self._corpus, parts, earlier)

    def write(
        self, split: str, parts: Iterable[Part], place: Place = _BEGIN, save: Callable[[Place, str], None] | None = None
    ) -> SplitEntry:
        """Write the shards of a split from `place` on. Raises CorpusError if it is too short.

        `save` is called with each place from which the work can be continued, and a hash of the text before it.
        """
        digest = hashlib.blake2b()
        characters, size, saved = place.characters, place.bytes, place.bytes
        with ShardWriter(self._new, split, self._dtype, place.begun()) as writer:
            for ids in self._encode(self._texts(parts, place)):
                step = self._steps.popleft()
                if step.begins and self._separator.size:
                    writer.write(self._separator)
                writer.write(ids)
                characters, size = characters + step.characters, size + len(step.data)
                if save:
                    digest.update(BEGINNING + step.data if step.begins else step.data)
                if save and size - saved >= SAVE_EVERY_BYTES:
                    begun, saved = writer.begun(), size
                    place = Place.of(begun, part=step.part, character=step.stop, characters=characters, bytes=size)
                    save(place, digest.hexdigest())
                    digest = hashlib.blake2b()
            shards = writer.finish()
        tokens = sum(shard.tokens for shard in shards)
        if tokens < _MIN_TOKENS:
            raise _too_short(split, tokens)
        return SplitEntry(tokens=tokens, characters=characters, bytes=size, shards=shards)

    def _texts(self, parts: Iterable[Part], place: Place) -> Iterator[str]:
        """The texts of a split from a place on, as they are encoded."""
        for number, part in enumerate(islice(parts, place.part, None), place.part):
            stop = max(part.start, place.character) if number == place.part else part.start
            if stop == part.stop:
                continue
            begins = stop == 0  # the second half of a document that was split does not begin one
            for text in self._cut(self._reader.read(Part(part.document, stop, part.stop))):
                data = text.encode()
                stop += len(text)
                self._steps.append(_Step(begins, number, stop, len(text), data))
                begins = False
                yield text
                self._on_bytes(len(data))


def start_id(tokenizer: Tokenizer, new: storage.NewDirectory, train: SplitEntry) -> int:
    """The id that an empty prompt starts from where no `<|endoftext|>` separates documents.

    It has to be one after which the model has learned what comes next: a newline, or, where the text has hardly any,
    the most frequent token that begins with a space, or else the most frequent one.
    """
    shard = train.shards[0]
    ids = open_shard(new.path / shard.file, shard.tokens, shard.dtype)[:_COUNTED_TOKENS]
    counts = np.bincount(ids, minlength=tokenizer.vocab_size)
    newline = tokenizer.encode("\n", unknown="skip")
    if len(newline) == 1 and counts[newline[0]] > _RARE * ids.size:
        return newline[0]
    after_space = [tokenizer.token_bytes(token).startswith(b" ") for token in range(tokenizer.vocab_size)]
    words = np.where(after_space, counts, 0)
    return int((words if words.any() else counts).argmax())


def _too_short(split: str, tokens: int) -> CorpusError:
    name = "training" if split == "train" else "validation"
    return CorpusError(
        f"The text is too short: its {name} part has {counted(tokens, 'token')}, and needs {_MIN_TOKENS}.",
        "Use more text, or another `data.val_fraction`.",
    )
