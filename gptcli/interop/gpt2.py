"""GPT-2 as transformers has it.

Its files keep OpenAI's layout, in which the four matrices of a block are stored (in, out), where torch's linear layers
have (out, in); and they call the model `transformer.…` inside a `GPT2LMHeadModel`. Older files leave that prefix out,
and carry causal-mask buffers, which are no weights.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gptcli.config import ModelConfig
from gptcli.interop.architecture import HEAD, Architecture, Part

PREFIX = "transformer."
_TRANSPOSED = re.compile(r"(c_attn|c_proj|c_fc)\.weight$")
_MASK_BUFFER = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)$")


def _parts(name: str, config: ModelConfig) -> list[Part]:
    if name == HEAD:
        return [Part(HEAD)]
    return [Part(PREFIX + name, transposed=bool(_TRANSPOSED.search(name)))]


def _plain_name(stored: str) -> str | None:
    name = stored.removeprefix(PREFIX)
    if _MASK_BUFFER.fullmatch(name):
        return None
    return stored if stored == HEAD else PREFIX + name


def _to_values(config: ModelConfig) -> dict[str, Any]:
    return {
        "n_positions": config.block_size,
        "n_embd": config.n_embd,
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "n_inner": config.model_dump()["mlp_width"],  # None, transformers' default, where it is derived
        "activation_function": "gelu_new",
        "layer_norm_epsilon": config.norm_epsilon,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.dropout,
    }


def _from_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "n_layer": values["n_layer"],
        "n_head": values["n_head"],
        "n_embd": values["n_embd"],
        "block_size": values["n_positions"] if "n_positions" in values else values["n_ctx"],
        "dropout": values.get("resid_pdrop", 0.0),
        "norm_epsilon": values.get("layer_norm_epsilon", 1e-5),
        "mlp_width": values.get("n_inner"),
    }


GPT2 = Architecture(
    model_type="gpt2",
    class_name="GPT2LMHeadModel",
    title="GPT-2",
    parts=_parts,
    to_values=_to_values,
    from_values=_from_values,
    required={
        "activation_function": ("gelu_new", "gelu_pytorch_tanh", None),
        "scale_attn_weights": (True, None),
        "scale_attn_by_inverse_layer_idx": (False, None),
        "add_cross_attention": (False, None),
        "quantization_config": (None,),
    },
    plain_name=_plain_name,
)
