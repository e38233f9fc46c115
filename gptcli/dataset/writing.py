"""From a survey of texts to the files of a dataset folder."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain

import numpy as np

from gptcli import storage
from gptcli.config import TokenizerConfig
from gptcli.dataset.choice import choose_kind
from gptcli.dataset.manifest import (
    DATASET_FILE,
    FORMAT,
    DatasetManifest,
    ShardEntry,
    SourceEntry,
    SplitEntry,
    TokenizerEntry,
)
from gptcli.dataset.shards import ShardWriter, dtype_for
from gptcli.dataset.sources import OnBytes, naming, read_text
from gptcli.dataset.survey import Survey, Text
from gptcli.errors import CorpusError
from gptcli.tokenizer.bpe import train_bpe
from gptcli.tokenizer.char import char_tokenizer
from gptcli.tokenizer.document import TOKENIZER_FILE
from gptcli.tokenizer.processes import Encode, encoding
from gptcli.tokenizer.tokenizer import Tokenizer

_MIN_TOKENS = 2

Report = Callable[[str], OnBytes]
"""Begins a stage of the work ("encoding") and gives what is to be called with each number of bytes done."""


@dataclass(frozen=True)
class Part:
    """The characters start..stop of a text, all in one split."""

    text: Text
    start: int
    stop: int


def split_parts(survey: Survey, training_characters: int) -> tuple[list[Part], list[Part]]:
    """The parts for training (the first so many characters) and for validation (the rest)."""
    train, val, before = [], [], 0
    for text in survey.texts:
        cut = min(max(training_characters - before, 0), text.characters)
        train += [Part(text, 0, cut)] if cut else []
        val += [Part(text, cut, text.characters)] if cut < text.characters else []
        before += text.characters
    return train, val


def make_tokenizer(
    config: TokenizerConfig, survey: Survey, train: list[Part], report: Report
) -> tuple[Tokenizer, list[str]]:
    """A new tokenizer, of the kind that `config` asks for, learned where it must be, and what to tell about it.

    The alphabet of a character tokenizer is that of the whole text; BPE learns from the training split alone.
    """
    kind, why = choose_kind(survey) if config.wanted == "auto" else (config.wanted, "")
    if config.kind == "auto" and config.wanted == "bpe":
        why = "Tokenizer: BPE, since a vocabulary size was given."
    notes = [why] if why else []
    if kind == "char":
        return char_tokenizer(survey.alphabet), notes
    on_bytes = report("training tokenizer")
    pieces = chain.from_iterable(map(PartReader().read, train))
    tokenizer = train_bpe(_counted(pieces, on_bytes), config.entries)
    if tokenizer.vocab_size < config.entries:
        notes.append(
            f"The text is too small for {config.entries:,} entries; the vocabulary has {tokenizer.vocab_size:,}."
        )
    return tokenizer, notes


def require_known(tokenizer: Tokenizer, survey: Survey) -> None:
    """Raise TokenizerError, which names the text, for characters that a given tokenizer does not know."""
    if tokenizer.unknown_characters("".join(survey.alphabet)):
        for text in survey.texts:
            with naming(text.file):
                for piece in read_text(text.file, lambda _: None):
                    tokenizer.refuse_unknown(piece)


def write_dataset(
    new: storage.NewDirectory,
    survey: Survey,
    splits: tuple[list[Part], list[Part]],
    tokenizer: Tokenizer,
    sources: tuple[SourceEntry, ...],
    *,
    name: str,
    key: str,
    report: Report,
) -> None:
    """Encode both splits into the folder `new` and write its manifest last."""
    separator = tokenizer.end_of_text if len(survey.texts) > 1 else None
    with encoding(tokenizer, survey.bytes) as encode:
        writing = _Writing(new, tokenizer, encode, separator, report("encoding"))
        train, val = (writing.split(split, parts) for split, parts in zip(("train", "val"), splits, strict=True))
    new.write(TOKENIZER_FILE, tokenizer.to_json().encode())
    manifest = DatasetManifest(
        format=FORMAT,
        name=name,
        key=key,
        tokenizer=TokenizerEntry.model_validate(
            {"kind": tokenizer.kind, "vocab_size": tokenizer.vocab_size, "fingerprint": tokenizer.fingerprint}
        ),
        documents=len(survey.texts),
        uses_end_of_text=separator is not None,
        start_id=_start_id(tokenizer, survey, separator, writing.first_token),
        train=train,
        val=val,
        sources=sources,
    )
    new.write(DATASET_FILE, storage.to_json(manifest.model_dump(mode="json")))


class PartReader:
    """Reads parts of texts in pieces; a text whose parts are asked for in order is read once."""

    def __init__(self) -> None:
        self._text: Text | None = None
        self._pieces: Iterator[str] = iter(())
        self._place, self._rest = 0, ""  # characters of the text that were taken, and some that come next

    def read(self, part: Part) -> Iterator[str]:
        """The characters of a part; raises CorpusError if the file changed since the survey."""
        if part.text is not self._text or part.start < self._place:
            self._text, self._pieces = part.text, read_text(part.text.file, lambda _: None)
            self._place, self._rest = 0, ""
        while self._place < part.stop and (piece := self._rest or next(self._pieces, "")):
            start, self._place = self._place, min(self._place + len(piece), part.stop)
            self._rest = piece[self._place - start :]
            if wanted := piece[max(part.start - start, 0) : self._place - start]:
                yield wanted
        is_last = part.stop == part.text.characters
        if self._place < part.stop or (is_last and (self._rest or next(self._pieces, ""))):
            raise CorpusError(f"{part.text.file.subject} changed while it was read.", "Run the same command again.")


class _Writing:
    """Encodes the splits of a dataset into its folder, and counts their text."""

    def __init__(
        self, new: storage.NewDirectory, tokenizer: Tokenizer, encode: Encode, separator: int | None, on_bytes: OnBytes
    ) -> None:
        """`separator` is the id that stands before each document, if one does."""
        self._new, self._dtype, self._cut = new, dtype_for(tokenizer.vocab_size), tokenizer.cut
        self._encode, self._on_bytes, self._reader = encode, on_bytes, PartReader()
        self._separator = np.array([] if separator is None else [separator], dtype=np.uint32)
        self._begins: deque[bool] = deque()
        """Of the texts that are being encoded, which begin a document."""
        self._characters = self._bytes = 0
        self._first_token: int | None = None

    @property
    def first_token(self) -> int:
        """The first id that stands for text."""
        assert self._first_token is not None, "the training split has tokens"
        return self._first_token

    def split(self, name: str, parts: list[Part]) -> SplitEntry:
        """Write the shards of a split. Raises CorpusError where it is too short."""
        self._characters = self._bytes = 0
        with ShardWriter(self._new, name, self._dtype) as writer:
            for ids in self._ids(parts):
                writer.append(ids)
        if writer.tokens < _MIN_TOKENS:
            raise _too_short(name, writer.tokens)
        files = storage.fingerprints(self._new.path, [shard.file for shard in writer.shards])
        shards = tuple(
            ShardEntry(file=shard.file, tokens=shard.tokens, dtype=self._dtype, **asdict(files[shard.file]))
            for shard in writer.shards
        )
        return SplitEntry(tokens=writer.tokens, characters=self._characters, bytes=self._bytes, shards=shards)

    def _ids(self, parts: list[Part]) -> Iterator[np.ndarray]:
        for ids in self._encode(self._texts(parts)):
            if self._begins.popleft() and self._separator.size:
                yield self._separator
            if self._first_token is None and ids.size:
                self._first_token = int(ids[0])
            yield ids

    def _texts(self, parts: list[Part]) -> Iterator[str]:
        for part in parts:
            begins = part.start == 0  # the rest of a text that was cut begins no document
            for text in self._cut(self._counted(self._reader.read(part))):
                self._begins.append(begins)
                begins = False
                yield text

    def _counted(self, pieces: Iterator[str]) -> Iterator[str]:
        for piece in pieces:
            length = _utf8_length(piece)
            self._characters += len(piece)
            self._bytes += length
            yield piece
            self._on_bytes(length)


def _utf8_length(text: str) -> int:
    """Bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def _counted(pieces: Iterator[str], on_bytes: OnBytes) -> Iterator[str]:
    for piece in pieces:
        yield piece
        on_bytes(_utf8_length(piece))


def _start_id(tokenizer: Tokenizer, survey: Survey, separator: int | None, first_token: int) -> int:
    """What an empty prompt starts from: `<|endoftext|>` if the text has it, else a newline, else the text's start."""
    if separator is not None:
        return separator
    newline = tokenizer.encode("\n") if "\n" in survey.alphabet else []
    return newline[0] if len(newline) == 1 else first_token


def _too_short(split: str, tokens: int) -> CorpusError:
    where = "training" if split == "train" else "validation"
    return CorpusError(
        f"The text is too short: its {where} part has {tokens} token{'' if tokens == 1 else 's'}, and needs 2.",
        "Use more text, or another --val-fraction.",
    )
