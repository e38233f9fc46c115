"""Token shards: arrays of ids on disk, written piece by piece and read through memory maps.

A shard is a plain `.npy` file (numpy, and anything else, can open it): uint16 where all ids are below 65,536, else
uint32. The header takes 128 bytes and is written last, when the length is known.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from gptcli.dataset.manifest import DAMAGED_HINT, Dtype, ShardEntry
from gptcli.errors import DatasetError, counted
from gptcli.storage import NewDirectory, fingerprints

MAX_SHARD_TOKENS = 2**28
_HEADER_BYTES = 128
_NUMPY_MAGIC = b"\x93NUMPY\x01\x00"


def dtype_for(vocab_size: int) -> Dtype:
    """The dtype of shards: uint16 if all ids are below 65,536, else uint32."""
    return "uint16" if vocab_size < 2**16 else "uint32"


def write_shards(new: NewDirectory, split: str, dtype: Dtype, ids: Iterable[np.ndarray]) -> tuple[ShardEntry, ...]:
    """Write the ids of a split, arrays of one dimension, to `<split>-00000.npy`, `<split>-00001.npy`, … in a folder."""
    on_disk = np.dtype(dtype).newbyteorder("<")
    blocks = (block for block in ids if block.size)
    block = next(blocks, None)
    shards: list[ShardEntry] = []
    while block is not None:
        name, tokens = f"{split}-{len(shards):05d}.npy", 0
        with new.open(name) as file:
            file.write(bytes(_HEADER_BYTES))
            while block is not None and tokens < MAX_SHARD_TOKENS:
                part, rest = np.split(block, [MAX_SHARD_TOKENS - tokens])
                file.write(part.astype(on_disk).data)
                tokens += part.size
                block = rest if rest.size else next(blocks, None)
            file.seek(0)
            file.write(_header(on_disk, tokens))
        written = fingerprints(new.path, [name])[name]
        shards.append(ShardEntry(file=name, tokens=tokens, dtype=dtype, bytes=written.bytes, sha256=written.sha256))
    return tuple(shards)


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
