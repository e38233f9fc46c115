"""Trained weights in another context length or vocabulary size.

Letters: V vocabulary, C width.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from gptcli.config import ModelConfig
from gptcli.model.gpt import GPT


def resized(state: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """The state of a model for the context length and vocabulary size of `config`, which otherwise describes the model.

    A shorter context keeps the first positions; their logits do not change. New rows of the vocabulary are the mean of
    the existing ones, so that a new token starts as likely as an average one and takes little probability from the
    others (Hewitt 2021, "Initializing New Word Embeddings for Pretrained Language Models").
    """
    changed = {}
    for name in [name for name in ("wte.weight", "lm_head.weight") if name in state]:
        rows = state[name]  # (V, C)
        assert config.vocab_size >= len(rows), "rows are never removed"
        changed[name] = torch.cat([rows, rows.mean(0, keepdim=True).expand(config.vocab_size - len(rows), -1)])
    if config.position == "learned":
        positions = state["wpe.weight"]  # (block_size, C)
        assert config.block_size <= len(positions), "learned positions cannot be added"
        changed["wpe.weight"] = positions[: config.block_size]
    return dict(state) | changed


def has_context(config: ModelConfig, block_size: int) -> bool:
    """Whether a model can have another context length; learned positions limit it to that of training."""
    return config.position != "learned" or block_size <= config.block_size


def with_context(model: GPT, block_size: int) -> GPT:
    """The same model with another context length; see `has_context`. Only the tables of positions change."""
    assert has_context(model.config, block_size), "learned positions cannot be added"
    model.config = model.config.model_copy(update={"block_size": block_size})
    model.fill_positions()
    return model
