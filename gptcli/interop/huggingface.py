"""GPT-2 in Hugging Face's form: `config.json`, tensor names and layouts, tokenizer settings.

Hugging Face keeps OpenAI's layout, in which the four matrices of a block are stored (in, out), where torch's linear
layers have (out, in); and it calls the model `transformer.…` inside a `GPT2LMHeadModel`. Older files leave that prefix
out, and carry causal-mask buffers, which are no weights.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from gptcli.config import ModelConfig, config_error
from gptcli.errors import ModelFolderError
from gptcli.model.gpt import INITIAL_DEVIATION, LAYER_NORM_EPSILON

PREFIX = "transformer."
HEAD = "lm_head.weight"
_TRANSPOSED = re.compile(r"(c_attn|c_proj|c_fc)\.weight$")
_MASK_BUFFER = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)$")

_REQUIRED: dict[str, tuple[Any, ...]] = {
    "model_type": ("gpt2",),
    "activation_function": ("gelu_new", "gelu_pytorch_tanh", None),
    "layer_norm_epsilon": (LAYER_NORM_EPSILON, None),
    "tie_word_embeddings": (True, None),
    "scale_attn_weights": (True, None),
    "scale_attn_by_inverse_layer_idx": (False, None),
    "add_cross_attention": (False, None),
    "quantization_config": (None,),
}
"""Keys of a config.json that must have one of these values for the model to be GPT-2; None: the key may be absent."""


def config_to_hf(config: ModelConfig, *, bos_token_id: int, eos_token_id: int | None) -> dict[str, Any]:
    """`config.json` of a model."""
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": config.vocab_size,
        "n_positions": config.block_size,
        "n_embd": config.n_embd,
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "n_inner": None,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": LAYER_NORM_EPSILON,
        "initializer_range": INITIAL_DEVIATION,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.dropout,
        "tie_word_embeddings": True,
        "bos_token_id": bos_token_id,
        "eos_token_id": eos_token_id,
        "dtype": "float32",
    }


def config_from_hf(values: Mapping[str, Any], where: str) -> ModelConfig:
    """The model that a `config.json` describes; `where` names it in errors.

    Raises ModelFolderError, naming the key, if it is not a GPT-2 that this program computes exactly.
    """
    for key, allowed in _REQUIRED.items():
        if values.get(key) not in allowed:
            raise ModelFolderError(
                f"{where} is not supported: {key} is {values.get(key)!r}, where GPT-2 has {allowed[0]!r}.",
                "Only GPT-2 models can be opened.",
            )
    try:
        config = ModelConfig(
            vocab_size=values["vocab_size"],
            n_layer=values["n_layer"],
            n_head=values["n_head"],
            n_embd=values["n_embd"],
            block_size=values["n_positions"] if "n_positions" in values else values["n_ctx"],
            dropout=values.get("resid_pdrop", 0.0),
        )
    except KeyError as error:
        raise ModelFolderError(f"{where} has no key {error}.") from None
    except ValidationError as error:
        raise ModelFolderError(f"{where} cannot be used: {config_error(error, ModelConfig).message}") from None
    if values.get("n_inner") not in (None, 4 * config.n_embd):
        raise ModelFolderError(f"{where} is not supported: n_inner is {values['n_inner']}, where GPT-2 has 4 n_embd.")
    return config


def tensors_to_hf(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A model's state, under Hugging Face's names and layouts; the tied head is not stored twice."""
    return {PREFIX + name: _flipped(name, tensor) for name, tensor in state.items()}


def tensors_from_hf(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """The model's state from Hugging Face tensors, checked against `expected` (names and shapes; values unused).

    Raises ModelFolderError that lists every missing, unexpected and misshapen tensor.
    """
    state: dict[str, Tensor] = {}
    problems = []
    for stored_name, tensor in tensors.items():
        name = stored_name.removeprefix(PREFIX)
        if _MASK_BUFFER.fullmatch(name) or stored_name == HEAD:
            continue
        if name in state:
            problems.append(f"{name} is there twice, with and without '{PREFIX}'")
        if not tensor.is_floating_point():
            problems.append(f"{name} has numbers of type {str(tensor.dtype).removeprefix('torch.')}")
        state[name] = _flipped(name, tensor)
    problems += [f"{name} is missing" for name in expected.keys() - state.keys()]
    problems += [f"{name} is not expected" for name in state.keys() - expected.keys()]
    problems += [
        f"{name} has shape {list(state[name].shape)} instead of {list(expected[name].shape)}"
        for name in state.keys() & expected.keys()
        if state[name].shape != expected[name].shape
    ]
    head, embedding = tensors.get(HEAD), state.get("wte.weight")
    if head is not None and embedding is not None and not torch.equal(head.float(), embedding.float()):
        problems.append(f"{HEAD} differs from the token embedding, to which GPT-2 ties it")
    if problems:
        raise ModelFolderError(f"{where} does not fit its config.json: {'; '.join(sorted(problems))}.")
    return state


def tokenizer_settings(end_of_text: str | None, context: int) -> dict[str, Any]:
    """`tokenizer_config.json`, which lets transformers open `tokenizer.json` as it is."""
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
    }
    if end_of_text is not None:
        settings |= {"bos_token": end_of_text, "eos_token": end_of_text, "unk_token": None}
    return settings


def _flipped(name: str, tensor: Tensor) -> Tensor:
    return tensor.t() if _TRANSPOSED.search(name) else tensor
