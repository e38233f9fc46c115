"""Llama and its relatives in transformers: Qwen3, Mistral, Mixtral, Qwen3-MoE.

They share names and layout. Queries, keys and values are three matrices there and one here; the gate and the up
projection of SwiGLU are two there and one here. Experts are numbered.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gptcli.config import ModelConfig
from gptcli.interop.architecture import Architecture, HfTensor, as_json, optional_value, wrong_value

_OUTSIDE = {"wte.weight": "model.embed_tokens.weight", "ln_f.weight": "model.norm.weight"}
_IN_BLOCK = {
    "ln_1": "input_layernorm",
    "attn.c_proj": "self_attn.o_proj",
    "attn.q_norm": "self_attn.q_norm",
    "attn.k_norm": "self_attn.k_norm",
    "ln_2": "post_attention_layernorm",
}
_BLOCK = re.compile(r"h\.(\d+)\.(.+)\.weight")
_EXPERT = re.compile(r"mlp\.(?:experts\.(\d+)\.)?(c_fc|c_proj)")

_SLIDING, _FULL = "sliding_attention", "full_attention"


def _tensors(name: str, config: ModelConfig, *, mlp: str, gate: str, up: str, down: str) -> list[HfTensor]:
    """`mlp` is the module with the experts, if there are any; `gate`, `up` and `down` are the matrices of one MLP."""
    match = _BLOCK.fullmatch(name)
    if match is None:
        return [HfTensor(_OUTSIDE.get(name, name))]
    block, module = f"model.layers.{match[1]}.", match[2]
    if module == "attn.c_attn":
        rows = zip("qkv", config.qkv_rows, strict=True)
        return [HfTensor(f"{block}self_attn.{letter}_proj.weight", count) for letter, count in rows]
    if module == "mlp.router":
        return [HfTensor(f"{block}{mlp}.gate.weight")]
    if expert := _EXPERT.fullmatch(module):
        place = block + (f"{mlp}.experts.{expert[1]}." if expert[1] else "mlp.")
        if expert[2] == "c_proj":
            return [HfTensor(f"{place}{down}.weight")]
        return [HfTensor(f"{place}{x}.weight", config.mlp_width) for x in (gate, up)]
    return [HfTensor(f"{block}{_IN_BLOCK[module]}.weight")]


def _llama_tensors(name: str, config: ModelConfig) -> list[HfTensor]:
    return _tensors(name, config, mlp="mlp", gate="gate_proj", up="up_proj", down="down_proj")


def _mixtral_tensors(name: str, config: ModelConfig) -> list[HfTensor]:
    return _tensors(name, config, mlp="block_sparse_moe", gate="w1", up="w3", down="w2")


def _to_config(config: ModelConfig) -> dict[str, Any]:
    scaling = {"rope_type": "linear", "factor": config.rope_scaling} if config.rope_scaling != 1 else {}
    return {
        "hidden_size": config.n_embd,
        "intermediate_size": config.mlp_width,
        "num_hidden_layers": config.n_layer,
        "num_attention_heads": config.n_head,
        "num_key_value_heads": config.n_kv_head,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": config.block_size,
        "rms_norm_eps": config.norm_epsilon,
        "attention_dropout": config.dropout,
        "attention_bias": False,
        "rope_theta": config.rope_base,  # where transformers below 5 looks, and other tools
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_base} | scaling,
    }


def _llama_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """The head width, and rope as transformers 4 or 5 writes it."""
    shape = ("hidden_size", "num_attention_heads", "head_dim")
    width, heads, head_dim = (optional_value(values, key, 0) for key in shape)
    if head_dim % 2:
        raise wrong_value("head_dim", head_dim, "even")
    key = "rope_parameters" if values.get("rope_parameters") else "rope_scaling"
    rope: dict[str, Any] = optional_value(values, key, {})
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "linear"):
        raise wrong_value(f"{key}.rope_type", kind, "default or linear")
    fields: dict[str, Any] = {"head_dim": None} if head_dim * heads == width else {}
    if rope.get("rope_theta") is not None:
        fields["rope_base"] = rope["rope_theta"]
    return fields | ({"rope_scaling": rope.get("factor", 1.0)} if kind == "linear" else {})


def _mistral_to_config(config: ModelConfig) -> dict[str, Any]:
    return _to_config(config) | {"sliding_window": config.sliding_window}


def _qwen3_to_config(config: ModelConfig) -> dict[str, Any]:
    windows = [config.window_of(layer) for layer in range(config.n_layer)]
    return _to_config(config) | {
        "use_sliding_window": config.sliding_window is not None,
        "sliding_window": config.sliding_window,
        "max_window_layers": 0,
        "layer_types": [_SLIDING if window else _FULL for window in windows],
    }


def _qwen3_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    return _llama_fields(values) | _qwen3_window(values)


def _qwen3_window(values: Mapping[str, Any]) -> dict[str, Any]:
    """The sliding window and the layers that use it, in `layer_types` or, in older files, `max_window_layers`."""
    layers = optional_value(values, "num_hidden_layers", 0)
    window = values.get("sliding_window") if optional_value(values, "use_sliding_window", False) else None
    types: list[Any] = optional_value(values, "layer_types", [])
    if not types:
        first = optional_value(values, "max_window_layers", 28)  # the default of transformers
        if window and 0 < first < layers:
            raise wrong_value("max_window_layers", first, "0 (a window in all layers) or num_hidden_layers (in none)")
        return {"sliding_window": window if first <= 0 else None}
    if unknown := [kind for kind in types if kind not in (_SLIDING, _FULL)]:
        raise ValueError(f"layer_types must have {_SLIDING} or {_FULL} for each layer, not {as_json(unknown[0])}")
    if len(types) != layers:
        raise ValueError(f"layer_types must have num_hidden_layers ({layers}) entries, not {len(types)}")
    windowed = [kind == _SLIDING for kind in types]
    if not any(windowed):
        return {}
    if all(windowed):
        return {"sliding_window": window}
    if windowed == [layer % 2 == 0 for layer in range(layers)]:
        return {"sliding_window": window, "windowed_layers": "alternate"}
    raise ValueError(f"layer_types must have {_SLIDING} in all layers, in none, or in every other one from the first")


def _mixtral_to_config(config: ModelConfig) -> dict[str, Any]:
    return _mistral_to_config(config) | {
        "num_local_experts": config.n_expert,
        "num_experts_per_tok": config.n_expert_active,
    }


def _qwen3_moe_to_config(config: ModelConfig) -> dict[str, Any]:
    return _to_config(config) | {
        "use_sliding_window": config.sliding_window is not None,
        "sliding_window": config.sliding_window,
        "moe_intermediate_size": config.mlp_width,
        "num_experts": config.n_expert,
        "num_experts_per_tok": config.n_expert_active,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }


def _qwen3_moe_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    used = optional_value(values, "use_sliding_window", False)
    return _llama_fields(values) | {"sliding_window": values.get("sliding_window") if used else None}


LLAMA = Architecture(
    model_type="llama",
    class_name="LlamaForCausalLM",
    title="Llama",
    settings={
        "position": "rope",
        "norm": "rmsnorm",
        "norm_placement": "pre",
        "mlp": "swiglu",
        "bias": False,
        "logit_softcap": 0.0,
    },
    keys={
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "n_kv_head": "num_key_value_heads",
        "head_dim": "head_dim",
        "n_embd": "hidden_size",
        "block_size": "max_position_embeddings",
        "dropout": "attention_dropout",
        "rope_base": "rope_theta",
        "norm_epsilon": "rms_norm_eps",
        "mlp_width": "intermediate_size",
    },
    optional_keys=("num_key_value_heads", "head_dim", "attention_dropout", "rope_theta"),
    other_fields=_llama_fields,
    required_values={
        "hidden_act": ("silu", None),
        "attention_bias": (False, None),
        "mlp_bias": (False, None),
        "quantization_config": (None,),
    },
    to_config=_to_config,
    tensors=_llama_tensors,
)
MISTRAL = replace(
    LLAMA,
    model_type="mistral",
    class_name="MistralForCausalLM",
    title="Mistral",
    keys={**LLAMA.keys, "sliding_window": "sliding_window"},
    to_config=_mistral_to_config,
)
QWEN3 = replace(
    LLAMA,
    model_type="qwen3",
    class_name="Qwen3ForCausalLM",
    title="Qwen3",
    settings={**LLAMA.settings, "qk_norm": True},
    other_fields=_qwen3_fields,
    to_config=_qwen3_to_config,
)
MIXTRAL = replace(
    MISTRAL,
    model_type="mixtral",
    class_name="MixtralForCausalLM",
    title="Mixtral",
    keys={**MISTRAL.keys, "n_expert": "num_local_experts", "n_expert_active": "num_experts_per_tok"},
    optional_keys=(*MISTRAL.optional_keys, "sliding_window"),
    to_config=_mixtral_to_config,
    tensors=_mixtral_tensors,
)
QWEN3_MOE = replace(
    QWEN3,
    model_type="qwen3_moe",
    class_name="Qwen3MoeForCausalLM",
    title="Qwen3-MoE",
    keys={
        **QWEN3.keys,
        "mlp_width": "moe_intermediate_size",
        "n_expert": "num_experts",
        "n_expert_active": "num_experts_per_tok",
    },
    other_spellings={"num_experts": "num_local_experts"},
    other_fields=_qwen3_moe_fields,
    required_values={
        **QWEN3.required_values,
        "norm_topk_prob": (True,),
        "decoder_sparse_step": (1, None),
        "mlp_only_layers": ([], None),
    },
    to_config=_qwen3_moe_to_config,
)
