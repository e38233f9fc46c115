"""Published models in small: what `transformers` saves, with random weights in which every part matters."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gptcli.tokenizer.char import char_tokenizer

ALPHABET = "\n abcdefghijklmnopqrstuvwxyz.,!?"
HEAD_WIDTH = 64
SIZES = {
    "gpt2": {"n_layer": 2, "n_head": 2},
    "gpt2-medium": {"n_layer": 3, "n_head": 3},
    "gpt2-large": {"n_layer": 3, "n_head": 4},
    "gpt2-xl": {"n_layer": 2, "n_head": 5},
}
"""GPT-2's size classes: heads of 64 numbers, as all of them have; fewer and thinner layers, none like another."""


def transformers_model(size: str = "gpt2", dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
    """A model of theirs with no bias at zero, and with positions strong enough for a text that varies."""
    import transformers

    torch.manual_seed(3)
    shape = SIZES[size] | {"n_embd": HEAD_WIDTH * SIZES[size]["n_head"], "n_positions": 64}
    rows = char_tokenizer(ALPHABET).vocab_size
    config = transformers.GPT2Config(**{**shape, "vocab_size": rows, "bos_token_id": 0, "eos_token_id": 0} | changes)
    model = transformers.GPT2LMHeadModel(config).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, dtype=dtype))
        model.transformer.wpe.weight.mul_(5)
    return model


RELATED = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64,
}  # fmt: skip
LINEAR = {"rope_parameters": {"rope_type": "linear", "rope_theta": 1000.0, "factor": 2.0}}
ROWS: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama, tied": {"tie_word_embeddings": True, "num_key_value_heads": 1, **LINEAR},
    "mistral": {"sliding_window": 9},
    "mistral without a window": {"sliding_window": None},
    "qwen3": {"head_dim": 16, "tie_word_embeddings": True},
    "qwen3 with narrow heads": {"head_dim": 8},
    "qwen3 with windows": {
        "head_dim": 16,
        "use_sliding_window": True,
        "sliding_window": 9,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "mixtral with a window": {"num_local_experts": 3, "num_experts_per_tok": 1, "sliding_window": 9},
    "qwen3_moe": {
        "head_dim": 16,
        "num_experts": 5,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 40,
        "norm_topk_prob": True,
    },
}
"""Llama's relatives by their `model_type`, and what their configs say beside the shape."""


def related_model(row: str, **changes: Any) -> Any:
    """A model of theirs, with norms off 1 and weights strong enough for a text that varies."""
    import transformers

    torch.manual_seed(3)
    rows = char_tokenizer(ALPHABET).vocab_size
    known = RELATED | ROWS[row] | {"vocab_size": rows, "bos_token_id": 0, "eos_token_id": 0} | changes
    config = transformers.AutoConfig.for_model(re.split("[ ,]", row)[0], **known)
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_((0.3 if parameter.dim() > 1 else 0.1) * torch.randn(parameter.shape))
    return model


def save(model: Any, folder: Path, *, shards: bool = False) -> Path:
    """Their folder with a character tokenizer in it; the weights in one file or in several."""
    model.save_pretrained(folder, max_shard_size="300KB" if shards else "5GB")
    assert (folder / "model.safetensors.index.json").exists() == shards
    (folder / "tokenizer.json").write_text(char_tokenizer(ALPHABET).to_json(), encoding="utf-8")
    return folder


def without_prefix(folder: Path) -> Path:
    """The same folder as old files have it: no `transformer.` before the names, mask buffers, a stored head."""
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    tensors = {name.removeprefix("transformer."): tensor for name, tensor in load_file(path).items()}
    tensors["h.0.attn.bias"] = torch.ones(1, 1, 64, 64).tril()
    tensors["h.1.attn.masked_bias"] = torch.tensor(-1e4)
    tensors["lm_head.weight"] = tensors["wte.weight"].clone()
    save_file(tensors, path, {"format": "pt"})
    return folder


def change_json(path: Path, **changes: Any) -> None:
    """Replace keys of a JSON object in a file."""
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes), encoding="utf-8")


def greedy(model: Any, prompt: Tensor, tokens: int) -> list[int]:
    """What their `generate` continues with, always the likeliest token."""
    settings = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    out = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=tokens, **settings)
    continued: list[int] = out[0, prompt.shape[1] :].tolist()
    return continued
