"""Another context or vocabulary for weights that were trained already.

Letters: V vocabulary, C width.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from gptcli.config import ModelConfig
from gptcli.model.gpt import GPT


def resized(state: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """A model's state in the context and vocabulary of `config`, which is otherwise its own.

    A shorter context keeps the first positions: their logits do not change, since no token looks ahead. New rows of the
    vocabulary are the mean of those that are there, so that a new token is at first as likely as an average one and
    takes little from the others (Hewitt 2021, "Initializing New Word Embeddings for Pretrained Language Models").
    """
    changed = {
        name: _grown(state[name], config.vocab_size) for name in ("wte.weight", "lm_head.weight") if name in state
    }
    if config.position == "learned":
        positions = state["wpe.weight"]  # (block_size, C)
        assert config.block_size <= len(positions), "there are no positions to add"
        changed["wpe.weight"] = positions[: config.block_size]
    return dict(state) | changed


def has_context(config: ModelConfig, block_size: int) -> bool:
    """Whether a model can have another context: learned positions end where training ended, others go on."""
    return config.position != "learned" or block_size <= config.block_size


def with_context(model: GPT, block_size: int) -> GPT:
    """The model with another context, which it was not trained for; see `has_context`.

    The weights are the same; only the tables of positions are made again.
    """
    assert has_context(model.config, block_size), "there are no positions to add"
    model.config = model.config.model_copy(update={"block_size": block_size})
    model.fill_positions()
    return model


def _grown(rows: Tensor, number: int) -> Tensor:
    """Rows of the vocabulary (V, C) → (number, C)."""
    assert number >= len(rows), "no row is taken away"
    return torch.cat([rows, rows.mean(0, keepdim=True).expand(number - len(rows), -1)])
