"""Safetensors files: the library reads what we write, and every flipped bit is noticed."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from gptcli.checkpoints import tensors
from gptcli.checkpoints.tensors import (
    DIGEST,
    digest,
    fingerprint,
    read_metadata,
    read_tensors,
    tensor_file,
    verify_tensors,
)
from gptcli.errors import ModelFolderError
from gptcli.storage import FileEntry

EVERY_KIND = {
    "f32": torch.randn(3, 5),
    "f64": torch.randn(2, dtype=torch.float64),
    "bf16": torch.randn(4, 3).bfloat16(),
    "f16": torch.randn(7).half(),
    "i64": torch.arange(5),
    "i32": torch.arange(3, dtype=torch.int32),
    "i16": torch.arange(3, dtype=torch.int16),
    "i8": torch.arange(3, dtype=torch.int8),
    "u8": torch.arange(11, dtype=torch.uint8),
    "bool": torch.tensor([True, False, True]),
    "scalar": torch.tensor(2.5),
    "empty": torch.zeros(0, 4),
    "transposed": torch.randn(4, 6).t(),
    "ünïcödé": torch.ones(1),
}


def write(path: Path, content: dict[str, torch.Tensor], metadata: dict[str, str] | None = None) -> Path:
    path.write_bytes(b"".join(bytes(piece) for piece in tensor_file(content, metadata or {})))
    return path


def test_the_library_reads_our_files(tmp_path: Path) -> None:
    path = write(tmp_path / "a.safetensors", EVERY_KIND, {"step": "7"})
    for read in (load_file(path), read_tensors(path)[0]):
        assert read.keys() == EVERY_KIND.keys()
        for name, tensor in EVERY_KIND.items():
            assert read[name].dtype == tensor.dtype
            assert torch.equal(read[name], tensor)
    assert read_metadata(path) == {"format": "pt", "step": "7", DIGEST: digest(EVERY_KIND)}


def check_every_bit(path: Path) -> None:
    """Each flipped bit of the data is noticed when the file is read."""
    content = {"a": torch.randn(3), "b": torch.tensor([True, False])}
    whole = write(path, content).read_bytes()
    first = 8 + int.from_bytes(whole[:8], "little")
    for place in range(first, len(whole)):
        for bit in (0, 3, 7):
            altered = bytearray(whole)
            altered[place] ^= 1 << bit
            path.write_bytes(altered)
            with pytest.raises(ModelFolderError):
                read_tensors(path)


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    check_every_bit(tmp_path / "a.safetensors")


def test_control_a_digest_without_the_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "digest", lambda content: "same")
    with pytest.raises(pytest.fail.Exception):
        check_every_bit(tmp_path / "a.safetensors")


def test_a_fingerprint_is_the_manifest_entry(tmp_path: Path) -> None:
    path = write(tmp_path / "a.safetensors", EVERY_KIND, {"step": "7"})
    content = path.read_bytes()
    entry, metadata = fingerprint(path)
    assert entry == FileEntry(len(content), hashlib.sha256(content).hexdigest())
    assert metadata["step"] == "7"
    assert read_tensors(path, entry)[1] == metadata
    with pytest.raises(ModelFolderError, match=r"a\.safetensors"):
        read_tensors(path, FileEntry(entry.bytes, "0" * 64))


def test_verification_after_writing_requires_the_digest(tmp_path: Path) -> None:
    verify_tensors(write(tmp_path / "a.safetensors", EVERY_KIND))
    save_file({"a": torch.ones(2)}, tmp_path / "b.safetensors")
    with pytest.raises(ModelFolderError, match=r"b\.safetensors"):
        verify_tensors(tmp_path / "b.safetensors")


def test_names_dtypes_and_shapes_count() -> None:
    one = digest({"a": torch.zeros(6)})
    assert one == digest({"a": torch.zeros(6)})
    for other in ({"b": torch.zeros(6)}, {"a": torch.zeros(2, 3)}, {"a": torch.zeros(6, dtype=torch.int32)}):
        assert digest(other) != one


@pytest.mark.parametrize("length", [0, 4, 50, -1])
def test_a_truncated_file(tmp_path: Path, length: int) -> None:
    path = write(tmp_path / "a.safetensors", EVERY_KIND)
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ModelFolderError, match=r"a\.safetensors"):
        read_tensors(path)
    assert read_metadata(path) == {}


GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({"a": GOOD | {"shape": [3]}}, "the size of its shape"),
        ({"a": GOOD | {"shape": [2**62, 2**62]}}, "the size of its shape"),
        ({"a": GOOD | {"shape": [-2]}}, "no shape or place"),
        ({"a": GOOD | {"shape": [True, 2]}}, "no shape or place"),
        ({"a": GOOD | {"shape": [1] * 100 + [2]}}, "no shape or place"),
        ({"a": GOOD | {"dtype": "F8_E4M3"}}, "'F8_E4M3', which gptcli does not read"),
        ({"a": GOOD | {"data_offsets": [0, 16], "shape": [4]}}, "8 bytes of tensors where its header names 16"),
        ({"a": GOOD | {"data_offsets": [4, 12]}}, "overlap or leave gaps"),
        ({"a": GOOD, "b": GOOD}, "overlap or leave gaps"),
        ({}, "8 bytes of tensors where its header names 0"),
        ({"a": 5}, "no type, shape and place"),
        ({"a": GOOD | {"more": 1}}, "no type, shape and place"),
        ({"a": GOOD, "__metadata__": {"step": 5}}, "not a table of texts"),
        ([GOOD], "not a table"),
    ],
)
def test_a_false_header(tmp_path: Path, header: object, words: str) -> None:
    encoded = json.dumps(header).encode()
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + bytes(8))
    with pytest.raises(ModelFolderError, match=words):
        read_tensors(path)
    assert read_metadata(path) == {}


@pytest.mark.parametrize("length", [9, 2**24 + 1, 2**63])
def test_a_header_of_impossible_length(tmp_path: Path, length: int) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + b"{}")
    with pytest.raises(ModelFolderError, match="cannot have"):
        read_tensors(path)


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.safetensors")
    with pytest.raises(ModelFolderError, match="not a regular file"):
        read_tensors(tmp_path / "a.safetensors")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match="missing"):
        read_tensors(tmp_path / "a.safetensors")


def test_files_of_other_programs_have_no_digest(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2)}, tmp_path / "a.safetensors")
    read, metadata = read_tensors(tmp_path / "a.safetensors")
    assert torch.equal(read["a"], torch.ones(2))
    assert metadata == {}
