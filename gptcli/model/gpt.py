"""GPT-2 as OpenAI published it (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners").

A decoder-only transformer: learned positions, LayerNorm before each sub-layer, GELU in its tanh form, an MLP four times
the width, biases everywhere, and an output head that shares the token embedding's weights. Module and parameter names
are those of the published weights.

Letters on the tensor lines: B sequences, T tokens, C = n_embd width, H heads, D = C / H head width, V vocabulary,
S = cached + new tokens.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from gptcli.config import ModelConfig
from gptcli.model.cache import KVCache

LAYER_NORM_EPSILON = 1e-5
INITIAL_DEVIATION = 0.02


class Attention(nn.Module):
    """Causal multi-head self-attention (Vaswani et al. 2017)."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.n_head = config.n_head
        self.dropout = config.dropout
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)

    def forward(self, x: Tensor, cache: KVCache | None) -> Tensor:
        B, T, C = x.shape
        qkv = self.c_attn(x).view(B, T, 3, self.n_head, C // self.n_head)  # (B, T, 3, H, D)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # 3 of (B, H, T, D)
        if cache is not None:
            k, v = cache.append(self.layer, k, v)  # 2 of (B, H, S, D)
        y = attend(q, k, v, self.dropout if self.training else 0.0)  # (B, H, T, D)
        y = y.transpose(1, 2).reshape(B, T, C)  # (B, T, C)
        return F.dropout(self.c_proj(y), self.dropout, self.training)


def attend(q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
    """Softmax(q kᵀ / √D) v: q (B, H, T, D), k and v (B, H, S, D) → (B, H, T, D). Query t sees keys up to S - T + t."""
    T, S = q.shape[2], k.shape[2]
    if T == S or T == 1:  # a whole sequence, or one new token that sees everything
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=T > 1)
    mask = torch.ones(T, S, dtype=torch.bool, device=q.device).tril(S - T)  # (T, S)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)


class MLP(nn.Module):
    """Two linear layers with a GELU between them, four times as wide inside."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.c_fc(x), approximate="tanh")  # (B, T, 4C)
        return F.dropout(self.c_proj(x), self.dropout, self.training)  # (B, T, C)


class Block(nn.Module):
    """x + attention(norm(x)), then x + MLP(norm(x))."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd, eps=LAYER_NORM_EPSILON)
        self.attn = Attention(config, layer)
        self.ln_2 = nn.LayerNorm(config.n_embd, eps=LAYER_NORM_EPSILON)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, cache: KVCache | None) -> Tensor:
        x = x + self.attn(self.ln_1(x), cache)  # (B, T, C)
        out: Tensor = x + self.mlp(self.ln_2(x))  # (B, T, C)
        return out


class GPT(nn.Module):
    """The whole model: token ids in, next-token logits out."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.h = nn.ModuleList(Block(config, layer) for layer in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd, eps=LAYER_NORM_EPSILON)
        self.initialize()

    def initialize(self) -> None:
        """GPT-2's initialisation, from torch's default random generator.

        Weights N(0, 0.02²), biases 0; the two projections into the residual stream of each block are scaled by
        1/√(2·layers), since that many of them add up there (paper, section 2.3).
        """
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:
                nn.init.constant_(parameter, 1.0 if ".ln_" in f".{name}" and name.endswith("weight") else 0.0)
                continue
            residual = name.endswith("c_proj.weight")
            std = INITIAL_DEVIATION / math.sqrt(2 * self.config.n_layer) if residual else INITIAL_DEVIATION
            nn.init.normal_(parameter, 0.0, std)

    def hidden(self, ids: Tensor, cache: KVCache | None = None) -> Tensor:
        """Token ids (B, T) → final hidden states (B, T, C).

        With a cache the ids continue the sequence that it holds, and are added to it. Cached and new tokens together
        must fit into the context (`block_size`).
        """
        T, past = ids.shape[1], cache.length if cache is not None else 0
        assert past + T <= self.config.block_size, "more tokens than the context holds"
        x = self.wte(ids) + self.wpe.weight[past : past + T]  # (B, T, C)
        x = F.dropout(x, self.config.dropout, self.training)
        for block in self.h:
            x = block(x, cache)  # (B, T, C)
        if cache is not None:
            cache.advance(T)
        normed: Tensor = self.ln_f(x)  # (B, T, C)
        return normed

    def head(self, hidden: Tensor) -> Tensor:
        """Hidden states (..., C) → logits (..., V), by the token embedding's own weights."""
        return F.linear(hidden, self.wte.weight)

    def forward(self, ids: Tensor, cache: KVCache | None = None) -> Tensor:
        """Token ids (B, T) → logits (B, T, V)."""
        return self.head(self.hidden(ids, cache))


class _NoInitialisation(TorchFunctionMode):
    """Leaves weights as they are where torch's initialisers would fill them."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        if getattr(func, "__module__", None) == nn.init.__name__:  # a slot wrapper has none
            return (kwargs or {}).get("tensor", args[0] if args else None)
        return func(*args, **(kwargs or {}))


def unfilled_gpt(config: ModelConfig) -> GPT:
    """A model with names and shapes but no values and no memory: its parameters are on the meta device.

    Nothing is drawn: on that device torch draws through its compiler, whose import takes two seconds and 80 MB.
    """
    with torch.device("meta"), _NoInitialisation():
        return GPT(config)


def parameter_count(config: ModelConfig) -> int:
    """Parameters of a model, the shared embedding counted once; nothing is allocated."""
    return sum(parameter.numel() for parameter in unfilled_gpt(config).parameters())
