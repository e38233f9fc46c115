"""Model configs that change one field each, and the families that other programs know."""

from __future__ import annotations

from typing import Any

from gptcli.config import ModelConfig

SHAPE = {"vocab_size": 23, "n_layer": 3, "n_head": 4, "n_embd": 16, "block_size": 12}
MODERN = {"position": "rope", "norm": "rmsnorm", "mlp": "swiglu", "bias": False, "n_kv_head": 2}

KNOBS: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "sinusoidal": {"position": "sinusoidal"},
    "rope": {"position": "rope"},
    "no positions": {"position": "none"},
    "rope_scaling": {"position": "rope", "rope_base": 500.0, "rope_scaling": 2.5},
    "rmsnorm": {"norm": "rmsnorm", "norm_epsilon": 1e-2},
    "post-norm": {"norm_placement": "post", "norm_epsilon": 1e-2},
    "relu": {"mlp": "relu"},
    "relu2": {"mlp": "relu2"},
    "swiglu": {"mlp": "swiglu"},
    "mlp_width": {"mlp": "swiglu", "mlp_width": 21},
    "grouped": {"n_kv_head": 2},
    "one kv head": {"n_kv_head": 1},
    "narrow heads": {"head_dim": 3},
    "qk_norm": {"qk_norm": True},
    "window": {"sliding_window": 5},
    "alternate windows": {"sliding_window": 3, "windowed_layers": "alternate"},
    "window of 1": {"sliding_window": 1},
    "no bias": {"bias": False},
    "untied": {"tied": False},
    "softcap": {"logit_softcap": 2.0},
    "experts": {"n_expert": 4},
    "all experts": {"n_expert": 3, "n_expert_active": 3, "mlp": "swiglu"},
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": MODERN,
    "llama untied": MODERN | {"tied": False, "rope_scaling": 2.0, "norm_epsilon": 1e-6},
    "llama narrow heads": MODERN | {"head_dim": 2},
    "mistral": MODERN | {"sliding_window": 5},
    "qwen3": MODERN | {"qk_norm": True},
    "qwen3 wide heads": MODERN | {"qk_norm": True, "head_dim": 24},
    "qwen3 windows": MODERN | {"qk_norm": True, "sliding_window": 5, "windowed_layers": "alternate"},
    "mixtral": MODERN | {"n_expert": 4},
    "mixtral windows": MODERN | {"n_expert": 3, "n_expert_active": 1, "sliding_window": 5},
    "qwen3_moe": MODERN | {"qk_norm": True, "n_expert": 4, "n_expert_active": 3, "mlp_width": 24},
    "qwen3_moe windows": MODERN | {"qk_norm": True, "n_expert": 4, "sliding_window": 5, "tied": False},
}
"""Architectures that transformers knows besides GPT-2."""
STRANGE: dict[str, dict[str, Any]] = {
    "strange": {
        "position": "sinusoidal",
        "norm_placement": "post",
        "mlp": "relu2",
        "logit_softcap": 5.0,
        "tied": False,
        "bias": False,
        "n_kv_head": 1,
        "sliding_window": 4,
        "n_expert": 2,
        "n_expert_active": 1,
    }
}
"""A combination that no other program knows."""
VARIANTS = KNOBS | FAMILIES | STRANGE


def variant(name: str, **changes: Any) -> ModelConfig:
    """The config of a variant, small; `changes` are stronger."""
    return ModelConfig.model_validate(SHAPE | VARIANTS[name] | changes)
