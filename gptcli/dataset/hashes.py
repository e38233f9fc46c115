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
from gptcli.dataset.manifest import ShardEntry, SourceEntry
from gptcli.dataset.sources import BeginStage, OnBytes, Source, changed, in_memory, status_of, stored_chunks
from gptcli.errors import StorageError
from gptcli.storage import FileEntry, mismatch
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

    def __bool__(self) -> bool:
        return bool(self._records)

    def sha256(self, key: bytes, status: os.stat_result) -> bytes | None:
        """The hash of an unchanged file; None for another."""
        record = self._records.get(key, b"")
        return record[_STAMP.size :] if record.startswith(_stamp(status)) else None

    def keys(self) -> list[bytes]:
        return [*self._records]

    def keep(self, key: bytes, status: os.stat_result, sha256: bytes) -> None:
        self._records[key] = _stamp(status) + sha256

    def write(self, folder: Path, keys: Iterable[bytes]) -> None:
        """Replace the records in a folder by those of `keys`. Nothing is lost where that fails."""
        known = _read(folder / HASHES_FILE) | self._records
        records = {key: record for key in keys if (record := known.get(key))}
        content = b"".join([_MAGIC, *(key + record for key, record in records.items())])
        with suppress(StorageError):
            storage.write_file(folder / HASHES_FILE, [content, hashlib.sha256(content).digest()])


class SourceHashes:
    """The hashes of sources: those that are kept, and new ones."""

    def __init__(self, sources: Sequence[Source], kept: KeptHashes) -> None:
        """Raises CorpusError for a source that cannot be read."""
        self._sources, self._kept = sources, kept
        self._known: dict[Source, bytes] = {}
        """The sha256 of each source that was hashed."""
        self._stamps: dict[Source, bytes] = {}
        """The stamp of each source from before it was hashed."""
        self._begun = time.time_ns()
        self._has_new = self._is_complete = False
        """Whether there is a hash that is worth keeping and was not kept before."""
        self.bytes = 0
        """Size of all sources."""
        for source in sources:
            status = status_of(source)
            self.bytes += status.st_size
            self._stamps[source] = _stamp(status)
            if kept and source.descriptor is None and (sha256 := kept.sha256(key_of_path(source.path), status)):
                self._known[source] = sha256

    def read(self, source: Source) -> Source:
        """The source, in memory if it is small, which is hashed then. Raises CorpusError."""
        held = in_memory(source)
        if held.content is not None and source not in self._known:
            self._add(source, hashlib.sha256(held.content).digest())
        return held

    def complete(self, report: BeginStage) -> None:
        """Hash the sources that were not hashed yet. Raises CorpusError."""
        if self._is_complete:
            return
        on_bytes = report("hashing")
        for source in self._sources:
            if source not in self._known and self.read(source).content is None:
                self._hash(source, on_bytes)
            else:
                on_bytes(self._size(source))
        self._is_complete = True

    def entry(self, source: Source) -> SourceEntry:
        """The entry of a source that was hashed."""
        name = source.name.encode(errors="surrogateescape").decode(errors="replace")  # a file's name may be no UTF-8
        return SourceEntry.model_construct(name=name, size=self._size(source), sha256=self._known[source].hex())

    def _size(self, source: Source) -> int:
        size: int = _STAMP.unpack(self._stamps[source])[0]
        return size

    def keep_in(self, folder: Path, shards: Iterable[ShardEntry] = ()) -> None:
        """Write what is new and worth it to a dataset folder, with the hashes of shards that were just written."""
        for shard in shards:
            self._kept.keep(_key_of_shard(shard.file), os.stat(folder / shard.file), bytes.fromhex(shard.sha256))
        if (self._has_new or shards) and (self.bytes >= _WORTH_BYTES or len(self._sources) >= _WORTH_FILES):
            of_shards = (_key_of_shard(path.name) for path in folder.glob("*.npy"))
            self._kept.write(folder, [*map(key_of_path, (source.path for source in self._sources)), *of_shards])

    def refuse_changes(self) -> None:
        """Raise CorpusError if a source was changed since it was hashed."""
        for source in self._stamps:
            self._refuse_change(source, status_of(source))

    def _refuse_change(self, source: Source, now: os.stat_result) -> None:
        """The change time may differ: a backup may have linked the file meanwhile."""
        size, modified, *_ = _STAMP.unpack(self._stamps[source])
        if (now.st_size, now.st_mtime_ns) != (size, modified):
            raise changed(source)

    def _hash(self, source: Source, on_bytes: OnBytes) -> None:
        sha256 = hashlib.sha256()
        for chunk in stored_chunks(source):
            sha256.update(chunk)
            on_bytes(len(chunk))
        self._add(source, sha256.digest())

    def _add(self, source: Source, sha256: bytes) -> None:
        self._known[source] = sha256
        after = status_of(source)
        self._refuse_change(source, after)
        if source.descriptor is None and _is_settled(self._stamps[source], after, self._begun):
            self._kept.keep(key_of_path(source.path), after, sha256)
            self._has_new = True


def mismatch_of_shards(folder: Path, shards: Sequence[ShardEntry]) -> str:
    """The first difference between the shards in a folder and their entries, as a clause; "" if there is none.

    Only those that may have changed since they were last hashed are hashed.
    """
    begun, kept = time.time_ns(), KeptHashes([folder])
    entries = {shard.file: FileEntry(shard.bytes, shard.sha256) for shard in shards}
    if problem := mismatch(folder, entries, hashes=False):
        return problem
    before = {name: os.stat(folder / name) for name in entries}
    known = {name: kept.sha256(_key_of_shard(name), before[name]) for name in entries}
    new = [name for name, entry in entries.items() if (known[name] or b"").hex() != entry.sha256]
    if problem := mismatch(folder, {name: entries[name] for name in new}):
        return problem
    settled = [name for name in new if _is_settled(_stamp(before[name]), os.stat(folder / name), begun)]
    for name in settled:
        kept.keep(_key_of_shard(name), before[name], bytes.fromhex(entries[name].sha256))
    if settled and sum(entry.bytes for entry in entries.values()) >= _WORTH_BYTES:
        kept.write(folder, kept.keys())
    return ""


def key_of_path(path: Path) -> bytes:
    """The key of a source's record."""
    return hashlib.blake2b(os.fsencode(os.path.abspath(path)), digest_size=_KEY_BYTES).digest()


def _key_of_shard(name: str) -> bytes:
    """The key of a shard's record, which goes with its folder."""
    return hashlib.blake2b(b"shard " + name.encode(), digest_size=_KEY_BYTES).digest()


def _is_settled(before: bytes, after: os.stat_result, begun: int) -> bool:
    """Whether a file that was hashed since the time `begun`, in nanoseconds, cannot have changed unnoticed."""
    return before == _stamp(after) and max(after.st_mtime_ns, after.st_ctime_ns) < begun - _SETTLED


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
