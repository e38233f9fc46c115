"""The model: GPT-2 as OpenAI published it, and the variants of its successors.

A decoder-only transformer. With every field of `ModelConfig` at its default it is GPT-2 (Radford et al. 2019, "Language
Models are Unsupervised Multitask Learners"): learned positions, LayerNorm before each sub-layer, GELU in its tanh form,
an MLP four times the width, biases everywhere, and an output head that shares the token embedding's weights. Module and
parameter names are those of the published weights. docs/architectures.md has formula, source and figures of each field.

Letters on the tensor lines: B sequences, T tokens, C = n_embd width, H heads, G key and value heads, D head
width, W width inside the MLP, V vocabulary, S = cached + new tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

from gptcli.config import ModelConfig
from gptcli.model.attention import attend
from gptcli.model.cache import KVCache
from gptcli.model.experts import Experts, Routing
from gptcli.model.loss import next_token_loss, softcapped
from gptcli.model.nonlinear import nonlinear
from gptcli.model.position import rotate, rotations, sinusoids

INITIAL_DEVIATION = 0.02


class Attention(nn.Module):
    """Causal multi-head self-attention (Vaswani et al. 2017).

    With fewer key and value heads than query heads, neighboring query heads share one (Ainslie et al. 2023, "GQA").
    Queries and keys may be normalized (Henry et al. 2020, "QKNorm") and rotated by their position.
    """

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.n_head, self.n_kv_head, self.head_dim = config.n_head, config.n_kv_head, config.head_dim
        self.window = config.window_of(layer)
        self.dropout = config.dropout
        self.c_attn = nn.Linear(config.n_embd, sum(config.qkv_rows), bias=config.bias)
        self.c_proj = nn.Linear(config.n_head * config.head_dim, config.n_embd, bias=config.bias)
        self.q_norm = RMSNorm(config.head_dim, config.norm_epsilon) if config.qk_norm else None
        self.k_norm = RMSNorm(config.head_dim, config.norm_epsilon) if config.qk_norm else None

    def forward(self, x: Tensor, rotation: Tensor | None, cache: KVCache | None) -> Tensor:
        B, T, _ = x.shape
        q, k, v = self.heads(x, rotation)  # (B, H, T, D), 2 of (B, G, T, D)
        mask = None
        if cache is not None:
            k, v, mask = cache.append(self.layer, k, v)  # 2 of (B, G, S, D), (1, S)
        y = attend(q, k, v, self.dropout if self.training else 0.0, self.window, mask)  # (B, H, T, D)
        y = y.transpose(1, 2).reshape(B, T, self.n_head * self.head_dim)  # (B, T, H·D)
        y = self.c_proj(y)  # (B, T, C)
        return F.dropout(y, self.dropout) if self.training and self.dropout else y

    def heads(self, x: Tensor, rotation: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Normed input (B, T, C) → queries (B, H, T, D), keys and values (B, G, T, D)."""
        B, T, _ = x.shape
        H, G, D = self.n_head, self.n_kv_head, self.head_dim
        qkv = self.c_attn(x).view(B, T, H + 2 * G, D)  # (B, T, H + 2G, D)
        q, k, v = qkv.split_with_sizes((H, G, G), dim=2)  # (B, T, H, D), 2 of (B, T, G, D)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


class RMSNorm(nn.Module):
    """x divided by its root mean square, times a weight (Zhang & Sennrich 2019)."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.epsilon)


class MLP(nn.Module):
    """Two linear layers with a nonlinearity between them.

    GELU as in GPT-2; ReLU as in the first transformer (Vaswani et al. 2017), or its square (So et al. 2021, "Primer");
    or SwiGLU, in which one half of the inside gates the other (Shazeer 2020, "GLU Variants Improve Transformer").
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.kind, self.dropout = config.mlp, config.dropout
        self.c_fc = nn.Linear(config.n_embd, config.mlp_rows, bias=config.bias)
        self.c_proj = nn.Linear(config.mlp_width, config.n_embd, bias=config.bias)

    def forward(self, x: Tensor, routing: Routing | None = None) -> Tensor:
        """(..., C) → (..., C). `routing` is unused: `Experts` has the same signature."""
        x = self.c_fc(x)  # (..., W), swiglu (..., 2W)
        x = nonlinear(x, self.kind)  # (..., W)
        x = self.c_proj(x)  # (..., C)
        return F.dropout(x, self.dropout) if self.training and self.dropout else x


class Block(nn.Module):
    """x + attention(norm(x)), then x + MLP(norm(x)); with post-norm norm(x + attention(x)), then norm(x + MLP(x))."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.pre = config.norm_placement == "pre"
        self.ln_1 = norm(config)
        self.attn = Attention(config, layer)
        self.ln_2 = norm(config)
        self.mlp = Experts(config, [MLP(config) for _ in range(config.n_expert)]) if config.n_expert else MLP(config)

    def forward(self, x: Tensor, rotation: Tensor | None, cache: KVCache | None, routing: Routing | None) -> Tensor:
        if self.pre:
            x = x + self.attn(self.ln_1(x), rotation, cache)  # (B, T, C)
            x = x + self.mlp(self.ln_2(x), routing)  # (B, T, C)
        else:
            x = self.ln_1(x + self.attn(x, rotation, cache))  # (B, T, C)
            x = self.ln_2(x + self.mlp(x, routing))  # (B, T, C)
        return x


def norm(config: ModelConfig) -> nn.Module:
    """The model's kind of norm over its width: (..., C) → (..., C)."""
    if config.norm == "rmsnorm":
        return RMSNorm(config.n_embd, config.norm_epsilon)
    return nn.LayerNorm(config.n_embd, eps=config.norm_epsilon, bias=config.bias)


class GPT(nn.Module):
    """The whole model: token ids in, next-token logits out."""

    sinusoids: Tensor | None  # (block_size, C)
    rotations: Tensor | None  # (2, block_size, 1, D)

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        if config.position == "learned":
            self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.h = nn.ModuleList(Block(config, layer) for layer in range(config.n_layer))
        if config.norm_placement == "pre":
            self.ln_f = norm(config)
        if not config.tied:
            self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.fill_positions()
        self.initialize()

    def fill_positions(self) -> None:
        """Compute the tables of positions that are not learned, for the context length of the config."""
        weight = self.wte.weight
        position = None if weight.is_meta else self.config.position  # arithmetic on meta imports torch's compiler
        sines = sinusoids(self.config, INITIAL_DEVIATION) if position == "sinusoidal" else None
        angles = rotations(self.config) if position == "rope" else None
        self.register_buffer("sinusoids", sines if sines is None else sines.to(weight.dtype), persistent=False)
        self.register_buffer("rotations", angles if angles is None else angles.to(weight.dtype), persistent=False)
        self.to(weight.device)

    def initialize(self) -> None:
        """GPT-2's initialization, from torch's default random generator.

        Weights N(0, 0.02²), biases 0; the two projections into the residual stream of each block are scaled by
        1/√(2·layers), the number of projections that add up there (paper, section 2.3).
        """
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:  # biases, and the weights of norms
                nn.init.constant_(parameter, 0.0 if name.endswith("bias") else 1.0)
                continue
            residual = name.endswith("c_proj.weight")
            std = INITIAL_DEVIATION / math.sqrt(2 * self.config.n_layer) if residual else INITIAL_DEVIATION
            nn.init.normal_(parameter, 0.0, std)

    def hidden(
        self,
        ids: Tensor,
        cache: KVCache | None = None,
        routing: Routing | None = None,
        *,
        activation_checkpointing: bool = False,
    ) -> Tensor:
        """Token ids (B, T) → final hidden states (B, T, C).

        With a cache, the ids continue the cached sequence and are appended to it. Cached and new tokens together must
        fit into the context (`block_size`). Routers add their decisions to `routing`. With `activation_checkpointing`,
        the backward pass recomputes each block's activations (Chen et al. 2016, "Training Deep Nets with Sublinear
        Memory Cost").
        """
        T = ids.shape[1]
        room = cache.room if cache is not None else self.config.block_size
        assert room >= T, "more tokens than fit into the context"
        x, rotation = self.embed(ids, cache.places(T) if cache is not None else slice(T))  # (B, T, C), (2, T, 1, D)
        if self.training and self.config.dropout:
            x = F.dropout(x, self.config.dropout)
        for block in self.h:
            if activation_checkpointing:
                x = _checkpointed(block, x, rotation, routing)  # (B, T, C)
            else:
                x = block(x, rotation, cache, routing)  # (B, T, C)
        if cache is not None:
            cache.advance(T)
        return self.final_norm(x)

    def embed(self, ids: Tensor, places: slice | Tensor) -> tuple[Tensor, Tensor | None]:
        """Token ids (B, T) at these positions → input of the first block (B, T, C), rotation (2, T, 1, D) if any."""
        x: Tensor = self.wte(ids)  # (B, T, C)
        if self.config.position == "learned":
            x = x + self.wpe.weight[places]
        elif self.sinusoids is not None:
            x = x + self.sinusoids[places]
        return x, self.rotations[:, places] if self.rotations is not None else None

    def final_norm(self, x: Tensor) -> Tensor:
        """Output of the last block (..., C) → final hidden states (..., C); with post-norm blocks they are the same."""
        normed: Tensor = self.ln_f(x) if self.config.norm_placement == "pre" else x
        return normed

    @property
    def head_weight(self) -> Tensor:
        """Weights of the output head, (V, C); those of the token embedding if tied."""
        return self.wte.weight if self.config.tied else self.lm_head.weight

    def head(self, hidden: Tensor) -> Tensor:
        """Hidden states (..., C) → logits (..., V)."""
        return softcapped(F.linear(hidden, self.head_weight), self.config.logit_softcap)

    def summed_loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Summed cross-entropy in nats, (): hidden states (B, T, C), next tokens `targets` (B, T)."""
        return next_token_loss(hidden.flatten(0, 1), self.head_weight, targets.flatten(), self.config.logit_softcap)

    def forward(self, ids: Tensor, cache: KVCache | None = None) -> Tensor:
        """Token ids (B, T) → logits (B, T, V)."""
        return self.head(self.hidden(ids, cache))


def _checkpointed(block: nn.Module, x: Tensor, rotation: Tensor | None, routing: Routing | None) -> Tensor:
    """A block without a cache, (B, T, C) → (B, T, C), whose activations the backward pass recomputes.

    Its routing is a result like any other: the compiler refuses recomputed code that changes an object from outside.
    """

    def forward(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        decisions = Routing()
        x = block(x, rotation, None, decisions)
        return x, decisions.balance_losses[0], decisions.loads[0]

    if routing is None:
        x = checkpoint(block, x, rotation, None, None, use_reentrant=False)
    else:
        x, balance_loss, load = checkpoint(forward, x, use_reentrant=False)
        routing.balance_losses.append(balance_loss)
        routing.loads.append(load)
    return x


class _NoInitialization(TorchFunctionMode):
    """Turns torch's initializers into no-ops."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        if getattr(func, "__module__", None) == nn.init.__name__:  # functions in C have none
            return (kwargs or {}).get("tensor", args[0] if args else None)
        return func(*args, **(kwargs or {}))


def gpt_on_meta(config: ModelConfig) -> GPT:
    """A model on the meta device: names and shapes without values or memory.

    Initialization is skipped: on that device torch draws random numbers through its compiler, whose import takes two
    seconds and 80 MB. After weights are assigned, call `fill_positions`.
    """
    with torch.device("meta"), _NoInitialization():
        return GPT(config)


def gpt_of(config: ModelConfig, weights: Mapping[str, Tensor]) -> GPT:
    """A model made of these weights, which are not copied."""
    model = gpt_on_meta(config)
    model.load_state_dict(weights, assign=True)
    model.fill_positions()
    return model
