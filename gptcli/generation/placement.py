"""Placing a model for inference: device, dtype, 8-bit weights, and how many CPU threads decode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from gptcli.config import DtypeName
from gptcli.model.devices import choose_dtype, use_device
from gptcli.model.experts import Experts
from gptcli.model.gpt import GPT
from gptcli.model.int8 import Int8GPT

ONE_THREAD_BELOW = 3_000_000
"""Parameters below which one CPU thread decodes faster than several: synchronizing them costs more than the work of a
layer (docs/log.md)."""
MANY_TEXTS = 16
"""From this batch size on, a layer of a small model is enough work for several threads too."""


def place(model: GPT, device: torch.device, dtype_name: DtypeName | None, *, int8: bool = False) -> GPT:
    """Move a model to the device and dtype that it decodes in (see `decoding_dtype`), and prepare it for inference.

    `int8` converts the weights of its matrix products to 8 bits. Do not use the given model afterwards. Raises
    DeviceError for what the device does not support.
    """
    use_device(device)
    placed = model.to(device=device, dtype=decoding_dtype(dtype_name, device, model.config.n_embd))
    return bind_submodules(Int8GPT(placed) if int8 else placed)


def decoding_dtype(requested: DtypeName | None, device: torch.device, n_embd: int) -> torch.dtype:
    """The requested dtype, or the fastest for decoding: float32 except on CUDA. Raises DeviceError."""
    default: DtypeName | None = None if device.type == "cuda" else "float32"
    return choose_dtype(requested or default, device, n_embd).dtype


def bind_submodules(model: GPT) -> GPT:
    """Bind submodules as plain attributes to skip `nn.Module` lookup and hooks; returns the model. Inference only.

    In a small model the lookups took a sixth of the time per token (docs/log.md).
    """
    for block in model.h:
        if isinstance(block.mlp, Experts) and model.wte.weight.device.type == "cuda":
            block.mlp.keep_stacked()
        for module in block.modules():
            vars(module).update(module._parameters)
            for name, part in module._modules.items():
                vars(module)[name] = part if part is None or isinstance(part, nn.ModuleList) else part.forward
    return model


def decoding_threads(model: GPT, texts: int) -> int:
    """The number of CPU threads that decodes `texts` texts at once fastest, for `torch.set_num_threads`.

    It depends on nothing else, such as the load of the machine: another number of threads rounds differently, and the
    same seed would give another text.
    """
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return 1 if parameters < ONE_THREAD_BELOW and texts < MANY_TEXTS else torch.get_num_threads()


@contextmanager
def cpu_threads(count: int) -> Iterator[None]:
    """Compute with `count` CPU threads, then restore the previous number. It is global to the process."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
