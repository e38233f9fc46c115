"""Another context or vocabulary for weights that were trained already.

Letters: V vocabulary, C width.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from gptcli.config import ModelConfig


def resized(state: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """A model's state in the context and vocabulary of `config`, which is otherwise its own.

    A shorter context keeps the first positions: their logits do not change, since no token looks ahead. New rows of the
    vocabulary are the mean of those that are there, so that a new token is at first as likely as an average one and
    takes little from the others (Hewitt 2021, "Initializing New Word Embeddings for Pretrained Language Models").
    """
    rows: Tensor = state["wte.weight"]  # (V, C)
    positions = state["wpe.weight"]
    assert config.block_size <= len(positions), "there are no positions to add"
    assert config.vocab_size >= len(rows), "no row is taken away"
    new = rows.mean(0, keepdim=True).expand(config.vocab_size - len(rows), -1)
    return dict(state) | {"wte.weight": torch.cat([rows, new]), "wpe.weight": positions[: config.block_size]}
