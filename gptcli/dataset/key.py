"""The key of a dataset: a hash of its sources and settings, by which the same text is prepared once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gptcli.config import DataConfig
from gptcli.dataset.manifest import FORMAT, SourceEntry, digest
from gptcli.dataset.readers import TEXT, format_of
from gptcli.dataset.sources import Source

_READING = ("text_field", "encoding", "errors", "newline", "doc_separator", "dedup")
"""Settings of `DataConfig` that change the documents. In the key only where they are set, so that it stays that of
earlier versions."""


def dataset_key(
    settings: Sequence[str | int | float | None], data: DataConfig, entries: Mapping[Source, SourceEntry]
) -> str:
    """The key of a dataset of these sources, in order; `settings` are those of the tokenizer and the split."""
    reading = {name: value for name in _READING if (value := getattr(data, name)) != _default(name)}
    sources = [_keyed(source, entry) for source, entry in entries.items()]
    return digest([FORMAT, settings, sources, *([reading] if reading else [])])


def _keyed(source: Source, entry: SourceEntry) -> dict[str, Any]:
    """A source in the key. What an earlier version read as text, such as a table, has another key than its rows."""
    kind = format_of(source)
    return entry.model_dump() | ({"format": kind} if kind != TEXT else {})


def _default(name: str) -> object:
    return DataConfig.model_fields[name].default
