"""CUDA tensors without data and without a GPU: they know their shapes, dtypes and devices, and can be computed with.

torch's FakeTensorMode raises where an operation mixes devices, and where the host would have to wait for a value. Two
things are missing without a GPU: autograd's backward pass, which asks for an accelerator, and in torch's builds for
CPUs a guard of the current CUDA device, in whose place the one of the meta device is put, which does nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode

from gptcli.model.gpt import GPT

CUDA = torch.device("cuda:0")
GUARDS = "_ZN3c104impl26device_guard_impl_registryE"
"""torch's array of device guards, by the numbers of `c10::DeviceType`."""
CUDA_NUMBER, META_NUMBER = 1, 14


@contextmanager
def fake_cuda(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int] = (8, 0)) -> Iterator[None]:
    """All tensors made inside are fake, and torch reports a GPU with bfloat16 and this compute capability."""
    with _cuda_guard(), FakeTensorMode(), monkeypatch.context() as patch:
        patch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
        patch.setattr(torch.cuda, "is_bf16_supported", lambda *_: True)
        patch.setattr(torch.cuda, "get_device_capability", lambda *_: capability)
        patch.setattr(Tensor, "pin_memory", lambda self: self)  # the host's side of a copy, unknown to fake tensors
        yield


@contextmanager
def _cuda_guard() -> Iterator[None]:
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    guards = (ctypes.c_void_p * (META_NUMBER + 1)).in_dll(library, GUARDS)
    before = guards[CUDA_NUMBER]
    if before is None:
        guards[CUDA_NUMBER] = guards[META_NUMBER]
    try:
        yield
    finally:
        guards[CUDA_NUMBER] = before


def moved(model: GPT) -> GPT:
    """The model with fake CUDA tensors in place of its own; call it inside `fake_cuda`."""
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[name] = nn.Parameter(_like(parameter), parameter.requires_grad)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = _like(buffer)
    return model


def _like(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=CUDA)


def fill_gradients(model: GPT) -> Callable[[Tensor], None]:
    """What stands in for the backward pass: gradients without values."""

    def backward(loss: Tensor) -> None:
        assert loss.device == CUDA
        for parameter in model.parameters():
            parameter.grad = torch.empty_like(parameter)

    return backward
