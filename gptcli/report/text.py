"""Reports about a dataset, a tokenizer, and text."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from gptcli.config import DataConfig
from gptcli.dataset.finding import find_sources
from gptcli.dataset.folder import Split, open_dataset
from gptcli.dataset.readers import read_documents
from gptcli.dataset.refusals import utf8_alone
from gptcli.dataset.scanning import scan
from gptcli.dataset.sources import OnProgress
from gptcli.dataset.splits import utf8_length
from gptcli.dataset.vocabulary import choose_kind
from gptcli.errors import CorpusError, TokenizerError, counted
from gptcli.tokenizer.tokenizer import Tokenizer, load_tokenizer

PIECES = 10_000
"""Most tokens of a text that a report lists."""


@dataclass(frozen=True)
class TokenizerSummary:
    kind: str
    """`char` or `bpe`."""
    vocab_size: int
    characters: int | None
    """Number of ids that stand for whole characters; None for `bpe`."""
    end_of_text: int | None
    fingerprint: str


@dataclass(frozen=True)
class SplitSummary:
    tokens: int
    characters: int
    bytes: int
    bytes_per_token: float
    tokens_per_byte: float


@dataclass(frozen=True)
class SourceSummary:
    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class DatasetReport:
    """A dataset folder, all of whose hashes were checked."""

    name: str
    path: str
    fingerprint: str
    tokenizer: TokenizerSummary
    documents: int
    start_id: int
    train: SplitSummary
    val: SplitSummary
    sources: tuple[SourceSummary, ...]
    """Each source, up to 10,000."""
    source_total: SourceSummary | None
    """The sum of all sources where they are too many to list."""
    kind: str = "dataset"


@dataclass(frozen=True)
class TokenizerReport:
    """A tokenizer."""

    path: str
    tokenizer: TokenizerSummary
    kind: str = "tokenizer"


@dataclass(frozen=True)
class TokenText:
    id: int
    text: str
    """The piece as text; an incomplete character is U+FFFD."""
    hex: str
    """Its bytes in hexadecimal."""


@dataclass(frozen=True)
class TokensReport:
    """A text and its tokens as pieces of text."""

    tokenizer_path: str
    text_path: str
    tokenizer: TokenizerSummary
    characters: int
    bytes: int
    tokens: int
    distinct_tokens: int
    bytes_per_token: float
    pieces: tuple[TokenText, ...]
    """The first `PIECES` tokens."""
    kind: str = "tokens"


@dataclass(frozen=True)
class TextReport:
    """A text file, or a folder of them."""

    path: str
    files: int
    characters: int
    bytes: int
    lines: int
    distinct_characters: int
    alphabet: str
    """The distinct characters, sorted."""
    tokenizer: str
    """The kind that `tokenizer.kind = auto` would choose: `char` or `bpe`."""
    tokenizer_reason: str
    training_characters: int
    """Characters that are not held out for validation by default."""
    notes: tuple[str, ...]
    kind: str = "text"


def describe_dataset(path: Path) -> DatasetReport:
    """Describe a dataset folder after checking every hash. Raises DatasetError."""
    dataset = open_dataset(path, verify=True)
    total = dataset.source_total
    return DatasetReport(
        name=dataset.name,
        path=str(path),
        fingerprint=dataset.fingerprint,
        tokenizer=summary_of(dataset.tokenizer),
        documents=dataset.documents,
        start_id=dataset.start_id,
        train=_split(dataset.train),
        val=_split(dataset.val),
        sources=tuple(SourceSummary(source.name, source.size, source.sha256) for source in dataset.sources),
        source_total=SourceSummary(counted(total.files, "file"), total.bytes, total.sha256) if total else None,
    )


def describe_tokenizer(path: Path) -> TokenizerReport:
    """Describe a tokenizer. Raises TokenizerError."""
    return TokenizerReport(str(path), summary_of(load_tokenizer(path)))


def describe_tokens(tokenizer_path: Path, text: str, on_progress: OnProgress | None = None) -> TokensReport:
    """Tokenize a text and describe its first pieces. Raises TokenizerError or CorpusError."""
    tokenizer = load_tokenizer(tokenizer_path)
    characters = tokens = size = 0
    seen = np.zeros(tokenizer.vocab_size, dtype=np.bool_)
    shown: list[int] = []

    def counted(pieces: Iterable[str]) -> Iterator[str]:
        nonlocal characters, size
        for piece in pieces:
            characters += len(piece)
            size += utf8_length(piece)
            yield piece

    with _by_defaults(text), find_sources([text], DataConfig(), on_progress) as found:
        documents = chain.from_iterable(read_documents(source, lambda _count: None) for source in found.sources)
        try:
            for ids in tokenizer.encode_pieces(counted(chain.from_iterable(documents))):
                seen[ids] = True
                tokens += len(ids)
                shown += ids[: PIECES - len(shown)].tolist()
        except TokenizerError as error:
            hint = "Give a tokenizer that was made for this text, or a BPE tokenizer."
            raise TokenizerError(error.message, hint) from None
    return TokensReport(
        tokenizer_path=str(tokenizer_path),
        text_path=text,
        tokenizer=summary_of(tokenizer),
        characters=characters,
        bytes=size,
        tokens=tokens,
        distinct_tokens=int(seen.sum()),
        bytes_per_token=size / max(1, tokens),
        pieces=tuple(_piece(token, tokenizer.token_bytes(token)) for token in shown),
    )


def _piece(token: int, content: bytes) -> TokenText:
    return TokenText(token, content.decode(errors="replace"), content.hex())


def describe_text(given: str, on_progress: OnProgress | None = None) -> TextReport:
    """Describe a text file, a folder of them, or text from elsewhere.

    Raises CorpusError if it is not text, empty or blank, or cannot be downloaded.
    """
    with _by_defaults(given), find_sources([given], DataConfig(), on_progress) as found:
        corpus = scan(found, lambda _count: None)
        lines = sum(_lines(pieces) for source in corpus.sources for pieces in corpus.read(source))
    kind, reason = choose_kind(corpus)
    return TextReport(
        path=given,
        files=len(corpus.sources),
        characters=corpus.characters,
        bytes=corpus.bytes,
        lines=lines,
        distinct_characters=len(corpus.alphabet),
        alphabet="".join(corpus.alphabet),
        tokenizer=kind,
        tokenizer_reason=reason,
        training_characters=corpus.training_characters(None),
        notes=corpus.notes,
    )


@contextmanager
def _by_defaults(text: str) -> Iterator[None]:
    """Hints about other settings name the command that has them."""
    try:
        with utf8_alone():
            yield
    except CorpusError as error:
        if "`data." not in error.hint:
            raise
        other = f"`inspect` has no such option; `gptcli tokenize {shlex.quote(str(text))} --dry-run` has."
        raise CorpusError(error.message, f"{error.hint} {other}") from None


def summary_of(tokenizer: Tokenizer) -> TokenizerSummary:
    """The figures of a tokenizer."""
    ends = tokenizer.end_of_text is not None
    characters = int(tokenizer.emittable.sum()) - ends if tokenizer.kind == "char" else None
    return TokenizerSummary(
        tokenizer.kind, tokenizer.vocab_size, characters, tokenizer.end_of_text, tokenizer.fingerprint
    )


def _split(split: Split) -> SplitSummary:
    tokens, size = split.tokens, split.bytes
    return SplitSummary(tokens, split.characters, size, size / tokens, tokens / size)


def _lines(pieces: Iterable[str]) -> int:
    """Lines of a document; the last one may lack its newline."""
    newlines, piece = 0, "\n"
    for piece in pieces:
        newlines += piece.count("\n")
    return newlines + (not piece.endswith("\n"))
