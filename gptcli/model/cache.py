"""The key-value cache: what attention needs of earlier tokens, so that each is computed once.

Letters: B sequences, L layers, H heads, S tokens so far, T new tokens, D = C / H head width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gptcli.config import ModelConfig


class KVCache:
    """Keys and values of up to `block_size` tokens for `batch_size` sequences, allocated once.

    A forward pass appends to every layer and then moves `length` forward once; see `GPT.hidden`.
    """

    def __init__(self, config: ModelConfig, batch_size: int, *, device: torch.device, dtype: torch.dtype) -> None:
        shape = (config.n_layer, batch_size, config.n_head, config.block_size, config.n_embd // config.n_head)
        self.keys = torch.empty(shape, device=device, dtype=dtype)  # (L, B, H, block_size, D)
        self.values = torch.empty(shape, device=device, dtype=dtype)  # (L, B, H, block_size, D)
        self.length = 0

    @property
    def room(self) -> int:
        """Tokens that still fit."""
        return self.keys.shape[3] - self.length

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store the new tokens' keys and values (B, H, T, D) of one layer; return all of that layer's (B, H, S, D)."""
        end = self.length + k.shape[2]
        self.keys[layer, :, :, self.length : end] = k
        self.values[layer, :, :, self.length : end] = v
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]

    def advance(self, tokens: int) -> None:
        """Count `tokens` as cached, once every layer has appended them."""
        self.length += tokens

    def copy_from(self, other: KVCache) -> None:
        """Take over what `other` holds; if it holds one sequence, every sequence here starts with that."""
        self.length = other.length
        self.keys[:, :, :, : other.length] = other.keys[:, :, :, : other.length]
        self.values[:, :, :, : other.length] = other.values[:, :, :, : other.length]

    def clear(self) -> None:
        """Forget everything; the memory stays."""
        self.length = 0
