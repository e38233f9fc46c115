"""Datasets, tokenizers and plain text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gptcli.config import DataConfig
from gptcli.dataset.choice import choose_kind
from gptcli.dataset.folder import Split, open_dataset
from gptcli.dataset.sources import find_texts, read_text
from gptcli.dataset.survey import survey
from gptcli.tokenizer.tokenizer import Tokenizer, load_tokenizer


@dataclass(frozen=True)
class TokenizerSummary:
    kind: str
    """`char` or `bpe`."""
    vocab_size: int
    characters: int | None
    """Ids that stand for whole characters; None of `bpe`."""
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
class Source:
    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class DatasetReport:
    """A dataset folder whose hashes were all checked."""

    name: str
    path: str
    fingerprint: str
    tokenizer: TokenizerSummary
    documents: int
    start_id: int
    train: SplitSummary
    val: SplitSummary
    sources: tuple[Source, ...]
    kind: str = "dataset"


@dataclass(frozen=True)
class TokenizerReport:
    path: str
    tokenizer: TokenizerSummary
    kind: str = "tokenizer"


@dataclass(frozen=True)
class Piece:
    id: int
    text: str
    """The piece as text; bytes that are a part of a character show as U+FFFD."""
    hex: str
    """The piece's bytes."""


@dataclass(frozen=True)
class TokensReport:
    """A text as a tokenizer cuts it."""

    tokenizer_path: str
    text_path: str
    tokenizer: TokenizerSummary
    characters: int
    bytes: int
    tokens: int
    distinct_tokens: int
    bytes_per_token: float
    pieces: tuple[Piece, ...]
    kind: str = "tokens"


@dataclass(frozen=True)
class TextReport:
    path: str
    files: int
    characters: int
    bytes: int
    lines: int
    distinct_characters: int
    alphabet: str
    """The distinct characters, sorted."""
    tokenizer: str
    """What `--tokenizer auto` would take: `char` or `bpe`."""
    tokenizer_reason: str
    training_characters: int
    """What is not held out for validation by default."""
    notes: tuple[str, ...]
    kind: str = "text"


def describe_dataset(path: Path) -> DatasetReport:
    """A dataset folder, every hash in it checked; raises DatasetError."""
    dataset = open_dataset(path, verify=True)
    return DatasetReport(
        name=dataset.name,
        path=str(path),
        fingerprint=dataset.fingerprint,
        tokenizer=summary_of(dataset.tokenizer),
        documents=dataset.documents,
        start_id=dataset.start_id,
        train=_split(dataset.train),
        val=_split(dataset.val),
        sources=tuple(Source(source.name, source.size, source.sha256) for source in dataset.sources),
    )


def describe_tokenizer(path: Path) -> TokenizerReport:
    """A tokenizer by itself; raises TokenizerError."""
    return TokenizerReport(str(path), summary_of(load_tokenizer(path)))


def describe_tokens(tokenizer_path: Path, text_path: Path) -> TokensReport:
    """The pieces of a text; raises TokenizerError or CorpusError."""
    tokenizer = load_tokenizer(tokenizer_path)
    with find_texts([str(text_path)], DataConfig().include) as files:
        text = "".join(piece for file in files for piece in read_text(file, _ignore))
    pieces = tokenizer.pieces(text)
    size = sum(len(content) for _, content in pieces)
    return TokensReport(
        tokenizer_path=str(tokenizer_path),
        text_path=str(text_path),
        tokenizer=summary_of(tokenizer),
        characters=len(text),
        bytes=size,
        tokens=len(pieces),
        distinct_tokens=len({token for token, _ in pieces}),
        bytes_per_token=size / max(1, len(pieces)),
        pieces=tuple(Piece(token, content.decode(errors="replace"), content.hex()) for token, content in pieces),
    )


def describe_text(path: Path) -> TextReport:
    """A text file, or a folder of them; raises CorpusError for what is not text, empty or blank."""
    with find_texts([str(path)], DataConfig().include) as files:
        look = survey(files, _ignore)
        breaks = sum(piece.count("\n") for text in look.texts for piece in read_text(text.file, _ignore))
        unfinished = sum(_ends_without_newline(text.file.path) for text in look.texts)
    kind, reason = choose_kind(look)
    return TextReport(
        path=str(path),
        files=len(look.texts),
        characters=look.characters,
        bytes=look.bytes,
        lines=breaks + unfinished,
        distinct_characters=len(look.alphabet),
        alphabet="".join(look.alphabet),
        tokenizer=kind,
        tokenizer_reason=reason,
        training_characters=look.training_characters(None),
        notes=look.notes,
    )


def summary_of(tokenizer: Tokenizer) -> TokenizerSummary:
    """What a tokenizer is, in figures."""
    ends = tokenizer.end_of_text is not None
    characters = int(tokenizer.emittable.sum()) - ends if tokenizer.kind == "char" else None
    return TokenizerSummary(
        tokenizer.kind, tokenizer.vocab_size, characters, tokenizer.end_of_text, tokenizer.fingerprint
    )


def _split(split: Split) -> SplitSummary:
    tokens, size = split.tokens, split.bytes
    return SplitSummary(tokens, split.characters, size, size / tokens, tokens / size)


def _ends_without_newline(path: Path) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, 2)
        return file.read(1) != b"\n"


def _ignore(count: int) -> None:
    """Bytes were read; nobody shows it."""
