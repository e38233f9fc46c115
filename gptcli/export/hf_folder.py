"""A Hugging Face folder with the model alone: no checkpoints, no metrics, nothing that only training needs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch

from gptcli.checkpoints import names
from gptcli.checkpoints.model_folder import ModelFolder
from gptcli.checkpoints.run_folder import is_run
from gptcli.checkpoints.tensors import tensor_file
from gptcli.export.card import export_card
from gptcli.export.exported import Exported
from gptcli.interop.hub import model_name
from gptcli.interop.huggingface import config_to_hf, tensors_to_hf, tokenizer_settings
from gptcli.storage import new_directory, to_json
from gptcli.text.tokenizer_json import END_OF_TEXT

HfType = Literal["f32", "f16", "bf16"]
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
NAMES = (
    *(names.CONFIG, names.GENERATION_CONFIG, names.MODEL),
    *(names.TOKENIZER, names.TOKENIZER_CONFIG, names.README),
)


def export_hf(folder: ModelFolder, path: Path, type: HfType, *, force: bool) -> Exported:
    """Make the folder at `path`."""
    config, dtype = folder.model.config, DTYPES[type]
    hf_config = config_to_hf(config, bos_token_id=folder.start_id, eos_token_id=folder.end_id)
    hf_config["dtype"] = str(dtype).removeprefix("torch.")
    end_text = END_OF_TEXT if folder.tokenizer.end_of_text is not None else None
    weights = {name: tensor.to(dtype) for name, tensor in tensors_to_hf(folder.model.state_dict()).items()}
    known = {"step": folder.step, "val_loss": folder.val_loss}
    metadata = {key: repr(value) for key, value in known.items() if value is not None}
    generation = {"bos_token_id": folder.start_id, "eos_token_id": folder.end_id}
    with new_directory(path, manifest=None, replace=force) as new:
        new.write(names.CONFIG, to_json(hf_config))
        new.write(names.GENERATION_CONFIG, to_json(generation))
        new.write(names.TOKENIZER, folder.tokenizer.to_json().encode())
        new.write(names.TOKENIZER_CONFIG, to_json(tokenizer_settings(end_text, config.block_size)))
        new.write(names.MODEL, tensor_file(weights, metadata))
        new.write(names.README, _card(folder))
    return Exported(path, type, hint=f"gptcli sample {path}, or transformers' from_pretrained('{path}')")


def _card(folder: ModelFolder) -> bytes:
    """The model card. One that came with a published model is kept, since it holds that model's licence and sources."""
    published = folder.path / names.README
    if not is_run(folder.path) and published.is_file():
        return published.read_bytes()
    return export_card(model_name(folder.path), folder).encode()
