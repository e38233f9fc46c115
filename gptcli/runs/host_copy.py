"""A copy of tensors in host memory, from which a thread writes while training changes the originals."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from gptcli.errors import is_out_of_memory

DIRECT_BYTES = 16 << 20
"""Size up to which tensors are written at once, without a copy and a thread (docs/log.md)."""
_ALIGNMENT = 64


class HostCopy:
    """Contiguous copies of tensors in one block of host memory.

    Tensors on CUDA are copied into pinned memory without waiting: the device carries out the copy before any later
    update. torch keeps pinned memory that was released for the next block of that size. Elsewhere the copy is complete
    at once, and the system gets its memory back with the last reference to it.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        """Begin to copy; `tensors()` waits for the end."""
        on_cuda = next((tensor.device for tensor in tensors.values() if tensor.is_cuda), None)
        block = host_block(copied_bytes(tensors), pinned=on_cuda is not None)
        self._tensors: dict[str, Tensor] = {}
        offset = 0
        for name, tensor in tensors.items():
            size = tensor.numel() * tensor.element_size()
            place = block[offset : offset + size].view(tensor.dtype).view(tensor.shape)
            self._tensors[name] = place.copy_(tensor.detach(), non_blocking=tensor.is_cuda)
            offset += _aligned(size)
        self._copied = torch.cuda.current_stream(on_cuda).record_event() if on_cuda else None

    def tensors(self) -> dict[str, Tensor]:
        """The copies, once they are complete. Any thread may wait for them."""
        if self._copied:
            self._copied.synchronize()
        return self._tensors


def host_block(size: int, *, pinned: bool) -> Tensor:
    """A block of host memory, uint8 (size,); not `pinned` where the system refuses to pin so much.

    A copy from CUDA into ordinary memory waits for the device.
    """
    try:
        return torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
    except RuntimeError as error:
        if not (pinned and is_out_of_memory(error)):
            raise
        return torch.empty(size, dtype=torch.uint8)


def copied_bytes(tensors: Mapping[str, Tensor]) -> int:
    """Bytes of host memory that a copy takes."""
    return sum(_aligned(tensor.numel() * tensor.element_size()) for tensor in tensors.values())


def _aligned(size: int) -> int:
    return _ALIGNMENT * math.ceil(size / _ALIGNMENT)
