"""Presets, families and the fine-tuning recipe: plain data, the layers below the user's own settings."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from typing import cast

from gptcli.config.values import Values
from gptcli.errors import ConfigError


def _gpt2(n_layer: int, n_head: int, n_embd: int, lr: float) -> Values:
    return {
        "model": {"n_layer": n_layer, "n_head": n_head, "n_embd": n_embd, "block_size": 1024},
        "optim": {"lr": lr, "weight_decay": 0.1, "beta2": 0.95, "warmup_steps": 500, "min_lr_fraction": 0.1},
        "train": {"batch_size": 64, "max_steps": 20_000},
    }


FAMILIES: dict[str, Values] = {
    "gpt2": {"position": "learned", "norm": "layernorm", "mlp": "gelu", "bias": True, "qk_norm": False},
    "modern": {"position": "rope", "norm": "rmsnorm", "mlp": "swiglu", "bias": False, "qk_norm": True},
}
"""Architectures by name: GPT-2, and Qwen3, which is Llama with normalized queries and keys. docs/architectures.md has
formulas, sources and a comparison."""


PRESETS: dict[str, Values] = {
    "nano": {
        "model": {"n_layer": 3, "n_head": 3, "n_embd": 48, "block_size": 128},
        "optim": {"optimizer": "muon", "lr": 1e-2, "schedule": "linear", "warmup_steps": 20},
        "train": {"batch_size": 8, "max_steps": 450, "epochs": 12.0, "patience": 6},
    },
    "tiny": {
        "model": {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": 128},
        "optim": {"optimizer": "muon", "lr": 8e-3, "schedule": "linear", "warmup_steps": 20},
        "train": {"batch_size": 16, "max_steps": 1200, "epochs": 8.0, "patience": 6},
    },
    "mini": {
        "model": {"n_layer": 6, "n_head": 6, "n_embd": 192, "block_size": 256, "dropout": 0.1},
        "optim": {"optimizer": "muon", "lr": 4e-3, "schedule": "linear", "warmup_steps": 50},
        "train": {"batch_size": 16, "max_steps": 2500, "patience": 6},
    },
    "small": {
        "model": {"n_layer": 6, "n_head": 6, "n_embd": 384, "block_size": 256, "dropout": 0.2},
        "optim": {"optimizer": "muon", "lr": 2e-3, "schedule": "linear"},
        "train": {"batch_size": 64, "max_steps": 3000, "patience": 6},
    },
    "medium": {
        "model": {"n_layer": 8, "n_head": 8, "n_embd": 512, "block_size": 512, "dropout": 0.2},
        "optim": {"optimizer": "muon", "lr": 2e-3},
        "train": {"batch_size": 64, "max_steps": 6000, "patience": 6},
    },
    "gpt2": _gpt2(12, 12, 768, 6e-4),
    "gpt2-medium": _gpt2(24, 16, 1024, 3e-4),
    "gpt2-large": _gpt2(36, 20, 1280, 2.5e-4),
    "gpt2-xl": _gpt2(48, 25, 1600, 2e-4),
}
"""Model shape and training recipe by name; docs/log.md has the measurements behind the recipes. The budget ends with
the smaller of steps and epochs: without dropout, more passes over a small text only memorize it."""


def _gpt3(n_layer: int, n_embd: int, n_head: int, head_dim: int) -> Values:
    return {"n_layer": n_layer, "n_head": n_head, "n_embd": n_embd, "head_dim": head_dim, "block_size": 2048}


SHAPES: dict[str, Values] = {
    "gpt3-small": _gpt3(12, 768, 12, 64),
    "gpt3-medium": _gpt3(24, 1024, 16, 64),
    "gpt3-large": _gpt3(24, 1536, 16, 96),
    "gpt3-xl": _gpt3(24, 2048, 16, 128),
    "gpt3-2.7b": _gpt3(32, 2560, 32, 80),
    "gpt3-6.7b": _gpt3(32, 4096, 32, 128),
    "gpt3-13b": _gpt3(40, 5140, 40, 128),
    "gpt3-175b": _gpt3(96, 12288, 96, 128),
}
"""GPT-2 models in the sizes of GPT-3 (Brown et al. 2020, table 2.1), for `inspect` and `bench` alone: no recipe for one
machine trains them. Two rows of that table contradict themselves. Its 24 heads of 128 for XL give 1.5 billion
parameters; the 16 heads here give 1.3 billion. 13B is as printed, with heads that are together 5,120 wide in a model of
width 5,140. Every layer has full attention; GPT-3 alternates it with a sparse one."""

PRESET_ALIASES = {"gpt2-small": "gpt2"}
SETTINGS_OF_COST = ("model.", "train.activation_checkpointing")
"""Fields, and sections with a dot, that change what an untrained model costs: those that `inspect` takes."""
SETTINGS_OF_SPEED = ("optim.optimizer", "train.compile", "train.deterministic")
"""Further ones that change how fast it is: `bench` takes these too."""

FINE_TUNING_LR_SHARE = 0.5
"""AdamW's learning rate for fine-tuning as a share of its rate for training from scratch."""
LR_TIMES_ADAMW = {"muon": 2.0}
"""An optimizer's best learning rate as a multiple of AdamW's, where it differs."""
FINE_TUNING_BATCH_SIZE = 8


def preset(name: str) -> Values:
    """Values of the preset `name`; raises ConfigError, with the nearest name, for an unknown one."""
    values = PRESETS.get(PRESET_ALIASES.get(name, name))
    if name in SHAPES:
        raise ConfigError(f"'{name}' is a shape without a recipe, so it cannot be trained.", _one_of(PRESETS))
    if values is None:
        raise ConfigError(f"There is no preset called '{name}'.", nearest_name(name, PRESETS) or _one_of(PRESETS))
    return values


def family(name: str, n_head: object) -> Values:
    """The config layer of the family `name` for a model with `n_head` heads; raises ConfigError for an unknown name.

    In `modern`, two query heads share a key and value head if `n_head` is even.
    """
    if name not in FAMILIES:
        raise ConfigError(f"There is no family called '{name}'.", nearest_name(name, FAMILIES) or _one_of(FAMILIES))
    shares = name == "modern" and isinstance(n_head, int) and n_head % 2 == 0
    return {"model": FAMILIES[name] | {"n_kv_head": cast(int, n_head) // 2 if shares else None}}


def default_family(preset_name: str) -> str:
    """`gpt2` for the presets named after it, else `modern`, which learns more in the same time (docs/log.md)."""
    return "gpt2" if preset_name.startswith("gpt2") else "modern"


def preset_vocabulary(preset_name: str) -> int:
    """The vocabulary size for a preset without a text: GPT-2's, or 65, the characters of tiny Shakespeare."""
    return 50_257 if default_family(preset_name) == "gpt2" else 65


def fine_tuning(preset_name: str) -> Values:
    """The config layer over a preset for fine-tuning: a lower learning rate, few passes, early stopping.

    The rate is a share of the preset's, which already falls with model size. AdamW's best rate grows with the square
    root of the batch size (Malladi et al. 2022, arXiv:2205.10287), so the smaller batch lowers it again: 1.1e-4 for
    GPT-2 small. docs/log.md has the figures.
    """
    values = preset(preset_name)
    smaller = math.sqrt(FINE_TUNING_BATCH_SIZE / values["train"]["batch_size"])
    optim = values["optim"]
    from_scratch = optim["lr"] / LR_TIMES_ADAMW.get(optim.get("optimizer", ""), 1.0)
    rate = float(f"{from_scratch * FINE_TUNING_LR_SHARE * smaller:.2g}")
    budget = {"max_steps": 2000, "epochs": 10.0, "patience": 6}
    return {
        "optim": {"optimizer": "adamw", "lr": rate, "schedule": "linear"},
        "train": {"batch_size": FINE_TUNING_BATCH_SIZE, **budget},
    }


def nearest_name(name: str, known: Iterable[str]) -> str:
    """A question that suggests the most similar known name; "" if none is similar."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"Did you mean '{matches[0]}'?" if matches else ""


def _one_of(names: Iterable[str]) -> str:
    return "Choose one of: " + ", ".join(names) + "."
