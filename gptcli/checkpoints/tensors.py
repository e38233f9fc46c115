"""Tensors in safetensors files, written as a stream and verified when read.

Writing in pieces keeps one tensor in memory beyond the model, where the library's `save` keeps a copy of all of it. The
format is eight bytes of header length, a JSON header, and the tensors' bytes one after another
(https://github.com/huggingface/safetensors). A file is opened once, mapped into memory and verified there: its header
must account for every byte of the file before any memory is allocated.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


def tensor_file(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    """The content of a safetensors file in pieces; the header gets `metadata`, its format and the digest."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt", **metadata, DIGEST: digest(tensors)}}
    offset = 0
    for name, tensor in sorted(tensors.items()):
        end = offset + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _DTYPE_NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)  # the data starts aligned
    yield len(encoded).to_bytes(8, "little")
    yield encoded
    for _, tensor in sorted(tensors.items()):
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

    The file is verified against its own digest, if it has one, and against `expected`. Raises ModelFolderError if the
    file is missing, damaged or altered.
    """
    with _mapped(path) as content:
        if expected and _entry(content) != expected:
            raise ModelFolderError(f"'{path}' was altered (its sha256 differs).", _HINT)
        header = _read_header(content)
        tensors = {name: _tensor(content, place) for name, place in header.places.items()}
        digest_found = digest(tensors) if DIGEST in header.metadata else None
    if digest_found != header.metadata.get(DIGEST):
        raise ModelFolderError(f"'{path}' was altered: its sha256 differs.", _HINT)
    return tensors, header.metadata


def fingerprint(path: Path) -> tuple[FileEntry, dict[str, str]]:
    """The manifest entry of a safetensors file and the metadata of its header. Opens the file once."""
    with _mapped(path) as content:
        return _entry(content), _read_header(content).metadata


def read_header(path: Path) -> Header:
    """The header of a safetensors file, in which every byte is accounted for; raises ModelFolderError."""
    with _mapped(path) as content:
        return _read_header(content)


@contextmanager
def _mapped(path: Path) -> Iterator[mmap.mmap]:
    """The content of a file, mapped into memory; raises ModelFolderError for what is wrong with it."""
    try:
        if path.exists() and not path.is_file():  # a pipe would block
            raise ValueError("it is not a regular file")
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            yield content
    except FileNotFoundError:
        raise ModelFolderError(f"'{path}' is missing.") from None
    except OSError as error:
        raise ModelFolderError(f"'{path}' cannot be read: {reason_of(error)}.", _HINT) from None
    except ValueError as error:
        raise ModelFolderError(f"'{path}' cannot be read: {error}.", _HINT) from None


def _entry(content: mmap.mmap) -> FileEntry:
    return FileEntry(len(content), hashlib.sha256(content).hexdigest())


def _tensor(content: mmap.mmap, place: Place) -> Tensor:
    """A tensor with a copy of the bytes at its place."""
    tensor = torch.empty(place.shape, dtype=place.dtype)
    if tensor.numel():
        with memoryview(content) as whole, whole[place.begin : place.end] as stored:
            _bytes_of(tensor)[:] = stored
    return tensor


def _read_header(content: mmap.mmap) -> Header:
    length = int.from_bytes(content[:8], "little")
    if length > min(len(content) - 8, _MAX_HEADER_BYTES):
        raise ValueError(f"its header cannot have {length:,} bytes")
    return _checked(strict_json(content[8 : 8 + length]), 8 + length, len(content))


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
    with _mapped(path) as content:
        header = _read_header(content)
        found = _digest((name, _tensor(content, place)) for name, place in sorted(header.places.items()))
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
