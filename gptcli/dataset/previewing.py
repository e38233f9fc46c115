"""A look at what would be read, before a dataset is made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gptcli.config import DataConfig, parse_section
from gptcli.config.values import nest
from gptcli.dataset.finding import Skipped, find_sources
from gptcli.dataset.preparation import reporter
from gptcli.dataset.scanning import scan
from gptcli.dataset.sources import OnProgress, size_of
from gptcli.paths import text_paths


@dataclass(frozen=True)
class Preview:
    """What `tokenize` would read."""

    files: dict[str, int]
    """Number of files by format, such as {"text": 58, "jsonl": 2}."""
    documents: int
    characters: int
    bytes: int
    """UTF-8 bytes of all documents."""
    beginnings: tuple[str, ...]
    """The first 500 characters of the first two documents."""
    skipped: tuple[Skipped, ...]
    """Files and folders inside folders that would not be read."""
    notes: tuple[str, ...]
    """Sentences for the user about the text."""


def preview(
    texts: str | Path | Sequence[str | Path],
    *,
    settings: Mapping[str, Any] | None = None,
    on_progress: OnProgress | None = None,
) -> Preview:
    """Read texts as `tokenize` would, and write nothing.

    `settings` are fields of the config's section `data` by dotted name, such as {"data.text_field": "body"}. Raises
    ConfigError, and CorpusError for text that cannot be read.
    """
    data = parse_section(DataConfig, nest(settings or {}).get("data", {}))
    with find_sources(text_paths(texts), data, on_progress) as found:
        report = reporter(on_progress, sum(map(size_of, found.sources)))
        corpus = scan(found, report("reading"))
    return Preview(
        files=corpus.summary.formats,
        documents=len(corpus.documents),
        characters=corpus.characters,
        bytes=corpus.bytes,
        beginnings=corpus.beginnings,
        skipped=corpus.summary.skipped,
        notes=corpus.notes,
    )
