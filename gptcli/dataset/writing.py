"""Writing the files of a dataset folder from a corpus and a tokenizer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np

from gptcli import storage
from gptcli.dataset.corpus import Corpus
from gptcli.dataset.manifest import DATASET_FILE, FORMAT, DatasetManifest, SourceEntry, SplitEntry, TokenizerEntry
from gptcli.dataset.shards import dtype_for, open_shard, write_shards
from gptcli.dataset.sources import OnBytes
from gptcli.dataset.splits import Part, PartReader, utf8_length
from gptcli.errors import CorpusError, counted
from gptcli.tokenizer.document import TOKENIZER_FILE
from gptcli.tokenizer.processes import Encode, encoding
from gptcli.tokenizer.tokenizer import Tokenizer

_MIN_TOKENS = 2
FEW_TOKENS = 256
"""Validation tokens below which the loss says little. Refused only where a tenth of the text would be more, so that
small texts can be trained on."""
_COUNTED_TOKENS = 2**20
"""Tokens of the training split, from its start, in which the start token is looked for."""
_RARE = 1e-4
"""Share of the tokens up to which a newline is too rare to start from."""


def write_dataset(
    new: storage.NewDirectory,
    corpus: Corpus,
    splits: tuple[Iterable[Part], Iterable[Part]],
    tokenizer: Tokenizer,
    sources: tuple[SourceEntry, ...],
    *,
    name: str,
    key: str,
    on_bytes: OnBytes,
) -> None:
    """Encode both splits into the folder `new` and write its manifest last."""
    separator = tokenizer.end_of_text if len(corpus.documents) > 1 else None
    with encoding(tokenizer, corpus.bytes) as encode:
        writer = _SplitWriter(new, corpus, tokenizer, encode, separator, on_bytes)
        train, val = (writer.write(split, parts) for split, parts in zip(("train", "val"), splits, strict=True))
    if val.tokens < FEW_TOKENS and train.tokens + val.tokens >= 10 * FEW_TOKENS:
        message = (
            f"The validation part has only {counted(val.tokens, 'token')}, too few for a loss that says something."
        )
        raise CorpusError(message, "Hold out more, such as `data.val_fraction = 0.1`.")
    new.write(TOKENIZER_FILE, tokenizer.to_json().encode())
    manifest = DatasetManifest(
        format=FORMAT,
        name=name,
        key=key,
        tokenizer=TokenizerEntry.model_validate(
            {"kind": tokenizer.kind, "vocab_size": tokenizer.vocab_size, "fingerprint": tokenizer.fingerprint}
        ),
        documents=len(corpus.documents),
        uses_end_of_text=separator is not None,
        start_id=start_id(tokenizer, new, train) if separator is None else separator,
        train=train,
        val=val,
        sources=sources,
    )
    new.write(DATASET_FILE, storage.to_json(manifest.model_dump(mode="json")))


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
        self._begins: deque[bool] = deque()
        """For each text that is being encoded, in order: whether it begins a document."""
        self._characters = self._bytes = 0

    def write(self, split: str, parts: Iterable[Part]) -> SplitEntry:
        """Write the shards of a split. Raises CorpusError if it is too short."""
        self._characters = self._bytes = 0
        shards = write_shards(self._new, split, self._dtype, self._ids(parts))
        tokens = sum(shard.tokens for shard in shards)
        if tokens < _MIN_TOKENS:
            raise _too_short(split, tokens)
        return SplitEntry(tokens=tokens, characters=self._characters, bytes=self._bytes, shards=shards)

    def _ids(self, parts: Iterable[Part]) -> Iterator[np.ndarray]:
        for ids in self._encode(self._texts(parts)):
            if self._begins.popleft() and self._separator.size:
                yield self._separator
            yield ids

    def _texts(self, parts: Iterable[Part]) -> Iterator[str]:
        for part in parts:
            begins = part.start == 0  # the second half of a document that was split does not begin one
            for text in self._cut(self._counted(self._reader.read(part))):
                self._begins.append(begins)
                begins = False
                yield text

    def _counted(self, pieces: Iterator[str]) -> Iterator[str]:
        for piece in pieces:
            length = utf8_length(piece)
            self._characters += len(piece)
            self._bytes += length
            yield piece
            self._on_bytes(length)


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
