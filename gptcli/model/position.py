"""Position encodings that are not learned: sinusoids added to the embeddings, rotary queries and keys.

Letters: B sequences, T tokens, C width, h heads, D head width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gptcli.config import ModelConfig


def sinusoids(config: ModelConfig, deviation: float) -> Tensor:
    """Sines and cosines of each position, (block_size, C), in float64 (Vaswani et al. 2017, section 3.5).

    Their root mean square is `deviation`, as of the embeddings that they are added to; the paper scales the embeddings
    instead.
    """
    angles = _angles(config.block_size, config.n_embd, 10_000.0)  # (block_size, ⌈C/2⌉)
    waves = torch.stack((angles.sin(), angles.cos()), dim=2).flatten(1)[:, : config.n_embd]  # (block_size, C)
    return waves * deviation * math.sqrt(2)


def rotations(config: ModelConfig) -> Tensor:
    """Cosines and signed sines of each position's angles, (2, block_size, 1, D), in float64, for `rotate`."""
    angles = _angles(config.block_size, config.head_dim, config.rope_base) / config.rope_scaling  # (block_size, D/2)
    cos, sin = angles.cos(), angles.sin()
    return torch.stack((torch.cat((cos, cos), 1), torch.cat((-sin, sin), 1)))[:, :, None]


def rotate(x: Tensor, rotation: Tensor) -> Tensor:
    """Rotary position embedding (Su et al. 2021, "RoFormer"): x (B, T, h, D), rotation (2, T, 1, D) → (B, T, h, D).

    Elements i and i + D/2 of a head are the coordinates of a point, rotated by an angle proportional to the position,
    so that the product of a query and a key depends only on their distance. Hugging Face's models pair the halves of a
    head in the same way, others pair neighbors.
    """
    cos, sin = rotation.to(x.dtype).unbind(0)  # 2 of (T, 1, D)
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


def _angles(positions: int, width: int, base: float) -> Tensor:
    """Position times frequency, (positions, ⌈width/2⌉), in float64: the frequencies fall from 1 to nearly 1/base."""
    frequencies = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)  # (⌈width/2⌉)
    return torch.outer(torch.arange(positions, dtype=torch.float64), frequencies)
