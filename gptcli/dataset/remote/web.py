"""A text at a web address: downloaded once, then read from the cache, with or without a network."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from gptcli import storage
from gptcli.dataset.compression import COMPRESSIONS, compression_of_content, inner_name
from gptcli.dataset.readers import READERS, TEXT_SUFFIXES
from gptcli.dataset.recognizing import format_of_content
from gptcli.dataset.remote.addresses import shown, web_address
from gptcli.dataset.remote.cache import (
    PLACE,
    CachedFile,
    Record,
    folder_of,
    locked,
    problem_of,
    read_record,
    write_record,
)
from gptcli.dataset.remote.download import Downloaded, Head, download
from gptcli.dataset.remote.fetched import Fetched, RemoteFile, dated_note
from gptcli.dataset.sources import OnProgress, Source
from gptcli.errors import CorpusError
from gptcli.untrusted import is_plain_name

_SUFFIXES = {
    "application/epub+zip": ".epub",
    "application/gzip": ".gz",
    "application/json": ".json",
    "application/jsonl": ".jsonl",
    "application/mbox": ".mbox",
    "application/pdf": ".pdf",
    "application/vnd.apache.parquet": ".parquet",
    "application/vnd.oasis.opendocument.text": ".odt",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
    "application/x-bzip2": ".bz2",
    "application/x-gzip": ".gz",
    "application/x-ndjson": ".ndjson",
    "application/x-xz": ".xz",
    "application/xhtml+xml": ".xhtml",
    "application/zstd": ".zst",
    "message/rfc822": ".eml",
    "text/csv": ".csv",
    "text/html": ".html",
    "text/tab-separated-values": ".tsv",
}
"""Suffixes of media types, for addresses whose own suffix says nothing."""
_CODINGS = {"gzip": ".gz", "x-gzip": ".gz", "zstd": ".zst"}
"""Suffixes of what a server sends compressed although it is asked not to."""
_PAGES = (".html", ".htm", ".xhtml")
_SNIFFED_BYTES = 4096
_MAX_NAME_CHARACTERS = 100


def fetch_web(given: str, on_progress: OnProgress, sha256: str = "") -> Fetched:
    """The text at a web address, downloaded unless it is in the cache, with a note about where it comes from.

    `sha256` is the hash that it must have, if that is known. Raises UsageError for an impossible address, CorpusError
    for a download that fails or has another hash, and StorageError.
    """
    address = web_address(given)
    name = shown(address)
    folder = folder_of(re.sub(r"//[^/]*@", "//", address))  # a password is no part of the place
    stage = f"downloading {_last_part(address) or name}"
    with locked(folder, on_progress):
        record = read_record(folder)
        damage = _damage(folder, record)
        if record and not damage:
            note = dated_note(f"'{name}'", record, folder)
        else:
            record = _stored(folder, name, download(address, folder, on_progress, stage), address, sha256)
            note = f"{damage}'{name}' was downloaded: {record.files[0].bytes:,} bytes, kept in '{folder}'."
        return Fetched((RemoteFile(folder / record.files[0].name, name),), (note,))


def _damage(folder: Path, record: Record | None) -> str:
    """A sentence about a file in the cache that is no longer what was downloaded; "" if it is, or if there is none."""
    if not record:
        return ""
    file = record.files[0]
    problem = problem_of(folder / file.name, file) if is_plain_name(file.name) else "its name leads elsewhere"
    return f"The copy in the cache is damaged ({problem}). " if problem else ""


def _stored(folder: Path, name: str, downloaded: Downloaded, address: str, sha256: str) -> Record:
    """Check a whole download, give it its name and record it."""
    with storage.disk_errors(downloaded.path, "Reading"), open(downloaded.path, "rb") as file:
        source = Source(downloaded.path, name, f"'{name}'", descriptor=file.fileno())
        start = file.read(_SNIFFED_BYTES)
        entry = CachedFile(
            name=_file_name(address, downloaded.head, start, source),
            bytes=downloaded.path.stat().st_size,
            hash=storage.sha256_of_file(downloaded.path),
        )
    problem = _mistaken(name, PurePosixPath(entry.name), downloaded.head, start)
    if sha256 and entry.hash != sha256:
        problem = CorpusError(
            f"'{name}' is not the text that it was: its sha256 is {entry.hash} instead of {sha256}.",
            "Look for another copy of the text.",
        )
    if problem:
        with storage.disk_errors(downloaded.path, option=PLACE):
            downloaded.path.unlink()
        raise problem
    storage.adopt_file(downloaded.path, folder / entry.name, option=PLACE)
    record = Record(address=name, files=(entry,))
    write_record(folder, record)
    return record


def _mistaken(name: str, path: PurePosixPath, head: Head, start: bytes) -> CorpusError | None:
    """The error for a web page in the place of a file, such as one that asks for a password; None if it is no such."""
    suffix = path.suffix.lower()
    is_text = suffix in TEXT_SUFFIXES and head.media_type not in ("text/html", "application/xhtml+xml")
    if suffix in _PAGES or is_text or not _is_page(start):
        return None
    hint = "It may need a login: download it in a browser, and name the file."
    return CorpusError(f"'{name}' gives a web page in the place of a {suffix} file.", hint)


def _file_name(address: str, head: Head, start: bytes, source: Source) -> str:
    """A name whose suffixes say the format: those of the address, else what the server or the content says."""
    name = re.sub(r"[^\w.-]+", "-", _last_part(address)).lstrip(".-")[-_MAX_NAME_CHARACTERS:] or "text"
    if not _suffix_of(name):
        name += _guessed(head, start, source)
    if not head.coding:
        return name
    if head.coding not in _CODINGS:
        message = f"'{shown(address)}' cannot be read: its server sends it compressed in the way '{head.coding}'."
        raise CorpusError(message, "Download it with another program, and name the file.")
    packed = _CODINGS[head.coding]
    return name if name.lower().endswith(packed) else name + packed


def _guessed(head: Head, start: bytes, source: Source) -> str:
    """The suffix for a file whose address has none that says the format; "" for plain text."""
    last = _suffix_of(_last_part(head.url))
    if last or head.media_type in _SUFFIXES:
        return last or _SUFFIXES[head.media_type]
    kind = format_of_content(source)
    return (f".{kind}" if kind else "") + compression_of_content(start)


def _suffix_of(name: str) -> str:
    """The suffix of a name if it says the format, with that of a compression: ".jsonl.gz"; else ""."""
    path = PurePosixPath(name)
    known = (*READERS, *TEXT_SUFFIXES)
    inner = inner_name(path).suffix
    packed = path.suffix if path.suffix.lower() in COMPRESSIONS else ""
    return (inner if inner.lower() in known else "") + packed


def _last_part(address: str) -> str:
    return unquote(PurePosixPath(urlsplit(address).path).name)


def _is_page(start: bytes) -> bool:
    """Whether a file begins as a web page does."""
    return start.lstrip(b"\xef\xbb\xbf \t\r\n")[:14].lower().startswith((b"<!doctype html", b"<html"))
