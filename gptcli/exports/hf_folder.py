"""A Hugging Face folder with the model alone: no checkpoints, no metrics, nothing that only training needs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Literal

import torch

from gptcli.checkpoints import names
from gptcli.checkpoints.run_folder import hugging_face_files, is_run
from gptcli.checkpoints.tensors import tensor_file
from gptcli.checkpoints.weights import weights_metadata
from gptcli.exports.card import export_card
from gptcli.exports.exported import Exported
from gptcli.generation.loaded_model import LoadedModel
from gptcli.interop.hub import model_name
from gptcli.interop.huggingface import no_counterpart, tensors_to_hf
from gptcli.model.devices import dtype_name
from gptcli.storage import new_directory

HfType = Literal["f32", "f16", "bf16"]
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
NAMES = (
    *(names.CONFIG, names.GENERATION_CONFIG, names.MODEL),
    *(names.TOKENIZER, names.TOKENIZER_CONFIG, names.README),
)


def export_hf(folder: LoadedModel, path: Path, type: HfType, *, force: bool) -> Exported:
    """Make the folder at `path`."""
    dtype = DTYPES[type]
    files = hugging_face_files(folder.model.config, folder.tokenizer, folder.start_id, folder.end_id, dtype_name(dtype))
    weights = {
        name: tensor.to(dtype) for name, tensor in tensors_to_hf(folder.model.state_dict(), folder.model.config).items()
    }
    with new_directory(path, manifest=None, replace=force) as new:
        for name, content in files.items():
            new.write(name, content)
        new.write(names.MODEL, tensor_file(weights, weights_metadata(folder.step, folder.val_loss)))
        new.write(names.README, _card(folder))
    alone = no_counterpart(folder.model.config)
    hint = f"gptcli sample {shlex.quote(str(path))}" + (
        "" if alone else f", or transformers' from_pretrained({str(path)!r})"
    )
    return Exported(path, type, hint=hint, note=alone)


def _card(folder: LoadedModel) -> bytes:
    """The model card. One that came with a published model is kept, since it holds that model's licence and sources."""
    published = folder.path / names.README
    if not is_run(folder.path) and published.is_file():
        return published.read_bytes()
    return export_card(model_name(folder.path), folder).encode()
