"""Weights by formula, the same on every machine, so that known logits need no stored model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gptcli.config import ModelConfig
from gptcli.model.gpt import GPT

SHAPE: dict[str, Any] = {"vocab_size": 23, "n_layer": 2, "n_head": 2, "n_embd": 8, "block_size": 16}
MODERN: dict[str, Any] = {"position": "rope", "norm": "rmsnorm", "mlp": "swiglu", "bias": False, "n_kv_head": 1}
CONFIGS = {
    "gpt2": ModelConfig(**SHAPE),
    "qwen3": ModelConfig(
        **SHAPE | MODERN, qk_norm=True, sliding_window=3, windowed_layers="alternate", rope_scaling=1.5
    ),
    "mixtral": ModelConfig(**SHAPE | MODERN, n_expert=3, tied=False, rope_base=100.0),
}
IDS = [[3, 14, 15, 9, 2, 6, 5, 3, 5, 8], [2, 7, 18, 2, 8, 18, 2, 8, 4, 5]]


def formula_model(name: str) -> GPT:
    """A float64 model without a zero in it: parameter number i is a sine of its own frequency, norms lie around 1."""
    model = GPT(CONFIGS[name]).double()
    model.fill_positions()
    with torch.no_grad():
        for number, (part, parameter) in enumerate(sorted(model.named_parameters())):
            around = 1.0 if parameter.dim() < 2 and part.endswith("weight") else 0.0  # norms
            parameter.copy_(around + _waves(parameter.numel(), number).view_as(parameter))
    return model.eval().requires_grad_(False)


def _waves(length: int, number: int) -> Tensor:
    return 0.4 * torch.sin(torch.arange(1, length + 1, dtype=torch.float64) * (1 + 0.37 * number))
