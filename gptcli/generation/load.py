"""The model to sample from: found, opened, and put where it runs fastest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from gptcli.checkpoints.model_folder import ModelFolder, open_model
from gptcli.checkpoints.run_folder import newest_run
from gptcli.config import DtypeName
from gptcli.errors import ModelFolderError
from gptcli.model.gpt import GPT
from gptcli.model.precision import choose_device, choose_dtype

ONE_THREAD_BELOW = 3_000_000
"""Parameters below which one CPU thread decodes faster than several: each wait of threads for each other costs more
than the work of a layer (docs/log.md)."""


def find_run(root: Path) -> Path:
    """The newest run below `root`; raises ModelFolderError that says how to train one."""
    run = newest_run(root)
    if run is None:
        raise ModelFolderError(f"There is no trained model under {root}/.", "Train one: gptcli train book.txt")
    return run


def load_for_sampling(folder: Path, checkpoint: str, device_name: str, dtype_name: DtypeName | None) -> ModelFolder:
    """Open a model on the device, its weights in the number format that it decodes in: float32 on a CPU unless asked.

    Raises ModelFolderError, TokenizerError or DeviceError.
    """
    device = choose_device(device_name)
    opened = open_model(folder, checkpoint)
    wanted: DtypeName | None = dtype_name or (None if device.type == "cuda" else "float32")
    dtype = choose_dtype(wanted, device, opened.model.config.n_embd).dtype
    return replace(opened, model=opened.model.to(device=device, dtype=dtype))


def decoding_threads(model: GPT) -> int:
    """How many CPU threads decode this model fastest, for `torch.set_num_threads`."""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return 1 if parameters < ONE_THREAD_BELOW else torch.get_num_threads()
