"""Llama and its relatives as transformers has them: Qwen3, Mistral, Mixtral, Qwen3-MoE.

They share names and layout: queries, keys and values are three matrices, and so are the gate and the values of SwiGLU,
where ours are one matrix each, for one product instead of three. Experts are numbered matrices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gptcli.config import ModelConfig
from gptcli.interop.architecture import Architecture, Part

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

_REQUIRED: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", None),
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "quantization_config": (None,),
}


def _parts(name: str, config: ModelConfig, *, mlp: str = "mlp", gate: str, up: str, down: str) -> list[Part]:
    """`mlp` is the module with the experts, if there are any; `gate`, `up` and `down` are the matrices of one MLP."""
    match = _BLOCK.fullmatch(name)
    if match is None:
        return [Part(_OUTSIDE.get(name, name))]
    block, module = f"model.layers.{match[1]}.", match[2]
    if module == "attn.c_attn":
        rows = zip("qkv", config.qkv_rows, strict=True)
        return [Part(f"{block}self_attn.{letter}_proj.weight", count) for letter, count in rows]
    if module == "mlp.router":
        return [Part(f"{block}{mlp}.gate.weight")]
    if expert := _EXPERT.fullmatch(module):
        place = block + (f"{mlp}.experts.{expert[1]}." if expert[1] else "mlp.")
        if expert[2] == "c_proj":
            return [Part(f"{place}{down}.weight")]
        return [Part(f"{place}{x}.weight", config.mlp_width) for x in (gate, up)]
    return [Part(f"{block}{_IN_BLOCK[module]}.weight")]


def _llama_parts(name: str, config: ModelConfig) -> list[Part]:
    return _parts(name, config, gate="gate_proj", up="up_proj", down="down_proj")


def _mixtral_parts(name: str, config: ModelConfig) -> list[Part]:
    return _parts(name, config, mlp="block_sparse_moe", gate="w1", up="w3", down="w2")


def _to_values(config: ModelConfig) -> dict[str, Any]:
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


def _from_values(values: Mapping[str, Any]) -> dict[str, Any]:
    rope = values.get("rope_parameters") or values.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ("default", "linear"):
        raise ValueError(f"rope_type is {kind!r}, where 'default' and 'linear' are known")
    heads, width = values["num_attention_heads"], values["hidden_size"]
    head_dim = values.get("head_dim")
    return {
        "n_layer": values["num_hidden_layers"],
        "n_head": heads,
        "n_kv_head": values.get("num_key_value_heads") or heads,
        "head_dim": None if head_dim == width / heads else head_dim,
        "n_embd": width,
        "block_size": values["max_position_embeddings"],
        "dropout": values.get("attention_dropout") or 0.0,
        "position": "rope",
        "rope_base": rope.get("rope_theta") or values.get("rope_theta") or 10_000.0,
        "rope_scaling": rope.get("factor", 1.0) if kind == "linear" else 1.0,
        "norm": "rmsnorm",
        "norm_epsilon": values["rms_norm_eps"],
        "mlp": "swiglu",
        "mlp_width": values["intermediate_size"],
        "bias": False,
    }


def _mistral_to_values(config: ModelConfig) -> dict[str, Any]:
    return _to_values(config) | {"sliding_window": config.sliding_window}


def _mistral_from_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return _from_values(values) | {"sliding_window": values["sliding_window"]}


def _qwen3_to_values(config: ModelConfig) -> dict[str, Any]:
    windows = [config.window_of(layer) for layer in range(config.n_layer)]
    return _to_values(config) | {
        "use_sliding_window": config.sliding_window is not None,
        "sliding_window": config.sliding_window,
        "max_window_layers": 0,
        "layer_types": ["sliding_attention" if window else "full_attention" for window in windows],
    }


def _qwen3_from_values(values: Mapping[str, Any]) -> dict[str, Any]:
    layers, sliding = values["num_hidden_layers"], bool(values.get("use_sliding_window"))
    window = values.get("sliding_window") if sliding else None
    first = values.get("max_window_layers", 28)  # their default
    types = values.get("layer_types") or [
        "sliding_attention" if window and layer >= first else "full_attention" for layer in range(layers)
    ]
    windowed = [kind == "sliding_attention" for kind in types]
    found = _from_values(values) | {"qk_norm": True}
    if not any(windowed):
        return found
    if all(windowed):
        return found | {"sliding_window": window}
    if windowed == [layer % 2 == 0 for layer in range(layers)]:
        return found | {"sliding_window": window, "windowed_layers": "alternate"}
    raise ValueError("layer_types mixes sliding and full attention otherwise than every second layer")


def _mixtral_to_values(config: ModelConfig) -> dict[str, Any]:
    return _mistral_to_values(config) | {
        "num_local_experts": config.n_expert,
        "num_experts_per_tok": config.n_expert_active,
    }


def _mixtral_from_values(values: Mapping[str, Any]) -> dict[str, Any]:
    experts = {"n_expert": values["num_local_experts"], "n_expert_active": values["num_experts_per_tok"]}
    return _from_values(values) | {"sliding_window": values.get("sliding_window")} | experts


def _qwen3_moe_to_values(config: ModelConfig) -> dict[str, Any]:
    return _to_values(config) | {
        "use_sliding_window": config.sliding_window is not None,
        "sliding_window": config.sliding_window,
        "moe_intermediate_size": config.mlp_width,
        "num_experts": config.n_expert,
        "num_experts_per_tok": config.n_expert_active,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }


def _qwen3_moe_from_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return _from_values(values) | {
        "qk_norm": True,
        "sliding_window": values.get("sliding_window") if values.get("use_sliding_window") else None,
        "mlp_width": values["moe_intermediate_size"],
        "n_expert": values["num_experts"] if "num_experts" in values else values["num_local_experts"],  # newer spelling
        "n_expert_active": values["num_experts_per_tok"],
    }


LLAMA = Architecture(
    model_type="llama",
    class_name="LlamaForCausalLM",
    title="Llama",
    parts=_llama_parts,
    to_values=_to_values,
    from_values=_from_values,
    required=_REQUIRED,
)
MISTRAL = replace(
    LLAMA,
    model_type="mistral",
    class_name="MistralForCausalLM",
    title="Mistral",
    to_values=_mistral_to_values,
    from_values=_mistral_from_values,
)
QWEN3 = replace(
    LLAMA,
    model_type="qwen3",
    class_name="Qwen3ForCausalLM",
    title="Qwen3",
    to_values=_qwen3_to_values,
    from_values=_qwen3_from_values,
)
MIXTRAL = replace(
    LLAMA,
    model_type="mixtral",
    class_name="MixtralForCausalLM",
    title="Mixtral",
    parts=_mixtral_parts,
    to_values=_mixtral_to_values,
    from_values=_mixtral_from_values,
)
QWEN3_MOE = replace(
    LLAMA,
    model_type="qwen3_moe",
    class_name="Qwen3MoeForCausalLM",
    title="Qwen3-MoE",
    to_values=_qwen3_moe_to_values,
    from_values=_qwen3_moe_from_values,
    required=_REQUIRED | {"norm_topk_prob": (True,), "decoder_sparse_step": (1, None), "mlp_only_layers": ([], None)},
)
