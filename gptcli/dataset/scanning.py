"""Scanning sources into a corpus: documents, characters, and what is left out and why."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

from gptcli.dataset.alphabet import Characters
from gptcli.dataset.corpus import Corpus
from gptcli.dataset.documents import Document, Documents
from gptcli.dataset.duplicates import Duplicates
from gptcli.dataset.finding import Found, Skipped
from gptcli.dataset.notes import notes_on_bytes, notes_on_idle_settings, notes_on_rows
from gptcli.dataset.readers import TEXT, format_of, has_documents, read_documents
from gptcli.dataset.refusals import MissingExtraError, NotRowsError, NotTextError, UndecodableError
from gptcli.dataset.sources import OnBytes, Source, in_memory
from gptcli.dataset.spool import MAX_DOCUMENT_BYTES, Spool
from gptcli.dataset.summary import ReadSummary
from gptcli.errors import CorpusError, counted
from gptcli.tokenizer.tokenizer import Tokenizer

_NAMED_CHARACTERS = 10
_LISTED_FILES = 10
_SHOWN_DOCUMENTS = 2
_SHOWN_CHARACTERS = 500
_NOTED_CHARACTERS = 60
_UNREADABLE = "unreadable"


def scan(
    found: Found,
    on_bytes: OnBytes,
    *,
    skip_unknown: Tokenizer | None = None,
    read: Callable[[Source], Source] = in_memory,
    spool: Spool | None = None,
) -> Corpus:
    """Read every source once. Raises CorpusError for a source that is not text, empty or blank.

    In folders such files, and those whose reader is not installed, are skipped, and with `data.errors = skip` all that
    cannot be read; `Corpus.summary` has them. Files in another encoding are refused together. With `skip_unknown`,
    characters that this tokenizer does not know are skipped too. `read` gives the form of a source that is read, such
    as one in memory. The texts of small documents are kept in `spool`.
    """
    scanning = _Scan(found, skip_unknown, spool)
    undecodable: list[UndecodableError] = []
    for source in found.sources:
        try:
            scanning.add(source, read(source), on_bytes)
        except UndecodableError as error:
            undecodable.append(error)
    if undecodable:
        raise _all_of(undecodable)
    if not scanning.used:
        message = f"The files of the folder hold no text: {scanning.summary().reasons_in_words()}."
        raise CorpusError(message, "Name a folder or file with text in UTF-8.")
    return scanning.corpus()


@dataclass
class _Seen:
    """What was seen in the text so far. The values are immutable, so that a copy is a state to go back to."""

    beginnings: tuple[str, ...] = ()
    first_row: str = ""
    blank_rows: int = 0
    skipped_characters: int = 0
    unknown: frozenset[str] = frozenset()
    """The characters that were skipped."""


class _Scan:
    """The documents and characters of the sources that were read so far."""

    def __init__(self, found: Found, skip_unknown: Tokenizer | None, spool: Spool | None) -> None:
        self._found = found
        self.used: list[Source] = []
        self._documents, self._characters = Documents(), Characters()
        self._formats: Counter[str] = Counter()
        self._skipped, self._found_notes = list(found.skipped), found.notes
        self._unreadable: list[str] = []
        self._seen = _Seen()
        self._skip_unknown, self._spool = skip_unknown, spool
        dedup = found.sources[0].settings.dedup if found.sources else "off"
        self._duplicates = Duplicates(dedup)
        self._hashes = dedup != "off" or len(found.sources) > 1 or any(map(has_documents, found.sources))
        """Whether each document gets a hash of its text, which finds copies and chooses the split. Of several sources
        any may hold many documents; hashing costs less than looking into each of them first."""

    def add(self, source: Source, held: Source, on_bytes: OnBytes) -> None:
        """Read a source as `held`. Raises CorpusError; nothing of the source is kept then, nor if it is skipped."""
        before, seen_before = len(self._documents), replace(self._seen)
        copies_before = self._duplicates.copies
        self._duplicates.begin()
        try:
            problem = self._read(source, held, on_bytes)
        except CorpusError as error:
            problem = _reason(error, source)
            if not source.from_folder:
                raise
            if not problem:
                raise _skippable(error) from None
            if problem == _UNREADABLE:
                self._unreadable.append(error.message)
            self._documents.cut(before)
            if self._spool:
                self._spool.cut(before)
            self._duplicates.forget()
            self._seen = seen_before
        if not problem and len(self._documents) == before:
            problem = "copies" if self._duplicates.copies > copies_before else "blank"
        self._characters.end_source(keep=not problem)
        if not problem:
            self.used.append(source)
            self._formats[format_of(source)] += 1
        elif source.from_folder or problem == "copies":
            problem = "blank" if problem == "empty" else problem
            lacks_rows = problem == "blank" and source.findings.bad_rows
            self._skipped.append(Skipped(source.name, "without a row that can be read" if lacks_rows else problem))
        else:
            raise _blank(source, problem, self._seen.skipped_characters > seen_before.skipped_characters)

    def summary(self) -> ReadSummary:
        return ReadSummary(dict(self._formats.most_common()), tuple(self._skipped))

    def corpus(self) -> Corpus:
        summary = self.summary()
        return Corpus(
            documents=self._documents,
            sources=tuple(self.used),
            alphabet=self._characters.alphabet(),
            notes=tuple(filter(None, [*self._found_notes, summary.sentence(), *self._notes()])),
            summary=summary,
            beginnings=self._seen.beginnings,
            has_skipped=self._seen.skipped_characters > 0,
            skip_unknown=self._skip_unknown,
            spool=self._spool,
        )

    def _read(self, source: Source, held: Source, on_bytes: OnBytes) -> str:
        """Read a source; "empty" if it has no text at all, else ""."""
        is_empty, source.findings.has_crlf, source.findings.documents = True, False, 0
        for index, pieces in enumerate(read_documents(held, on_bytes)):
            source.findings.documents += 1
            first = next(pieces, "")
            is_empty = is_empty and not first
            self._add_document(source, index, chain([first], pieces))
        return "empty" if is_empty else ""

    def _add_document(self, source: Source, index: int, pieces: Iterator[str]) -> None:
        """Count a document, and keep it unless it is blank or a copy."""
        characters = size = 0
        is_blank, beginning = True, ""
        kept_beginning = self._duplicates.compared_characters or _SHOWN_CHARACTERS
        hashed = hashlib.blake2b(digest_size=8) if self._hashes else None
        small: list[bytes] = []
        for piece in pieces:
            kept = self._without_unknown(piece) if self._skip_unknown else piece
            characters += len(kept)
            data = self._characters.add(kept, source)
            size += len(data)
            if size <= MAX_DOCUMENT_BYTES:
                small.append(data)
            if hashed:
                hashed.update(data)
            is_blank = is_blank and (not kept or kept.isspace())
            source.findings.has_crlf = source.findings.has_crlf or "\r\n" in piece
            if len(beginning) < kept_beginning:
                beginning += kept[:kept_beginning]
        if is_blank:
            self._seen.blank_rows += bool(source.findings.column)
            return
        digest = int.from_bytes(hashed.digest(), "little", signed=True) if hashed else 0
        if self._duplicates.is_copy(digest, beginning):
            return
        self._documents.append(Document(source, index, characters, size, digest))
        if self._spool:
            self._spool.add(small if size <= MAX_DOCUMENT_BYTES else [])
        if source.findings.column and not self._seen.first_row:
            self._seen.first_row = beginning[:_SHOWN_CHARACTERS]
        if len(self._seen.beginnings) < _SHOWN_DOCUMENTS:
            self._seen.beginnings += (beginning[:_SHOWN_CHARACTERS],)

    def _without_unknown(self, piece: str) -> str:
        assert self._skip_unknown is not None
        kept = self._skip_unknown.known_part(piece)
        if len(kept) < len(piece):
            self._seen.skipped_characters += len(piece) - len(kept)
            self._seen.unknown |= frozenset(self._skip_unknown.unknown_characters(piece))
        return kept

    def _notes(self) -> Iterator[str]:
        """A note about each kind of surprise; "" where there is none."""
        columns = Counter(source.findings.column for source in self.used if source.findings.column)
        if columns:
            listed = "; ".join(words + (f" ({counted(n, 'file')})" if n > 1 else "") for words, n in columns.items())
            beginning = self._seen.first_row
            shown = repr(beginning[:_NOTED_CHARACTERS]) + (" …" if len(beginning) > _NOTED_CHARACTERS else "")
            yield f"Text of the rows: {listed}. First document: {shown}"
        yield f"Skipped {counted(self._seen.blank_rows, 'blank row')}." if self._seen.blank_rows else ""
        if copies := self._duplicates.exact:
            yield f"Left out {counted(copies, 'document')}: exact copies of earlier ones."
        if copies := self._duplicates.near:
            yield f"Left out {counted(copies, 'document')}: near copies of earlier ones."
        yield f"The first unreadable file: {self._unreadable[0]}" if self._unreadable else ""
        yield from notes_on_rows(self.used)
        yield from notes_on_bytes(self.used)
        yield from notes_on_idle_settings(self._found, self.used)
        if self._seen.skipped_characters:
            unknown = sorted(self._seen.unknown)
            named = ", ".join(map(repr, unknown[:_NAMED_CHARACTERS]))
            named += ", …" if len(unknown) > _NAMED_CHARACTERS else ""
            count = counted(self._seen.skipped_characters, "character")
            yield f"Skipped {count} that the tokenizer does not know: {named}."


def _skippable(error: CorpusError) -> CorpusError:
    """The error about a file of a folder, with the setting that skips such files in its hint."""
    if isinstance(error, UndecodableError) or "`data.errors" in error.hint:
        return error
    return CorpusError(error.message, f"{error.hint} To skip such files use `data.errors = skip`.")


def _reason(error: CorpusError, source: Source) -> str:
    """Why a file of a folder is skipped, to follow a number; "" where it is not."""
    if isinstance(error, MissingExtraError):
        return f"{source.path.suffix.lower()} that need pip install 'gptcli[{error.extra}]'"
    if isinstance(error, NotRowsError):
        return "JSON without rows"
    if isinstance(error, NotTextError):
        return "binary"
    return _UNREADABLE if source.settings.errors == "skip" else ""


def _blank(source: Source, problem: str, has_unknown: bool) -> CorpusError:
    """The error for a named source without a document."""
    findings = source.findings
    what = "is empty" if problem == "empty" else "is blank: it holds nothing but white space"
    hint = "Name a file that holds text."
    if has_unknown:
        what = "holds no character that the tokenizer knows"
        hint = "Use a text in the characters that the tokenizer was made for."
    elif findings.bad_rows:
        blank = f", and {findings.documents:,} are blank" if findings.documents else ""
        what = f"has no row with text: {findings.bad_rows:,} cannot be read (the first: {findings.problem}){blank}"
        hint = "Mend its rows, or train on the characters of the file with `data.format = text`."
    elif findings.column and (findings.documents or findings.header):
        blank = f"{counted(findings.documents, 'row')}, blank in {findings.column}" if findings.documents else "no rows"
        what = f"is without text: it has {blank}"
        hint = "Name another column with `data.text_field`." if findings.documents else hint
    elif source.settings.format not in ("auto", TEXT):
        what = f"holds no text in the format {source.settings.format}"
        hint = "Leave out `data.format`, or use `data.format = text`."
    elif source.descriptor is not None:
        hint = "Pipe a text into the command, or name a text file."
    return CorpusError(f"{source.label} {what}.", hint)


def _all_of(errors: list[UndecodableError]) -> UndecodableError:
    """One error for all files that cannot be decoded."""
    if len(errors) == 1:
        return errors[0]
    listed = " ".join(error.message for error in errors[:_LISTED_FILES])
    more = len(errors) - _LISTED_FILES
    rest = f" And {more:,} more." if more > 0 else ""
    return UndecodableError(
        f"{len(errors):,} files cannot be decoded. {listed}{rest}", errors[0].hint, errors[0].conversion
    )
