"""Sentences for the user about what readers found in the sources, and about settings that had no effect on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gptcli.dataset.finding import Found
from gptcli.dataset.readers import TEXT, format_of
from gptcli.dataset.recognizing import may_be_table
from gptcli.dataset.rows.column import listed
from gptcli.dataset.sources import Source
from gptcli.errors import counted


def notes_on_rows(sources: Sequence[Source]) -> Iterator[str]:
    """Notes about rows that are not what they seem."""
    if bad := sum(source.findings.bad_rows for source in sources):
        yield f"Skipped {counted(bad, 'row')} that cannot be read."
    if short := sum(source.findings.short_rows for source in sources):
        yield f"Fewer fields than columns in {counted(short, 'row')}: what is missing counts as blank."
    named = [source for source in sources if source.findings.header and not source.findings.is_known_column]
    if named:
        names = listed(named[0].findings.header)
        several = f"name their columns in their first row, such as {names}"
        yield _note(named, f"names its columns in its first row: {names}", several)


def notes_on_bytes(sources: Sequence[Source]) -> Iterator[str]:
    """Notes about encodings and line ends, and about what standard input is taken for."""
    for source in sources:
        if source.descriptor is None or source.settings.format != "auto":
            continue
        if format_of(source) != TEXT:
            yield f"{source.label} is read as {format_of(source)}: `data.format = text` reads its characters instead."
        elif may_be_table(source):
            yield f"{source.label} is read as plain text. If it is a table, read its rows with `data.format = csv`."
    if count := sum(source.findings.undecodable for source in sources):
        did = "Skipped" if sources[0].settings.errors == "skip" else "Replaced by U+FFFD:"
        yield f"{did} {counted(count, 'sequence')} of bytes that cannot be decoded."
    encodings = Counter(source.findings.encoding for source in sources if source.findings.encoding)
    if encodings.keys() - {"utf-8"}:
        yield f"Encodings found: {', '.join(f'{n:,} {name}' for name, n in encodings.most_common())}."
    marked = [source for source in sources if source.findings.has_mark]
    dropped = "starts with a byte-order mark, which is dropped", "start with byte-order marks, which are dropped"
    yield _note(marked, *dropped)
    crlf = [source for source in sources if source.findings.has_crlf]
    kept = "; they are kept (`data.newline = lf` converts them)"
    yield _note(crlf, f"has CRLF line ends{kept}", f"have CRLF line ends{kept}")


def notes_on_idle_settings(found: Found, sources: Sequence[Source]) -> Iterator[str]:
    """Notes about settings that had no effect on the sources that were read."""
    yield from notes_on_idle_patterns(found)
    settings, formats = sources[0].settings, ", ".join(dict.fromkeys(map(format_of, sources)))
    if settings.text_field is not None and not any(source.findings.column for source in sources):
        yield f"`data.text_field = {settings.text_field}` has no effect: {formats} has no columns."
    if settings.encoding != "utf-8" and not any(source.findings.is_decoded for source in sources):
        yield f"`data.encoding = {settings.encoding}` has no effect: {formats} has an encoding of its own."
    if settings.doc_separator is None:
        return
    texts = [source for source in sources if format_of(source) == TEXT]
    if not texts:
        yield f"`data.doc_separator` has no effect: it cuts plain text alone, not {formats}."
    elif all(source.findings.documents < 2 for source in texts):
        yield f"`data.doc_separator` has no effect: {settings.doc_separator!r} does not occur in the text."


def notes_on_idle_patterns(found: Found) -> Iterator[str]:
    """Notes about file name patterns that had no effect."""
    has_folder = any(source.from_folder for source in found.sources)
    for pattern in found.unmatched:
        why = "nothing in the folder matches it" if has_folder else "it chooses among the files of folders"
        yield f"`{pattern}` has no effect: {why}."


def _note(sources: list[Source], one: str, several: str) -> str:
    if len(sources) < 2:
        return f"{sources[0].label} {one}." if sources else ""
    return f"{len(sources):,} files {several} (the first: {sources[0].label})."
