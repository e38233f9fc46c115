"""A look at what would be read, before a dataset is made of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gptcli.config import DataConfig, TokenizerConfig, parse_section
from gptcli.config.values import nest
from gptcli.dataset.finding import Skipped, find_sources
from gptcli.dataset.importing import IdCounts, splits_of, validation_note
from gptcli.dataset.preparation import reporter
from gptcli.dataset.scanning import scan
from gptcli.dataset.sources import OnProgress, size_of
from gptcli.dataset.token_files import TokenFile, are_token_files, find_token_files
from gptcli.errors import counted
from gptcli.paths import text_paths
from gptcli.tokenizer.tokenizer import load_tokenizer

_SHOWN_CHARACTERS = 500


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

    `settings` are fields of the config's section `data` by dotted name, such as {"data.text_field": "body"}, and
    `tokenizer.kind` for token files. Raises ConfigError, and CorpusError for text that cannot be read.
    """
    values = nest(settings or {})
    data, inputs = parse_section(DataConfig, values.get("data", {})), text_paths(texts)
    if are_token_files(inputs, data.format):
        config = parse_section(TokenizerConfig, values.get("tokenizer", {}))
        return _preview_of_tokens(find_token_files(inputs, data.format), config, data, on_progress)
    with find_sources(inputs, data, on_progress) as found:
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


def _preview_of_tokens(
    files: Sequence[TokenFile], config: TokenizerConfig, data: DataConfig, on_progress: OnProgress | None
) -> Preview:
    """A look at the text of token files; all of their ids are checked."""
    kept, held_out, cut = splits_of(files, config, data)
    tokenizer = load_tokenizer(Path(config.kind))
    counts, on_bytes = IdCounts(tokenizer), reporter(on_progress, sum(file.bytes for file in files))("reading")
    for _ in counts.checked(files, 0, None, on_bytes):
        pass
    characters, size = counts.text_size()
    trained = sum(file.tokens for file in kept)
    listed = (f"{file.path.name}: {counted(file.tokens, 'id')} of {8 * file.dtype.itemsize} bits." for file in files)
    first = tokenizer.decode(kept[0].ids()[:_SHOWN_CHARACTERS].tolist())
    return Preview(
        files=dict(Counter(file.format for file in files)),
        documents=max(1, counts.ends_of_text),
        characters=characters,
        bytes=size,
        beginnings=(first[:_SHOWN_CHARACTERS],),
        skipped=(),
        notes=(*listed, validation_note(held_out, trained - cut)),
    )
