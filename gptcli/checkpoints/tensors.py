"""Tensors in safetensors files, written as a stream and verified when read.

Writing in pieces keeps one tensor in memory beyond the model, where the library's `save` keeps a copy of all of it. The
format is eight bytes of header length, a JSON header, and the tensors' bytes one after another
(https://github.com/huggingface/safetensors). Reading is left to the library, after the header was checked here:
what it promises must be exactly what the file holds, before any memory is taken.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from gptcli.errors import ModelFolderError, reason_of
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
_ITEM_SIZES = {name: dtype.itemsize for dtype, name in _DTYPE_NAMES.items()}
_MAX_HEADER_BYTES = 1 << 24
_MAX_DIMENSIONS = 8
_HINT = "Use another checkpoint or copy."


@dataclass(frozen=True)
class Header:
    """What a safetensors file says it holds."""

    numbers: int
    """Of all tensors together."""
    metadata: dict[str, str]


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


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """All tensors of a safetensors file, and its header's metadata; verified where the header has a digest.

    Raises ModelFolderError if the file is missing, damaged or altered.
    """
    metadata = read_header(path).metadata
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError) as error:
        raise ModelFolderError(f"'{path}' cannot be read: {error}.", _HINT) from None
    expected = metadata.get(DIGEST)
    if expected is not None and digest(tensors) != expected:
        raise ModelFolderError(f"'{path}' was altered: its sha256 differs.", _HINT)
    return tensors, metadata


def read_header(path: Path) -> Header:
    """The header of a safetensors file, of which every byte is accounted for; raises ModelFolderError."""
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise ValueError("it is not a regular file")
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > min(size - 8, _MAX_HEADER_BYTES):
                raise ValueError(f"its header cannot have {length:,} bytes")
            entries = strict_json(file.read(length))
        return _checked(entries, size - 8 - length)
    except FileNotFoundError:
        raise ModelFolderError(f"'{path}' is missing.") from None
    except OSError as error:
        raise ModelFolderError(f"'{path}' cannot be read: {reason_of(error)}.", _HINT) from None
    except ValueError as error:
        raise ModelFolderError(f"'{path}' cannot be read: {error}.", _HINT) from None


def _checked(entries: Any, data_bytes: int) -> Header:
    """What a header says, whose tensors must fill `data_bytes` without gap or overlap; raises ValueError."""
    if not isinstance(entries, dict):
        raise ValueError("its header is not a table")
    metadata = entries.pop("__metadata__", None) or {}
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("the metadata of its header is not a table of texts")
    places, numbers = [], 0
    for name, entry in entries.items():
        count, begin, end = _place(entry, name)
        places.append((begin, end))
        numbers += count
    reached = 0
    for begin, end in sorted(places):
        if begin != reached:
            raise ValueError("its tensors overlap or leave gaps")
        reached = end
    if reached != data_bytes:
        raise ValueError(f"it has {data_bytes:,} bytes of tensors where its header names {reached:,}")
    return Header(numbers, metadata)


def _place(entry: Any, name: str) -> tuple[int, int, int]:
    """How many numbers an entry of a header has, and where its bytes begin and end; raises ValueError."""
    match entry:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [begin, end]} if len(entry) == 3:
            sizes = [*shape, begin, end]
            if len(shape) > _MAX_DIMENSIONS or not all(type(size) is int and size >= 0 for size in sizes):
                raise ValueError(f"the entry of {name[:100]!r} has no shape or place")
            if dtype not in _ITEM_SIZES:
                raise ValueError(f"{name[:100]!r} has numbers of type {dtype[:20]!r}, which are not read here")
            count = math.prod(shape)
            if end - begin != count * _ITEM_SIZES[dtype]:
                raise ValueError(f"{name[:100]!r} does not have the size of its shape")
            return count, begin, end
    raise ValueError(f"the entry of {name[:100]!r} has no type, shape and place")


def verify_tensors(path: Path) -> None:
    """Raise ModelFolderError unless a file of `tensor_file` reads back as written; one tensor at a time is held."""
    expected = read_header(path).metadata.get(DIGEST)
    try:
        with safe_open(path, framework="pt") as file:
            found = _digest((name, file.get_tensor(name)) for name in sorted(file.keys()))
    except (SafetensorError, OSError) as error:
        raise ModelFolderError(f"'{path}' cannot be read: {error}.") from None
    if found != expected:
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
