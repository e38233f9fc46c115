"""The key of a dataset: a hash of its sources and settings, by which the same text is prepared once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

from gptcli.config import DataConfig
from gptcli.dataset.manifest import SourceEntry
from gptcli.dataset.readers import TEXT, format_of
from gptcli.dataset.sources import Source, in_memory

_FORMAT = 1
"""Of the keys, not of the manifest: datasets of earlier versions are found by the same keys."""
_READING = ("text_field", "encoding", "errors", "newline", "doc_separator", "dedup")
"""Settings of `DataConfig` that change the documents. In the key only where they are set, so that it stays that of
earlier versions."""


def dataset_key(
    settings: Sequence[str | int | float | None], data: DataConfig, entries: Iterable[tuple[Source, SourceEntry]]
) -> str:
    """The key of a dataset of these sources, in order; `settings` are those of the tokenizer and the split.

    It is the sha256 of the JSON of [format, settings, sources, reading], which is never held as a whole.
    """
    reading = {name: value for name in _READING if (value := getattr(data, name)) != _default(name)}
    hashed, separator = hashlib.sha256(f"[{_FORMAT}, {_json(settings)}, [".encode()), ""
    for source, entry in entries:
        hashed.update(f"{separator}{_json(_keyed(source, entry))}".encode())
        separator = ", "
    hashed.update((f"], {_json(reading)}]" if reading else "]]").encode())
    return hashed.hexdigest()


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _keyed(source: Source, entry: SourceEntry) -> dict[str, Any]:
    """A source in the key. What an earlier version read as text, such as a table, has another key than its rows."""
    kind = source.findings.format or format_of(in_memory(source))
    keyed = {"name": entry.name, "size": entry.size, "sha256": entry.sha256}
    return keyed | ({"format": kind} if kind != TEXT else {})


def _default(name: str) -> object:
    return DataConfig.model_fields[name].default
