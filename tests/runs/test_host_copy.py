"""Copies of tensors in host memory: contiguous, of every dtype, and independent of the originals."""

from __future__ import annotations

import pytest
import torch

from gptcli.runs.host_copy import HostCopy, copied_bytes, host_block

TENSORS = {
    "matrix": torch.randn(5, 7),
    "transposed": torch.randn(5, 7).t(),
    "rows": torch.randn(8, 3)[2:5],
    "half": torch.randn(3).bfloat16(),
    "bytes": torch.arange(5, dtype=torch.uint8),
    "long": torch.arange(3),
    "scalar": torch.tensor(2.5),
    "empty": torch.zeros(0, 4),
    "learned": torch.nn.Parameter(torch.randn(2, 2)),
}


def test_it_holds_the_same_numbers() -> None:
    copies = HostCopy(TENSORS).tensors()
    assert copies.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert copies[name].dtype == tensor.dtype
        assert torch.equal(copies[name], tensor)
        assert copies[name].is_contiguous()
        assert not copies[name].requires_grad


def test_later_changes_do_not_reach_it() -> None:
    original = torch.zeros(4)
    copy = HostCopy({"a": original})
    original.fill_(1.0)
    assert copy.tensors()["a"].tolist() == [0.0] * 4


def test_its_size_is_known_before() -> None:
    copies = HostCopy(TENSORS).tensors()
    assert {copies[name].untyped_storage().nbytes() for name in copies} == {copied_bytes(TENSORS)}
    assert copied_bytes(TENSORS) >= sum(tensor.numel() * tensor.element_size() for tensor in TENSORS.values())


def test_memory_that_cannot_be_pinned_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, asked = torch.empty, []

    def empty(size: int, *, dtype: torch.dtype, pin_memory: bool = False) -> torch.Tensor:
        asked.append(pin_memory)
        if pin_memory:
            raise RuntimeError("CUDA error: out of memory")
        return plain(size, dtype=dtype)

    monkeypatch.setattr(torch, "empty", empty)
    assert host_block(100, pinned=True).shape == (100,)
    assert asked == [True, False]
