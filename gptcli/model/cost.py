"""The cost of a model, computed from its config: parameters, floating-point operations, bytes of keys and values.

No weights are allocated. `gptcli.model.memory` has the peak memory of training and sampling.

Letters: C width of all heads together, L layers, N parameters, T tokens.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, get_args

import torch

from gptcli.config import ModelConfig
from gptcli.model.cache import cached_tokens
from gptcli.model.gpt import GPT, gpt_on_meta
from gptcli.model.int8 import Int8GPT

FLOPS_FORMULA = "6 N + 12 L C T"
"""FLOPs of a token in training, as PaLM (Chowdhery et al. 2022, appendix B) and nanoGPT count them: N matrix
parameters, with two operations each in the forward pass and four in the backward pass; 12 L C T for queries times keys
and probabilities times values, without subtracting the causal half. T is at most the attention window of a layer. The
forward pass is a third of it."""


Part = Literal["embeddings", "attention", "mlp", "norms", "head"]
Work = Literal["attention matrices", "attention scores", "mlp", "norms", "head"]
"""Parts of a token's arithmetic; "attention scores" is queries times keys and probabilities times values."""
MAX_LENGTH = 2**40
"""Tokens beyond which nobody looks for a crossover."""


@lru_cache(maxsize=64)
def parameter_shapes(config: ModelConfig) -> Mapping[str, torch.Size]:
    """The shape of each parameter by name, a tied head left out."""
    return {name: parameter.shape for name, parameter in gpt_on_meta(config).named_parameters()}


def parameter_count(config: ModelConfig) -> int:
    """Parameters of a model, a tied head counted once."""
    return sum(shape.numel() for shape in parameter_shapes(config).values())


def gathered_parameters(config: ModelConfig) -> int:
    """Numbers that a rank holds at its peak beside its own where weights are sharded: whole weights and gradients.

    Those outside the blocks are whole from the forward pass to the end of the backward pass. Of the blocks, one is in
    use and the next is on its way; each takes its weights, the buffer that they come in, and its gradients.
    """
    shapes = parameter_shapes(config)
    block = sum(shape.numel() for name, shape in shapes.items() if name.startswith("h.0."))
    outside = parameter_count(config) - config.n_layer * block
    return 2 * outside + 5 * block


def inner_parameters(config: ModelConfig) -> int:
    """Parameters apart from the token embedding, as scaling laws count them."""
    return parameter_count(config) - config.vocab_size * config.n_embd


def parameters_by_part(config: ModelConfig, *, active: bool = False) -> dict[Part, int]:
    """Parameters of each part; with `active`, without the experts that a token does not pass through.

    A head that shares the token embedding has none.
    """
    counts = dict.fromkeys(get_args(Part), 0)
    for name, shape in parameter_shapes(config).items():
        counts[_part_of(name)] += shape.numel()
    if active:
        counts["mlp"] -= parameter_count(config) - active_parameters(config)
    return counts


def _part_of(name: str) -> Part:
    *modules, module, _ = name.split(".")
    if module in ("wte", "wpe"):
        return "embeddings"
    if module == "lm_head":
        return "head"
    if module.startswith("ln_") or module.endswith("_norm"):
        return "norms"
    return "attention" if "attn" in modules else "mlp"


def active_parameters(config: ModelConfig) -> int:
    """Parameters without the experts that a token does not pass through."""
    experts = sum(shape.numel() for name, shape in parameter_shapes(config).items() if ".experts." in name)
    idle = config.n_expert - config.n_expert_active
    return parameter_count(config) - (experts * idle // config.n_expert if experts else 0)


def matrix_parameters(config: ModelConfig) -> int:
    """Active parameters without the embeddings that are only looked up: those in a token's arithmetic."""
    looked_up = {"wpe.weight"} if config.tied else {"wpe.weight", "wte.weight"}
    shapes = parameter_shapes(config)
    return active_parameters(config) - sum(shapes[name].numel() for name in looked_up & shapes.keys())


def training_flops(config: ModelConfig, length: int) -> int:
    """FLOPs of a token in training, forward and backward, in a sequence of `length` tokens; see `FLOPS_FORMULA`."""
    attended = sum(cached_tokens(config, length))
    return 6 * matrix_parameters(config) + 12 * config.n_head * config.head_dim * attended


def forward_flops_by_part(config: ModelConfig, length: int) -> dict[Work, int]:
    """FLOPs of a token in the forward pass by part; the sum is `forward_flops`."""
    counts = parameters_by_part(config, active=True)
    attended = sum(cached_tokens(config, length))
    return {
        "attention matrices": 2 * counts["attention"],
        "attention scores": 4 * config.n_head * config.head_dim * attended,
        "mlp": 2 * counts["mlp"],
        "norms": 2 * counts["norms"],
        "head": 2 * config.vocab_size * config.n_embd,
    }


def recomputed_flops(config: ModelConfig, length: int) -> int:
    """FLOPs of a token that activation checkpointing adds: the forward pass of all blocks.

    torch stops as soon as everything that the backward pass needs is there. So the last product of a block is left
    out where nothing comes after it: with pre-norm, without dropout and experts.
    """
    work = forward_flops_by_part(config, length)
    final_norm = sum(shape.numel() for name, shape in parameter_shapes(config).items() if name.startswith("ln_f"))
    blocks = sum(work.values()) - work["head"] - 2 * final_norm
    if config.norm_placement == "post" or config.dropout or config.n_expert:
        return blocks
    last = config.mlp_width * config.n_embd + config.bias * config.n_embd
    return blocks - 2 * last * config.n_layer


def crossover(config: ModelConfig) -> int | None:
    """Tokens from which on attention scores take at least half of a token's FLOPs; None if windows prevent it.

    They grow with the length, and everything else does not.
    """

    def takes_half(length: int) -> bool:
        work = forward_flops_by_part(config, length)
        return 2 * work["attention scores"] >= sum(work.values())

    lengths = range(1, MAX_LENGTH)
    return lengths[bisect_left(lengths, True, key=takes_half)] if takes_half(MAX_LENGTH) else None


def forward_flops(config: ModelConfig, length: int) -> int:
    """FLOPs of a token in the forward pass."""
    return training_flops(config, length) // 3


def prefill_flops(config: ModelConfig, tokens: int) -> int:
    """FLOPs of a prompt of `tokens` tokens: the forward pass, with the head for the last token alone."""
    head = 2 * config.vocab_size * config.n_embd
    return forward_flops(config, tokens) * tokens - head * (tokens - 1)


def cache_bytes(config: ModelConfig, item: int, tokens: int | None = None) -> int:
    """Bytes of the keys and values of `tokens` tokens (default: a full context), with `item` bytes per number."""
    return 2 * sum(cached_tokens(config, tokens)) * config.n_kv_head * config.head_dim * item


def bytes_per_step(model: GPT, sequences: int, cached: int) -> int:
    """Bytes read in a decode step of several sequences that hold `cached` tokens each.

    Each active weight is read once for all of them, and the keys and values of each.
    """
    config, item = model.config, model.wte.weight.element_size()
    weights = matrix_parameters(config) * (1 if isinstance(model, Int8GPT) else item)
    return weights + sequences * cache_bytes(config, item, cached)
