"""Zip files from anywhere: their files as streams, within limits."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager

from gptcli.dataset.sources import CHUNK_BYTES, OnBytes, Source, as_file
from gptcli.errors import size

MAX_UNPACKED = 1 << 30
"""Bytes unpacked from one archive. The longest novels have 10 MB."""
MAX_RATIO = 200
"""Unpacked by packed bytes. XML shrinks by a factor of 5 to 50, a zip bomb by 1,000."""
RATIO_COUNTS_FROM = 16 << 20
"""Bytes unpacked before the ratio counts, since a short repetitive file may exceed it."""
_ENCRYPTED = 0x1
_OLE_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


@contextmanager
def opened_archive(source: Source, on_bytes: OnBytes) -> Iterator[Archive]:
    """The source as an archive. Raises ValueError or BadZipFile if it is none."""
    with as_file(source, on_bytes) as file:
        start = file.read(len(_OLE_MAGIC))
        if start == _OLE_MAGIC:
            raise ValueError("it is protected by a password, or in the old format of Word (.doc)")
        if not start.startswith(b"PK"):
            raise ValueError("it is not a zip file, as such a document is")
        with zipfile.ZipFile(file) as archive:
            yield Archive(archive)


class Archive:
    """The files in a zip file, by name. Counts the bytes that are unpacked, over all files."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._unpacked = self._packed = 0

    def __contains__(self, name: str) -> bool:
        return name in self._archive.NameToInfo

    def read(self, name: str) -> Iterator[bytes]:
        """A file in pieces. Raises ValueError if it is missing, encrypted or unpacks to too much; zipfile's errors."""
        info = self._archive.NameToInfo.get(name)
        if info is None:
            raise ValueError(f"it has no file '{name[:200]}'")
        if info.flag_bits & _ENCRYPTED:
            raise ValueError("it is protected by a password")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"its file '{name[:200]}' is compressed in a way that such documents do not use")
        self._packed += info.compress_size
        with self._archive.open(info) as file:
            while piece := file.read(CHUNK_BYTES):
                self._unpacked += len(piece)
                self._check_size()
                yield piece

    def _check_size(self) -> None:
        if self._unpacked > MAX_UNPACKED:
            raise ValueError(f"it unpacks to more than {size(MAX_UNPACKED)}")
        if self._unpacked > max(RATIO_COUNTS_FROM, MAX_RATIO * self._packed):
            raise ValueError(f"it unpacks to more than {MAX_RATIO} times its size, which no document of text does")
