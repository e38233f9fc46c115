"""The model to sample from: found, opened, and put where it runs fastest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from gptcli.checkpoints.model_folder import LoadedModel, open_model, read_model_config
from gptcli.checkpoints.run_folder import newest_run
from gptcli.config import DtypeName
from gptcli.errors import ModelFolderError, UsageError
from gptcli.model.devices import choose_device, choose_dtype
from gptcli.model.gpt import GPT
from gptcli.model.int8 import Int8GPT
from gptcli.model.resize import has_context, with_context

ONE_THREAD_BELOW = 3_000_000
"""Parameters below which one CPU thread decodes faster than several: each wait of threads for each other costs more
than the work of a layer (docs/log.md)."""
MANY_TEXTS = 16
"""From so many at once on, a layer of a small model is work enough for several threads too."""


def find_run(root: Path) -> Path:
    """The newest run below `root`; raises ModelFolderError that says how to train one."""
    run = newest_run(root)
    if run is None:
        raise ModelFolderError(f"There is no trained model under {root}/.", "Train one: gptcli train book.txt")
    return run


def load_for_sampling(
    folder: Path,
    checkpoint: str,
    device_name: str,
    dtype_name: DtypeName | None,
    *,
    context: int | None = None,
    int8: bool = False,
) -> LoadedModel:
    """Open a model, in its own context or another one, and put it where and how it is to write, as `place` says.

    Raises ModelFolderError, TokenizerError, DeviceError, or UsageError for a context that the model cannot have.
    """
    device = choose_device(device_name)
    if context is not None:
        _require_context(folder, context)
    opened = open_model(folder, checkpoint)
    if context is not None:
        with_context(opened.model, context)
    return replace(opened, model=place(opened.model, device, dtype_name, int8=int8))


def _require_context(folder: Path, context: int) -> None:
    config = read_model_config(folder)
    if not has_context(config, context):
        message = f"'{folder}' learned {config.block_size:,} positions, and has none for a context of {context:,}."
        hint = "Only models with rope or sinusoidal positions go on: train one with --set model.position=rope."
        raise UsageError(message, hint)


def place(model: GPT, device: torch.device, dtype_name: DtypeName | None, *, int8: bool = False) -> GPT:
    """A model on the device, its weights in the number format that it decodes in: float32 on a CPU unless asked.

    With `int8` the weights of its products become 8-bit ones. The model that was given is not to be used any more.
    Raises DeviceError for what the device cannot do.
    """
    wanted: DtypeName | None = dtype_name or (None if device.type == "cuda" else "float32")
    dtype = choose_dtype(wanted, device, model.config.n_embd).dtype
    placed = model.to(device=device, dtype=dtype)
    return bind_submodules(Int8GPT(placed) if int8 else placed)


def bind_submodules(model: GPT) -> GPT:
    """Put the parts of every block where Python finds them at once, for a model that only writes; returns it.

    torch keeps parts in dictionaries of its own, which are looked into when nothing else has the name, and looks for
    hooks around every call. For a small model that was a sixth of the time of a token (docs/log.md).
    """
    for block in model.h:
        for module in block.modules():
            vars(module).update(module._parameters)
            for name, part in module._modules.items():
                vars(module)[name] = part if part is None or isinstance(part, nn.ModuleList) else part.forward
    return model


def decoding_threads(model: GPT, texts: int) -> int:
    """How many CPU threads decode so many texts at once fastest, for `torch.set_num_threads`.

    Nothing else decides, such as what the machine does at the moment: threads round differently, and a seed would give
    another text.
    """
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return 1 if parameters < ONE_THREAD_BELOW and texts < MANY_TEXTS else torch.get_num_threads()
