"""Hashes of sources and shards that are kept in a dataset folder, so that an unchanged file is hashed once.

A record holds size, modification time, change time, inode and sha256 of a file, under a hash of its path. As in git's
index, the four tell whether the file may have changed, and a record is made only if both times were more than
`_SETTLED` old when hashing began and none of the four changed meanwhile: a file that is written twice within one tick
of its file system's clock shows nothing of the second time. No program sets the change time, as `touch` and `cp -p` set
the modification time.
"""

from __future__ import annotations

import hashlib
import os
import struct
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from gptcli import storage
from gptcli.dataset.manifest import SourceEntry
from gptcli.dataset.sources import BeginStage, OnBytes, Source, changed, in_memory, status_of, stored_chunks
from gptcli.errors import StorageError
from gptcli.untrusted import read_bounded

HASHES_FILE = "hashes.bin"
_MAGIC = b"gptcli hashes 1\n"
_KEY_BYTES = 16
_STAMP = struct.Struct("<QqqQ")
"""Size, modification time and change time in nanoseconds, inode."""
_SHA256_BYTES = 32
_RECORD_BYTES = _KEY_BYTES + _STAMP.size + _SHA256_BYTES
_MAX_BYTES = 1 << 30
_SETTLED = 3_000_000_000
"""Nanoseconds: more than the coarsest clock of a file system, 2 seconds."""
_WORTH_BYTES, _WORTH_FILES = 1 << 24, 1000
"""Less is hashed in a few hundredths of a second."""


class KeptHashes:
    """The records of dataset folders."""

    def __init__(self, folders: Iterable[Path] = ()) -> None:
        self._records: dict[bytes, bytes] = {}
        """For the hash of a path: the stamp of the file and its sha256."""
        for folder in folders:
            self._records |= _read(folder / HASHES_FILE)

    def sha256(self, key: bytes, status: os.stat_result) -> bytes | None:
        """The hash of an unchanged file; None for another."""
        record = self._records.get(key, b"")
        return record[_STAMP.size :] if record.startswith(_stamp(status)) else None

    def keep(self, key: bytes, status: os.stat_result, sha256: bytes) -> None:
        self._records[key] = _stamp(status) + sha256

    def write(self, folder: Path, keys: Iterable[bytes]) -> None:
        """Replace the records in a folder by those of `keys`. Nothing is lost where that fails."""
        records = {key: record for key in keys if (record := self._records.get(key))}
        content = b"".join([_MAGIC, *(key + record for key, record in records.items())])
        with suppress(StorageError):
            storage.write_file(folder / HASHES_FILE, [content, hashlib.sha256(content).digest()])


class SourceHashes:
    """The hashes of sources: those that are kept, and new ones."""

    def __init__(self, sources: Sequence[Source], kept: KeptHashes) -> None:
        """Raises CorpusError for a source that cannot be read."""
        self._sources, self._kept = sources, kept
        self._known: dict[Source, tuple[bytes, bytes]] = {}
        """For each source that was hashed its stamp from before and its sha256."""
        self._has_new = self._is_complete = False
        """Whether there is a hash that is worth keeping and was not kept before."""
        self.bytes = 0
        """Size of all sources."""
        for source in sources:
            status = status_of(source)
            self.bytes += status.st_size
            if source.descriptor is None and (sha256 := kept.sha256(key_of_path(source.path), status)):
                self._known[source] = _stamp(status), sha256

    def read(self, source: Source) -> Source:
        """The source, in memory if it is small, which is hashed then. Raises CorpusError."""
        if source in self._known or source.descriptor is not None:
            return in_memory(source)
        begun, before = time.time_ns(), status_of(source)
        held = in_memory(source)
        if held.content is not None:
            self._add(source, begun, before, hashlib.sha256(held.content).digest())
        return held

    def complete(self, report: BeginStage) -> None:
        """Hash the sources that were not hashed yet. Raises CorpusError."""
        if self._is_complete:
            return
        on_bytes = report("hashing")
        for source in self._sources:
            if source in self._known:
                on_bytes(self.entry(source).size)
            else:
                self._hash(source, on_bytes)
        self._is_complete = True

    def entry(self, source: Source) -> SourceEntry:
        """The entry of a source that was hashed."""
        stamp, sha256 = self._known[source]
        size: int = _STAMP.unpack(stamp)[0]
        name = source.name.encode(errors="surrogateescape").decode(errors="replace")  # a file's name may be no UTF-8
        return SourceEntry.model_construct(name=name, size=size, sha256=sha256.hex())

    def keep_in(self, folder: Path) -> None:
        """Write what is new and worth it to a dataset folder."""
        if self._has_new and (self.bytes >= _WORTH_BYTES or len(self._sources) >= _WORTH_FILES):
            self._kept.write(folder, [key_of_path(source.path) for source in self._sources])

    def refuse_changes(self) -> None:
        """Raise CorpusError if a source was changed since it was hashed."""
        for source, (stamp, _) in self._known.items():
            if _stamp(status_of(source)) != stamp:
                raise changed(source)

    def _hash(self, source: Source, on_bytes: OnBytes) -> None:
        begun, before, sha256 = time.time_ns(), status_of(source), hashlib.sha256()
        for chunk in stored_chunks(source):
            sha256.update(chunk)
            on_bytes(len(chunk))
        self._add(source, begun, before, sha256.digest())

    def _add(self, source: Source, begun: int, before: os.stat_result, sha256: bytes) -> None:
        self._known[source] = _stamp(before), sha256
        is_settled = max(before.st_mtime_ns, before.st_ctime_ns) + _SETTLED < begun
        if is_settled and source.descriptor is None and _stamp(status_of(source)) == _stamp(before):
            self._kept.keep(key_of_path(source.path), before, sha256)
            self._has_new = True


def key_of_path(path: Path) -> bytes:
    """The key of a source's record."""
    return hashlib.blake2b(os.fsencode(os.path.abspath(path)), digest_size=_KEY_BYTES).digest()


def _stamp(status: os.stat_result) -> bytes:
    return _STAMP.pack(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def _read(path: Path) -> dict[bytes, bytes]:
    """The records of a file; none if it is missing or damaged."""
    try:
        content = read_bounded(path, _MAX_BYTES)
    except (OSError, ValueError):
        return {}
    body, digest = content[:-_SHA256_BYTES], content[-_SHA256_BYTES:]
    size = len(body) - len(_MAGIC)
    if not body.startswith(_MAGIC) or size % _RECORD_BYTES or hashlib.sha256(body).digest() != digest:
        return {}
    places = range(len(_MAGIC), len(body), _RECORD_BYTES)
    return {body[at : at + _KEY_BYTES]: body[at + _KEY_BYTES : at + _RECORD_BYTES] for at in places}
