"""Tensors in safetensors files, written as a stream and verified when read.

Writing in pieces keeps one tensor in memory beyond the model, where the library's `save` keeps a copy of all of it. The
format is eight bytes of header length, a JSON header, and the tensors' bytes one after another
(https://github.com/huggingface/safetensors). A file is opened once and read into the memory of its tensors, since the
pages of a memory map would be a second copy; its header must account for every byte before any memory is allocated.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from gptcli.errors import ModelFolderError, reason_of
from gptcli.storage import FileEntry
from gptcli.untrusted import strict_json

DIGEST = "sha256"
"""Header key: the digest of names, formats, shapes and bytes, by which a file verifies itself."""

_DTYPE_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_DTYPES = {name: dtype for dtype, name in _DTYPE_NAMES.items()}
_MAX_HEADER_BYTES = 1 << 24
_MAX_DIMENSIONS = 8
_HINT = "Use another checkpoint or copy."


@dataclass(frozen=True)
class Place:
    """Dtype and shape of a tensor, and its bytes `begin` … `end` in the file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class Header:
    """The content of a safetensors header: metadata, and the place of each tensor by name."""

    metadata: dict[str, str]
    places: dict[str, Place]

    @property
    def numbers(self) -> int:
        """Elements of all tensors together."""
        return sum(math.prod(place.shape) for place in self.places.values())


def tensor_file(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> Iterable[bytes | memoryview]:
    """The content of a safetensors file in pieces; the header gets `metadata`, its format and the digest.

    It can be iterated more than once, as long as the tensors do not change.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt", **metadata, DIGEST: digest(tensors)}}
    offset = 0
    for name, tensor in sorted(tensors.items()):
        end = offset + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _DTYPE_NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)  # the data starts aligned
    return _Pieces(len(encoded).to_bytes(8, "little") + encoded, tensors)


@dataclass(frozen=True)
class _Pieces:
    """A file in pieces: a header, and tensors in the order of their names."""

    header: bytes
    tensors: Mapping[str, Tensor]

    def __iter__(self) -> Iterator[bytes | memoryview]:
        yield self.header
        for _, tensor in sorted(self.tensors.items()):
            yield _bytes_of(tensor)


def digest(tensors: Mapping[str, Tensor]) -> str:
    """Hexadecimal sha256 over names, formats, shapes and bytes, in the order of the names."""
    return _digest(sorted(tensors.items()))


def _digest(tensors: Iterable[tuple[str, Tensor]]) -> str:
    hasher = hashlib.sha256()
    for name, tensor in tensors:
        hasher.update(f"{name}\0{_DTYPE_NAMES[tensor.dtype]}\0{list(tensor.shape)}\0".encode())
        hasher.update(_bytes_of(tensor))
    return hasher.hexdigest()


def read_tensors(path: Path, expected: FileEntry | None = None) -> tuple[dict[str, Tensor], dict[str, str]]:
    """All tensors of a safetensors file and the metadata of its header. Opens the file once.

    The file is verified against `expected`, which covers all of it, else against its own digest, if it has one. Raises
    ModelFolderError if the file is missing, damaged or altered.
    """
    with _opened(path) as file:
        hasher = hashlib.sha256() if expected else None
        header = _read_header(file, hasher)
        tensors = {}
        for name, place in sorted(header.places.items(), key=lambda item: (item[1].begin, item[1].end)):
            tensors[name] = _read_tensor(file, place)
            if hasher:
                hasher.update(_bytes_of(tensors[name]))
        size = file.tell()
    if expected and hasher:
        is_sound = FileEntry(size, hasher.hexdigest()) == expected
    else:
        is_sound = DIGEST not in header.metadata or header.metadata[DIGEST] == digest(tensors)
    if not is_sound:
        raise ModelFolderError(f"'{path}' was altered: its sha256 differs.", _HINT)
    return {name: tensors[name] for name in header.places}, header.metadata


def fingerprint(path: Path) -> tuple[FileEntry, dict[str, str]]:
    """The manifest entry of a safetensors file and the metadata of its header. Opens the file once."""
    with _opened(path) as file:
        metadata = _read_header(file).metadata
        file.seek(0)
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
        return FileEntry(file.tell(), sha256), metadata


def read_header(path: Path) -> Header:
    """The header of a safetensors file, in which every byte is accounted for; raises ModelFolderError."""
    with _opened(path) as file:
        return _read_header(file)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """A file to read; raises ModelFolderError for what is wrong with it."""
    try:
        if path.exists() and not path.is_file():  # a pipe would block
            raise ValueError("it is not a regular file")
        with open(path, "rb") as file:
            yield file
    except FileNotFoundError:
        raise ModelFolderError(f"'{path}' is missing.") from None
    except OSError as error:
        raise ModelFolderError(f"'{path}' cannot be read: {reason_of(error)}.", _HINT) from None
    except ValueError as error:
        raise ModelFolderError(f"'{path}' cannot be read: {error}.", _HINT) from None


def _read_tensor(file: BinaryIO, place: Place) -> Tensor:
    """A tensor with the bytes at its place, read into its own memory."""
    tensor = torch.empty(place.shape, dtype=place.dtype)
    if tensor.numel():
        file.seek(place.begin)
        content, done = _bytes_of(tensor), 0
        while done < len(content):
            count = file.readinto(content[done:])  # type: ignore[attr-defined]
            if not count:
                raise ValueError("it became shorter while it was read")
            done += count
    return tensor


def _read_header(file: BinaryIO, hasher: Any = None) -> Header:
    """The header at the beginning of a file; `hasher` is updated with its bytes. Raises ValueError."""
    size = os.fstat(file.fileno()).st_size
    prefix = file.read(8)
    length = int.from_bytes(prefix, "little")
    if length > min(size - 8, _MAX_HEADER_BYTES):
        raise ValueError(f"its header cannot have {length:,} bytes")
    encoded = file.read(length)
    if hasher:
        hasher.update(prefix + encoded)
    return _checked(strict_json(encoded), 8 + length, size)


def _checked(entries: Any, begin: int, end: int) -> Header:
    """A header whose tensors fill the bytes `begin` … `end` of the file without gap or overlap; raises ValueError."""
    if not isinstance(entries, dict):
        raise ValueError("its header is not a table")
    metadata = entries.pop("__metadata__", None) or {}
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("the metadata of its header is not a table of texts")
    places = {name: _place(entry, name, begin) for name, entry in entries.items()}
    reached = begin
    for place in sorted(places.values(), key=lambda place: (place.begin, place.end)):
        if place.begin != reached:
            raise ValueError("its tensors overlap or leave gaps")
        reached = place.end
    if reached != end:
        raise ValueError(f"it has {end - begin:,} bytes of tensors where its header names {reached - begin:,}")
    return Header(metadata, places)


def _place(entry: Any, name: str, data_begin: int) -> Place:
    """Where the tensor of a header's entry is in the file; raises ValueError."""
    match entry:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [begin, end]} if len(entry) == 3:
            sizes = [*shape, begin, end]
            if len(shape) > _MAX_DIMENSIONS or not all(type(size) is int and size >= 0 for size in sizes):
                raise ValueError(f"the entry of {name[:100]!r} has no shape or place")
            if dtype not in _DTYPES:
                raise ValueError(f"{name[:100]!r} has numbers of type {dtype[:20]!r}, which gptcli does not read")
            if end - begin != math.prod(shape) * _DTYPES[dtype].itemsize:
                raise ValueError(f"{name[:100]!r} does not have the size of its shape")
            return Place(_DTYPES[dtype], tuple(shape), data_begin + begin, data_begin + end)
    raise ValueError(f"the entry of {name[:100]!r} has no type, shape and place")


def verify_tensors(path: Path) -> None:
    """Raise ModelFolderError unless a file of `tensor_file` reads back as written; holds one tensor at a time."""
    with _opened(path) as file:
        header = _read_header(file)
        found = _digest((name, _read_tensor(file, place)) for name, place in sorted(header.places.items()))
    if found != header.metadata.get(DIGEST):
        raise ModelFolderError(f"'{path}' does not hold what was written.")


def read_metadata(path: Path) -> dict[str, str]:
    """The header's metadata of a safetensors file; empty if there is none or the file cannot be read."""
    try:
        return read_header(path).metadata
    except ModelFolderError:
        return {}


def _bytes_of(tensor: Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data
