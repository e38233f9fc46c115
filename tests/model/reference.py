"""GPT-2 written the obvious way, to hold the product against: whole matrices, no cache, no fused kernels.

Letters: B sequences, T tokens, C width, H heads, D head width, V vocabulary.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gptcli.config import ModelConfig
from gptcli.model.gpt import GPT

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}


def assert_close(actual: Tensor, expected: Tensor) -> None:
    """The closeness of logits that the contracts ask for: max|Δ| ≤ 1e-12·s in float64 and 1e-5·s in float32."""
    assert actual.shape == expected.shape
    scale = max(1.0, expected.abs().max().item())
    assert (actual - expected).abs().max().item() <= TOLERANCE[actual.dtype] * scale


def random_model(config: ModelConfig, dtype: torch.dtype = torch.float64, seed: int = 0) -> GPT:
    """A model with no zero in it: weights large enough to matter, biases and norms off their initial values."""
    torch.manual_seed(seed)
    model = GPT(config).to(dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            around = 1.0 if "ln_" in name and name.endswith("weight") else 0.0
            parameter.copy_(around + 0.15 * torch.randn(parameter.shape, dtype=torch.float64))
    return model.eval().requires_grad_(False)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """(B, T, C) → (B, T, C)."""
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight + bias


def gelu(x: Tensor) -> Tensor:
    """The tanh form of Hendrycks and Gimpel 2016, elementwise."""
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def attention_weights(q: Tensor, k: Tensor) -> Tensor:
    """(B, H, T, D) twice → (B, H, T, T): each row sums to 1 and sees nothing to its right."""
    T = q.shape[2]
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    return scores.masked_fill(future, float("-inf")).softmax(-1)


def reference_logits(model: GPT, ids: Tensor) -> Tensor:
    """Token ids (B, T) → logits (B, T, V), from the parameters alone."""
    weights = model.state_dict()
    B, T = ids.shape
    C, H = model.config.n_embd, model.config.n_head
    x = weights["wte.weight"][ids] + weights["wpe.weight"][:T]
    for layer in range(model.config.n_layer):
        own = {name.removeprefix(f"h.{layer}."): value for name, value in weights.items()}
        normed = layer_norm(x, own["ln_1.weight"], own["ln_1.bias"])
        qkv = normed @ own["attn.c_attn.weight"].T + own["attn.c_attn.bias"]
        q, k, v = (part.view(B, T, H, C // H).transpose(1, 2) for part in qkv.split(C, dim=-1))
        mixed = (attention_weights(q, k) @ v).transpose(1, 2).reshape(B, T, C)
        x = x + mixed @ own["attn.c_proj.weight"].T + own["attn.c_proj.bias"]
        normed = layer_norm(x, own["ln_2.weight"], own["ln_2.bias"])
        inner = gelu(normed @ own["mlp.c_fc.weight"].T + own["mlp.c_fc.bias"])
        x = x + inner @ own["mlp.c_proj.weight"].T + own["mlp.c_proj.bias"]
    return layer_norm(x, weights["ln_f.weight"], weights["ln_f.bias"]) @ weights["wte.weight"].T
