"""Writing a Hugging Face folder with the model alone: no checkpoints, metrics or training state."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch

from gptcli.checkpoints import names
from gptcli.checkpoints.model_card import card_page, in_words
from gptcli.checkpoints.run_folder import hugging_face_files, is_run
from gptcli.checkpoints.tensors import tensor_file
from gptcli.checkpoints.weights import weights_metadata
from gptcli.generation.loaded_model import LoadedModel
from gptcli.interop.hub import model_name
from gptcli.interop.huggingface import tensors_to_hf
from gptcli.model.devices import dtype_name
from gptcli.model.loss import loss_in_words
from gptcli.storage import new_directory

HfType = Literal["f32", "f16", "bf16"]
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
HF_FILES = (
    *(names.CONFIG, names.GENERATION_CONFIG, names.MODEL),
    *(names.TOKENIZER, names.TOKENIZER_CONFIG, names.README),
)


def write_hf_folder(loaded: LoadedModel, path: Path, type: HfType, *, force: bool) -> None:
    """Write the folder at `path`, with the weights as `type`."""
    config, dtype = loaded.model.config, DTYPES[type]
    files = hugging_face_files(config, loaded.tokenizer, loaded.start_id, loaded.end_id, dtype_name(dtype))
    tensors = tensors_to_hf(loaded.model.state_dict(), config)
    weights = {name: tensor.to(dtype) for name, tensor in tensors.items()}
    with new_directory(path, manifest=None, replace=force) as new:
        for name, content in files.items():
            new.write(name, content)
        new.write(names.MODEL, tensor_file(weights, weights_metadata(loaded.step, loaded.val_loss)))
        new.write(names.README, _card(loaded))


def _card(loaded: LoadedModel) -> bytes:
    """The model card: that of a published model is kept, because it contains the licence and the sources."""
    published = loaded.path / names.README
    if not is_run(loaded.path) and published.is_file():
        return published.read_bytes()
    config, tokenizer = loaded.model.config, loaded.tokenizer
    rows = {
        "model": in_words(config),
        "parameters": f"{sum(parameter.numel() for parameter in loaded.model.parameters()):,}",
        "context": f"{config.block_size:,} tokens",
        "tokenizer": f"{tokenizer.kind}, {tokenizer.vocab_size:,} ids",
    }
    if loaded.step is not None:
        rows["training steps"] = f"{loaded.step:,}"
    if loaded.val_loss is not None:
        rows["validation loss"] = loss_in_words(loaded.val_loss)
    origin = "exported by gptcli. It continues text; it does not chat."
    return card_page(model_name(loaded.path), config, tokenizer, rows, origin=origin).encode()
