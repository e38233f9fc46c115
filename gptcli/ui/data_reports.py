"""Tables for reports on datasets, tokenizers and texts."""

from __future__ import annotations

from rich.console import RenderableType

from gptcli.errors import size
from gptcli.report.datasets import DatasetList
from gptcli.report.inspection import CorpusList
from gptcli.report.text import (
    PIECES,
    DatasetReport,
    SplitSummary,
    TextReport,
    TokenizerReport,
    TokenizerSummary,
    TokensReport,
)
from gptcli.ui.console import wording
from gptcli.ui.preparing import ids_in_words
from gptcli.ui.tables import facts, left, right, table

PIECES_SHOWN = 40
SOURCES_SHOWN = 10
ALPHABET_SHOWN = 200


def dataset_list(report: DatasetList) -> RenderableType:
    """A row for each dataset, and their total size."""
    columns = [*left("dataset", "tokenizer"), *right("ids", "tokens", "size"), *left("made", "")]
    rows = [
        (
            dataset.name,
            dataset.tokenizer,
            dataset.vocab_size,
            dataset.tokens,
            size(dataset.bytes),
            dataset.made,
            "damaged" if dataset.problem else "",
        )
        for dataset in report.datasets
    ]
    total = ("total", "", "", "", size(report.bytes), "", "")
    return table(
        f"Datasets in {report.root}. Safe to delete: rebuilt from the text when needed", columns, rows, total=total
    )


def corpus_list(report: CorpusList) -> list[RenderableType]:
    """The corpora with a name, and where they come from."""
    rows = [
        (corpus.name, "–" if corpus.bytes is None else size(corpus.bytes), corpus.licence, corpus.what)
        for corpus in report.corpora
    ]
    columns = [*left("corpus"), *right("download"), *left("licence", "what")]
    sources = [
        (corpus.name, f"pip install 'gptcli[{corpus.needs}]'" if corpus.needs else "", corpus.source)
        for corpus in report.corpora
    ]
    return [
        table("Corpora, for example: gptcli train shakespeare", columns, rows),
        table("Sources", left("corpus", "needs", "source"), sources),
    ]


def tokenizer(report: TokenizerReport) -> RenderableType:
    return facts(f"Tokenizer {report.path}", _tokenizer(report.tokenizer))


def dataset(report: DatasetReport) -> list[RenderableType]:
    rows = [
        *_tokenizer(report.tokenizer),
        ("documents", report.documents),
        ("hashes", "all checked, all right"),
        ("fingerprint", report.fingerprint[:16]),
    ]
    shown = (*report.sources[:SOURCES_SHOWN], *([report.source_total] if report.source_total else []))
    sources = [(source.name, source.bytes, source.sha256[:16]) for source in shown]
    unshown = max(0, len(report.sources) - SOURCES_SHOWN)
    return [
        facts(f"Dataset {report.path}", rows),
        table(
            "Splits",
            [*left("split"), *right("tokens", "characters", "bytes", "bytes/token", "tokens/byte")],
            [_split("train", report.train), _split("val", report.val)],
        ),
        table(
            "Sources" + (f" (and {unshown:,} more)" if unshown > 0 else ""),
            [*left("name"), *right("bytes"), *left("sha256")],
            sources,
        ),
    ]


def _split(name: str, split: SplitSummary) -> tuple[object, ...]:
    return (name, split.tokens, split.characters, split.bytes, split.bytes_per_token, split.tokens_per_byte)


def _tokenizer(tokenizer: TokenizerSummary) -> list[tuple[str, object]]:
    return [
        ("tokenizer", ids_in_words(tokenizer)),
        ("end of text", tokenizer.end_of_text),
        ("its fingerprint", tokenizer.fingerprint[:16]),
    ]


def tokens(report: TokensReport) -> list[RenderableType]:
    rows = [
        ("tokenizer", ids_in_words(report.tokenizer)),
        ("characters", report.characters),
        ("bytes", report.bytes),
        ("tokens", f"{report.tokens:,} ({report.distinct_tokens:,} distinct)"),
        ("bytes per token", f"{report.bytes_per_token:.3f}"),
    ]
    shown = report.pieces[:PIECES_SHOWN]
    of_all = (
        f", the first {len(shown):,} of {report.tokens:,} (up to {PIECES:,} with --json)"
        if len(shown) < report.tokens
        else ""
    )
    pieces = [(place, piece.id, repr(piece.text), piece.hex) for place, piece in enumerate(shown)]
    return [
        facts(f"{report.text_path} by {report.tokenizer_path}", rows),
        table(f"Pieces{of_all}", [*right("", "id"), *left("piece", "bytes")], pieces),
    ]


def text(report: TextReport) -> RenderableType:
    alphabet = repr(report.alphabet[:ALPHABET_SHOWN])[1:-1] + ("…" if len(report.alphabet) > ALPHABET_SHOWN else "")
    held_out = report.characters - report.training_characters
    rows: list[tuple[str, object]] = [
        ("files", report.files),
        ("characters", f"{report.characters:,} ({held_out:,} would be held out)"),
        ("bytes", report.bytes),
        ("lines", report.lines),
        ("distinct", f"{report.distinct_characters:,} characters: {alphabet}"),
        ("tokenizer auto", report.tokenizer_reason.removeprefix("Tokenizer: ")),
    ]
    rows += [("note", wording.get()(note)) for note in report.notes]
    return facts(f"Text {report.path}", rows)
