"""Llama and its relatives in transformers: Qwen3, Mistral, Mixtral, Qwen3-MoE.

They share names and layout. Queries, keys and values are three matrices in transformers and one here, the gate and the
up projection of SwiGLU two and one. Experts are numbered.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any

from gptcli.config import ModelConfig
from gptcli.interop.architecture import Architecture, Field, HfTensor, as_json, optional_value, wrong_value

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


def _rope_parameters(config: ModelConfig) -> dict[str, Any]:
    scaling = {"rope_type": "linear", "factor": config.rope_scaling} if config.rope_scaling != 1 else {}
    return {"rope_type": "default", "rope_theta": config.rope_base} | scaling


def _layer_types(config: ModelConfig) -> list[str]:
    return [_SLIDING if config.window_of(layer) else _FULL for layer in range(config.n_layer)]


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
    config={
        "hidden_size": Field("n_embd"),
        "intermediate_size": Field("mlp_width"),
        "num_hidden_layers": Field("n_layer"),
        "num_attention_heads": Field("n_head"),
        "num_key_value_heads": Field("n_kv_head", optional=True),
        "head_dim": Field("head_dim", optional=True),
        "hidden_act": "silu",
        "max_position_embeddings": Field("block_size"),
        "rms_norm_eps": Field("norm_epsilon"),
        "attention_dropout": Field("dropout", optional=True),
        "attention_bias": False,
        "rope_theta": Field("rope_base", optional=True),  # for transformers below 5, and other tools
        "rope_parameters": _rope_parameters,
    },
    other_fields=_llama_fields,
    required_values={
        "hidden_act": ("silu", None),
        "attention_bias": (False, None),
        "mlp_bias": (False, None),
        "quantization_config": (None,),
    },
    tensors=partial(_tensors, mlp="mlp", gate="gate_proj", up="up_proj", down="down_proj"),
)
MISTRAL = replace(
    LLAMA,
    model_type="mistral",
    class_name="MistralForCausalLM",
    title="Mistral",
    config={**LLAMA.config, "sliding_window": Field("sliding_window")},
)
MIXTRAL = replace(
    LLAMA,
    model_type="mixtral",
    class_name="MixtralForCausalLM",
    title="Mixtral",
    config={
        **LLAMA.config,
        "sliding_window": Field("sliding_window", optional=True),
        "num_local_experts": Field("n_expert"),
        "num_experts_per_tok": Field("n_expert_active"),
    },
    tensors=partial(_tensors, mlp="block_sparse_moe", gate="w1", up="w3", down="w2"),
)
_WINDOW = {
    "use_sliding_window": lambda config: config.sliding_window is not None,
    "sliding_window": attrgetter("sliding_window"),
}
QWEN3 = replace(
    LLAMA,
    model_type="qwen3",
    class_name="Qwen3ForCausalLM",
    title="Qwen3",
    settings={**LLAMA.settings, "qk_norm": True},
    config={**LLAMA.config, **_WINDOW, "max_window_layers": 0, "layer_types": _layer_types},
    other_fields=_qwen3_fields,
)
QWEN3_MOE = replace(
    LLAMA,
    model_type="qwen3_moe",
    class_name="Qwen3MoeForCausalLM",
    title="Qwen3-MoE",
    settings=QWEN3.settings,
    config={
        **LLAMA.config,
        "intermediate_size": attrgetter("mlp_width"),
        **_WINDOW,
        "moe_intermediate_size": Field("mlp_width"),
        "num_experts": Field("n_expert", other_key="num_local_experts"),
        "num_experts_per_tok": Field("n_expert_active"),
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    },
    other_fields=_qwen3_moe_fields,
    required_values={
        **LLAMA.required_values,
        "norm_topk_prob": (True,),
        "decoder_sparse_step": (1, None),
        "mlp_only_layers": ([], None),
    },
)
