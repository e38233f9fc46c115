"""Token shards: arrays of ids on disk, written piece by piece and read through memory maps.

A shard is a plain `.npy` file (numpy, and anything else, can open it); its dtype depends on the number of ids. The
header takes 128 bytes and is written last, when the length is known.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np

from gptcli.dataset.manifest import DAMAGED_HINT, Dtype, ShardEntry
from gptcli.errors import DatasetError, counted
from gptcli.storage import NewDirectory, fingerprints, flush

MAX_SHARD_TOKENS = 2**28
_BLOCK_TOKENS = 2**16
"""Tokens that are written at once, since the ids of many documents come in small arrays."""
_HEADER_BYTES = 128
_NUMPY_MAGIC = b"\x93NUMPY\x01\x00"


def dtype_for(vocab_size: int) -> Dtype:
    """The dtype of shards: uint8 up to 256 ids, uint16 below 65,536 ids, else uint32."""
    if vocab_size <= 2**8:
        return "uint8"
    return "uint16" if vocab_size < 2**16 else "uint32"


def shard_name(split: str, number: int) -> str:
    return f"{split}-{number:05d}.npy"


@dataclass(frozen=True)
class BegunShards:
    """The shards of a split on the disk: the finished ones, and the tokens of the unfinished one with their CRC-32."""

    finished: tuple[ShardEntry, ...] = ()
    tokens: int = 0
    crc32: int = 0


class ShardWriter:
    """Writes the ids of a split to `<split>-00000.npy`, `<split>-00001.npy`, … in a folder; a context that closes them.

    With `begun`, it continues after those.
    """

    def __init__(self, new: NewDirectory, split: str, dtype: Dtype, begun: BegunShards) -> None:
        self._new, self._split, self._dtype = new, split, dtype
        self._on_disk = np.dtype(dtype).newbyteorder("<")
        self._finished, self._tokens, self._crc32 = [*begun.finished], begun.tokens, begun.crc32
        self._blocks: list[np.ndarray] = []
        self._waiting = 0
        """Tokens of `_blocks`, which are not in the file yet."""
        self._file: BinaryIO | None = None
        self._closing = ExitStack()
        if begun.tokens:
            self._file = self._closing.enter_context(new.reopen(self._name, self._size))

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return self._closing.__exit__(kind, error, traceback)  # an OSError of a write becomes a StorageError there

    def write(self, ids: np.ndarray) -> None:
        """Add ids, (n,)."""
        self._blocks.append(ids)
        self._waiting += ids.size
        if self._waiting >= _BLOCK_TOKENS:
            self._write_blocks()

    def begun(self) -> BegunShards:
        """What is on the disk, once everything is flushed to it."""
        self._write_blocks()
        if self._file:
            flush(self._file)
        return BegunShards(tuple(self._finished), self._tokens, self._crc32)

    def finish(self) -> tuple[ShardEntry, ...]:
        """Write what is left. Returns all shards."""
        self._write_blocks()
        self._finish_shard()
        return tuple(self._finished)

    @property
    def _name(self) -> str:
        return shard_name(self._split, len(self._finished))

    @property
    def _size(self) -> int:
        return _HEADER_BYTES + self._tokens * self._on_disk.itemsize

    def _write_blocks(self) -> None:
        rest = np.concatenate(self._blocks) if self._waiting else np.array([], dtype=self._on_disk)
        self._blocks, self._waiting = [], 0
        while rest.size:
            if self._tokens == MAX_SHARD_TOKENS:
                self._finish_shard()
            if self._file is None:
                self._file = self._closing.enter_context(self._new.open(self._name))
                self._file.write(bytes(_HEADER_BYTES))
            part, rest = np.split(rest, [MAX_SHARD_TOKENS - self._tokens])
            data = part.astype(self._on_disk).data
            self._file.write(data)
            self._crc32 = zlib.crc32(data, self._crc32)
            self._tokens += part.size

    def _finish_shard(self) -> None:
        if self._file is None:
            return
        self._file.seek(0)
        self._file.write(_header(self._on_disk, self._tokens))
        self._closing.close()
        written = fingerprints(self._new.path, [self._name])[self._name]
        is_narrow = self._dtype == "uint8"
        entry = ShardEntry(
            file=self._name,
            tokens=self._tokens,
            dtype=self._dtype,
            bytes=written.bytes,
            sha256=written.sha256,
            uint16_sha256=_uint16_sha256(self._new.path / self._name, self._tokens) if is_narrow else None,
        )
        self._finished.append(entry)
        self._file, self._tokens, self._crc32 = None, 0, 0


def _uint16_sha256(path: Path, tokens: int) -> str:
    """Hexadecimal sha256 of the shard that has the ids of this one, of uint8, as uint16."""
    hasher = hashlib.sha256(_header(np.dtype("<u2"), tokens))
    with open(path, "rb") as file:
        file.seek(_HEADER_BYTES)
        while piece := file.read(1 << 20):
            hasher.update(np.frombuffer(piece, np.uint8).astype("<u2").data)
    return hasher.hexdigest()


def copy_shard(new: NewDirectory, path: Path, shard: ShardEntry, tokens: int) -> int:
    """Copy a shard, with its header, or the first `tokens` ids of it. Returns the CRC-32 of these."""
    left, crc32 = tokens * np.dtype(shard.dtype).itemsize, 0
    with open(path, "rb") as file, new.open(shard.file) as copy:
        header = file.read(_HEADER_BYTES)
        copy.write(header if tokens == shard.tokens else bytes(_HEADER_BYTES))
        while left and (piece := file.read(min(left, 1 << 20))):
            copy.write(piece)
            crc32 = zlib.crc32(piece, crc32)
            left -= len(piece)
    return crc32


def crc32_of_shard(path: Path, tokens: int, dtype: Dtype) -> int:
    """The CRC-32 of the first `tokens` ids of an unfinished shard, or of as many as it has."""
    left, crc32 = tokens * np.dtype(dtype).itemsize, 0
    with open(path, "rb") as file:
        file.seek(_HEADER_BYTES)
        while left and (piece := file.read(min(left, 1 << 20))):
            crc32 = zlib.crc32(piece, crc32)
            left -= len(piece)
    return crc32


class TokenStream:
    """The ids of one split, in order, over any number of shards. Reads only what is asked for."""

    def __init__(self, shards: Sequence[np.ndarray], vocab_size: int = 2**32) -> None:
        assert shards, "a split has at least one shard"
        self._shards = list(shards)
        self._vocab_size = vocab_size
        self._starts = np.cumsum([0, *(len(shard) for shard in shards)])
        """The first place of each shard, and the end of the last."""

    @classmethod
    def joined(cls, streams: Sequence[TokenStream]) -> TokenStream:
        """The ids of several streams of one tokenizer, end to end."""
        return cls([shard for one in streams for shard in one._shards], streams[0]._vocab_size)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def windows(self, starts: np.ndarray, length: int) -> np.ndarray:
        """The ids starts[i] : starts[i] + length as int64 (n, length), from starts int64 (n,).

        Raises DatasetError for an id of `vocab_size` or more, which on a GPU would end the process.
        """
        ids = self._gathered(starts, length)
        if ids.size and ids.max() >= self._vocab_size:
            problem = f"it has the id {ids.max()}, but its tokenizer has only {counted(self._vocab_size, 'id')}"
            raise DatasetError(f"The dataset is damaged: {problem}.", DAMAGED_HINT)
        return ids

    def _gathered(self, starts: np.ndarray, length: int) -> np.ndarray:
        assert length >= 1, "a window has at least one token"
        inside = starts.size == 0 or (starts.min() >= 0 and starts.max() + length <= len(self))
        assert inside, "a window reaches beyond the split"
        if len(self._shards) == 1 and length <= len(self):
            rows = np.lib.stride_tricks.sliding_window_view(self._shards[0], length)  # a view: nothing is copied yet
            gathered: np.ndarray = rows[starts].astype(np.int64)
            return gathered
        places = starts[:, None] + np.arange(length)  # (n, length)
        owners = np.searchsorted(self._starts, places, side="right") - 1
        ids = np.empty(places.shape, dtype=np.int64)
        for owner in np.unique(owners):
            mine = owners == owner
            ids[mine] = self._shards[owner][places[mine] - self._starts[owner]]
        return ids


def open_shard(path: Path, tokens: int, dtype: Dtype) -> np.ndarray:
    """A memory map of a shard, shape (tokens,). Raises DatasetError if the file is anything else.

    The header must equal the one that `write_shards` writes: headers are compared, never interpreted.
    """
    on_disk = np.dtype(dtype).newbyteorder("<")
    expected = _HEADER_BYTES + tokens * on_disk.itemsize
    try:
        with open(path, "rb") as file:
            header, size = file.read(_HEADER_BYTES), os.fstat(file.fileno()).st_size
        if header != _header(on_disk, tokens) or size != expected:
            raise DatasetError(f"'{path}' does not hold {counted(tokens, 'id')} of {dtype}.")
        return np.asarray(np.memmap(path, dtype=on_disk, mode="r", offset=_HEADER_BYTES, shape=(tokens,)))
    except (OSError, ValueError) as error:
        raise DatasetError(f"'{path}' cannot be read as token ids: {error}.") from None


def _header(dtype: np.dtype[np.generic], tokens: int) -> bytes:
    """The first 128 bytes of a `.npy` file of one dimension, version 1.0."""
    text = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': ({tokens},), }}"
    space = _HEADER_BYTES - len(_NUMPY_MAGIC) - 2
    body = text.ljust(space - 1).encode("latin-1") + b"\n"
    return _NUMPY_MAGIC + space.to_bytes(2, "little") + body
