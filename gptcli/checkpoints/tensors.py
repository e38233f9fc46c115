"""Tensors in safetensors files, written as a stream and verified when read.

Writing in pieces keeps one tensor in memory beyond the model, where the library's `save` keeps a copy of all of it. The
format is eight bytes of header length, a JSON header, and the tensors' bytes one after another
(https://github.com/huggingface/safetensors). Reading is left to the library.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from gptcli.errors import ModelFolderError

DIGEST = "sha256"
"""Header key: the digest of names, formats, shapes and bytes, by which a file verifies itself."""

_DTYPE_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


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
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
            metadata: dict[str, str] = file.metadata() or {}
    except FileNotFoundError:
        raise ModelFolderError(f"'{path}' is missing.") from None
    except (SafetensorError, OSError) as error:
        raise ModelFolderError(f"'{path}' cannot be read: {error}.", "Use another checkpoint or copy.") from None
    expected = metadata.get(DIGEST)
    if expected is not None and digest(tensors) != expected:
        raise ModelFolderError(f"'{path}' was altered: its sha256 differs.", "Use another checkpoint or copy.")
    return tensors, metadata


def verify_tensors(path: Path) -> None:
    """Raise ModelFolderError unless a file of `tensor_file` reads back as written; one tensor at a time is held."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            found = _digest((name, file.get_tensor(name)) for name in sorted(file.keys()))
    except (SafetensorError, OSError) as error:
        raise ModelFolderError(f"'{path}' cannot be read: {error}.") from None
    if found != metadata.get(DIGEST):
        raise ModelFolderError(f"'{path}' does not hold what was written.")


def read_metadata(path: Path) -> dict[str, str]:
    """The header's metadata of a safetensors file; empty if there is none or the file cannot be read."""
    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}
    except (SafetensorError, OSError):
        return {}


def _bytes_of(tensor: Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data
