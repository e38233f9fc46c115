"""From a survey of texts to the files of a dataset folder."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from gptcli import storage
from gptcli.config import TokenizerConfig
from gptcli.errors import CorpusError
from gptcli.text.bpe import train_bpe
from gptcli.text.char import char_tokenizer
from gptcli.text.choice import choose_kind
from gptcli.text.corpus import OnBytes, read_text
from gptcli.text.manifest import FORMAT, MANIFEST_FILE, Manifest, ShardEntry, SourceEntry, SplitEntry, TokenizerEntry
from gptcli.text.processes import Encode, encoding
from gptcli.text.survey import Survey, Text
from gptcli.text.tokenizer import Tokenizer, is_path, load_tokenizer
from gptcli.text.tokenizer_json import TOKENIZER_FILE
from gptcli.text.tokens import ShardWriter, dtype_for

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
    """The tokenizer that `config` asks for, learned where it must be, and what to tell about it.

    The alphabet of a character tokenizer is that of the whole text; BPE learns from the training split alone.
    """
    if is_path(config.kind):
        return load_tokenizer(Path(config.kind)), []
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
    on_bytes = report("encoding")
    uses_end_of_text = len(survey.texts) > 1 and tokenizer.end_of_text is not None
    entries, first_token, reader = [], None, PartReader()
    with encoding(tokenizer, survey.bytes) as encode:
        for split, parts in zip(("train", "val"), splits, strict=True):
            writing = _SplitWriting(tokenizer, encode, reader, uses_end_of_text, on_bytes)
            with ShardWriter(new, split, dtype_for(tokenizer.vocab_size)) as writer:
                for ids in writing.ids(parts):
                    writer.append(ids)
            if writer.tokens < _MIN_TOKENS:
                raise _too_short(split, writer.tokens)
            entries.append(_split_entry(new, writer, writing))
            first_token = writing.first_token if first_token is None else first_token
    new.write(TOKENIZER_FILE, tokenizer.to_json().encode())
    assert first_token is not None, "the training split has tokens"
    manifest = Manifest(
        format=FORMAT,
        name=name,
        key=key,
        tokenizer=TokenizerEntry.model_validate(
            {"kind": tokenizer.kind, "vocab_size": tokenizer.vocab_size, "fingerprint": tokenizer.fingerprint}
        ),
        documents=len(survey.texts),
        uses_end_of_text=uses_end_of_text,
        start_id=_start_id(tokenizer, survey, uses_end_of_text, first_token),
        train=entries[0],
        val=entries[1],
        sources=sources,
    )
    new.write(MANIFEST_FILE, storage.to_json(manifest.model_dump(mode="json")))


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


class _SplitWriting:
    """Encodes the parts of a split, and counts their text."""

    def __init__(
        self, tokenizer: Tokenizer, encode: Encode, reader: PartReader, uses_end_of_text: bool, on_bytes: OnBytes
    ) -> None:
        self.characters = self.bytes = 0
        self.first_token: int | None = None
        """The first id that stands for text."""
        self._cut, self._encode, self._reader, self._on_bytes = tokenizer.cut, encode, reader, on_bytes
        self._separator = np.array([tokenizer.end_of_text] if uses_end_of_text else [], dtype=np.uint32)
        self._begins: deque[bool] = deque()
        """Of the texts that are being encoded, which begin a document."""

    def ids(self, parts: list[Part]) -> Iterator[np.ndarray]:
        for ids in self._encode(self._texts(parts)):
            if self._begins.popleft() and self._separator.size:
                yield self._separator
            if self.first_token is None and ids.size:
                self.first_token = int(ids[0])
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
            self.characters += len(piece)
            self.bytes += length
            yield piece
            self._on_bytes(length)


def _utf8_length(text: str) -> int:
    """Bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def _counted(pieces: Iterator[str], on_bytes: OnBytes) -> Iterator[str]:
    for piece in pieces:
        yield piece
        on_bytes(_utf8_length(piece))


def _split_entry(new: storage.NewDirectory, writer: ShardWriter, writing: _SplitWriting) -> SplitEntry:
    files = storage.fingerprints(new.path, [shard.file for shard in writer.shards])
    shards = tuple(
        ShardEntry(file=shard.file, tokens=shard.tokens, dtype=writer.dtype, **asdict(files[shard.file]))
        for shard in writer.shards
    )
    return SplitEntry(tokens=writer.tokens, characters=writing.characters, bytes=writing.bytes, shards=shards)


def _start_id(tokenizer: Tokenizer, survey: Survey, uses_end_of_text: bool, first_token: int) -> int:
    """What an empty prompt starts from: `<|endoftext|>` if the text has it, else a newline, else the text's start."""
    if uses_end_of_text and tokenizer.end_of_text is not None:
        return tokenizer.end_of_text
    newline = tokenizer.encode("\n") if "\n" in survey.alphabet else []
    return newline[0] if len(newline) == 1 else first_token


def _too_short(split: str, tokens: int) -> CorpusError:
    where = "training" if split == "train" else "validation"
    return CorpusError(
        f"The text is too short: its {where} part has {tokens} token{'' if tokens == 1 else 's'}, and needs 2.",
        "Use more text, or another --val-fraction.",
    )
