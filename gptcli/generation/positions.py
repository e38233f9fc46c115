"""The position encoding of a model as numbers for a picture.

Letters: T positions, W values of each, C width, D head width.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from gptcli.model.gpt import GPT

MOST_DISTANCES = 1024
"""Positions that are compared with each other: their pairs are the square of it."""


@dataclass(frozen=True, eq=False)
class PositionEncoding:
    """The encoding of each position of the context window."""

    kind: str
    """`learned`, `sinusoidal` or `rope`, or another of `ModelConfig.position` without values."""
    values: np.ndarray
    """Vectors added to the embeddings, (T, C); of `rope` the cosine of each pair's angle, (T, D/2)."""
    similarity: np.ndarray
    """Mean cosine between the encodings of two positions by their distance, up to `MOST_DISTANCES` of them. Of `rope`,
    that of a vector and itself rotated by the distance, if all its pairs are equally long."""


@torch.inference_mode()
def position_encoding(model: GPT) -> PositionEncoding:
    """The position encoding of a model."""
    config = model.config
    if model.rotations is not None:
        cosines = model.rotations[0, :, 0, : config.head_dim // 2].double().cpu().numpy()  # (T, D/2)
        return PositionEncoding(config.position, cosines, cosines.mean(1)[:MOST_DISTANCES])
    if config.position == "learned":
        table = model.wpe.weight
    else:
        table = model.sinusoids if model.sinusoids is not None else torch.zeros(config.block_size, 0)
    values = table.double().cpu()  # (T, C)
    normed = torch.nn.functional.normalize(values[:MOST_DISTANCES], dim=1)
    similarity = normed @ normed.T  # (T, T)
    means = [similarity.diagonal(distance).mean().item() for distance in range(len(normed))]
    return PositionEncoding(config.position, values.numpy(), np.array(means))
