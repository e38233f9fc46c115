"""The model written the obvious way, to hold the product against: whole matrices, no cache, no fused kernels.

Letters: B sequences, T tokens, C width, H heads, G heads of keys and values, D head width, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

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
            around = 1.0 if parameter.dim() < 2 and name.endswith("weight") else 0.0  # norms
            parameter.copy_(around + 0.15 * torch.randn(parameter.shape, dtype=torch.float64))
    model.fill_positions()  # not from the tables that were rounded to another format
    return model.eval().requires_grad_(False)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float = 1e-5) -> Tensor:
    """(B, T, C) → (B, T, C)."""
    centred = x - x.mean(-1, keepdim=True)
    normed = centred / (centred.square().mean(-1, keepdim=True) + epsilon).sqrt() * weight
    return normed if bias is None else normed + bias


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """(..., C) → (..., C)."""
    return x / (x.square().mean(-1, keepdim=True) + epsilon).sqrt() * weight


def gelu(x: Tensor) -> Tensor:
    """The tanh form of Hendrycks and Gimpel 2016, elementwise."""
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def silu(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-x))


def sinusoid(position: int, element: int, width: int) -> float:
    """Vaswani et al. 2017, section 3.5, at a root mean square of 0.02."""
    angle = position / 10_000 ** (element // 2 * 2 / width)
    return 0.02 * math.sqrt(2) * (math.cos(angle) if element % 2 else math.sin(angle))


def turned(x: Tensor, config: ModelConfig) -> Tensor:
    """Queries or keys (B, H, T, D) rotated by their positions, as complex numbers."""
    D = x.shape[-1]
    points = torch.complex(x[..., : D // 2], x[..., D // 2 :])
    for t in range(x.shape[2]):
        angles = [t / config.rope_scaling * config.rope_base ** (-2 * i / D) for i in range(D // 2)]
        turns = torch.polar(torch.ones(D // 2, dtype=x.dtype), torch.tensor(angles, dtype=torch.float64).to(x.dtype))
        points[:, :, t] = points[:, :, t] * turns
    return torch.cat((points.real, points.imag), -1)


def attention_weights(q: Tensor, k: Tensor, window: int | None = None) -> Tensor:
    """(B, H, T, D) twice → (B, H, T, T): each row sums to 1, sees nothing to its right and `window` tokens at most."""
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    distance = torch.arange(q.shape[2])[:, None] - torch.arange(q.shape[2])  # (T, T)
    hidden = (distance < 0) | (distance >= (window or q.shape[2]))
    return scores.masked_fill(hidden, float("-inf")).softmax(-1)


class Layer:
    """One block's weights, and what they compute."""

    def __init__(self, config: ModelConfig, weights: Mapping[str, Tensor], number: int) -> None:
        self.config, self.number = config, number
        self.own = {name.removeprefix(f"h.{number}."): value for name, value in weights.items()}

    def linear(self, name: str, x: Tensor) -> Tensor:
        product = x @ self.own[f"{name}.weight"].T
        return product + self.own[f"{name}.bias"] if self.config.bias else product

    def attention(self, x: Tensor) -> Tensor:
        """(B, T, C) → (B, T, C)."""
        config = self.config
        B, T, _ = x.shape
        H, G, D = config.n_head, config.n_kv_head, config.head_dim
        qkv = self.linear("attn.c_attn", x).view(B, T, H + 2 * G, D).transpose(1, 2)
        q, k, v = qkv[:, :H], qkv[:, H : H + G], qkv[:, H + G :]
        if config.qk_norm:
            q = rms_norm(q, self.own["attn.q_norm.weight"], config.norm_epsilon)
            k = rms_norm(k, self.own["attn.k_norm.weight"], config.norm_epsilon)
        if config.position == "rope":
            q, k = turned(q, config), turned(k, config)
        k, v = (part.repeat_interleave(H // G, dim=1) for part in (k, v))
        everywhere = config.windowed_layers == "all" or self.number % 2 == 0
        weights = attention_weights(q, k, config.sliding_window if everywhere else None)
        return self.linear("attn.c_proj", (weights @ v).transpose(1, 2).reshape(B, T, H * D))

    def mlp(self, x: Tensor, name: str = "mlp") -> Tensor:
        """(..., C) → (..., C)."""
        inside = self.linear(f"{name}.c_fc", x)
        if self.config.mlp == "gelu":
            inside = gelu(inside)
        elif self.config.mlp == "relu":
            inside = inside.clamp(min=0)
        elif self.config.mlp == "relu2":
            inside = inside.clamp(min=0) ** 2
        else:
            half = inside.shape[-1] // 2
            inside = silu(inside[..., :half]) * inside[..., half:]
        return self.linear(f"{name}.c_proj", inside)

    def think(self, x: Tensor) -> Tensor:
        """The MLP, or for each token by itself the best experts, weighted by their probabilities."""
        if not self.config.n_expert:
            return self.mlp(x)
        out = torch.zeros_like(x)
        for b in range(x.shape[0]):
            for t in range(x.shape[1]):
                probabilities = (self.own["mlp.router.weight"] @ x[b, t]).softmax(0)  # (E)
                best = probabilities.argsort(descending=True)[: self.config.n_expert_active]
                for expert in best.tolist():
                    share = probabilities[expert] / probabilities[best].sum()
                    out[b, t] += share * self.mlp(x[b, t], f"mlp.experts.{expert}")
        return out


def normed(config: ModelConfig, weights: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    """The norm `name` of (B, T, C)."""
    if config.norm == "rmsnorm":
        return rms_norm(x, weights[f"{name}.weight"], config.norm_epsilon)
    return layer_norm(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"), config.norm_epsilon)


def reference_logits(model: GPT, ids: Tensor) -> Tensor:
    """Token ids (B, T) → logits (B, T, V), from the parameters alone."""
    weights, config = dict(model.named_parameters()), model.config
    x = weights["wte.weight"][ids]
    if config.position == "learned":
        x = x + weights["wpe.weight"][: ids.shape[1]]
    elif config.position == "sinusoidal":
        table = [[sinusoid(t, i, config.n_embd) for i in range(config.n_embd)] for t in range(ids.shape[1])]
        x = x + torch.tensor(table, dtype=torch.float64).to(x.dtype)
    for number in range(config.n_layer):
        layer = Layer(config, weights, number)
        if config.norm_placement == "pre":
            x = x + layer.attention(normed(config, layer.own, "ln_1", x))
            x = x + layer.think(normed(config, layer.own, "ln_2", x))
        else:
            x = normed(config, layer.own, "ln_1", x + layer.attention(x))
            x = normed(config, layer.own, "ln_2", x + layer.think(x))
    if config.norm_placement == "pre":
        x = normed(config, weights, "ln_f", x)
    logits = x @ weights["wte.weight" if config.tied else "lm_head.weight"].T
    cap = config.logit_softcap
    return cap * torch.tanh(logits / cap) if cap else logits
