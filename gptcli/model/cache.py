"""The key-value cache: what attention needs of earlier tokens, so that each is computed once.

Letters: B sequences, L layers, G heads of keys and values, S tokens that attention sees, T new tokens, D head width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gptcli.config import ModelConfig


class KVCache:
    """Keys and values of up to `block_size` tokens for `batch_size` sequences, allocated once.

    A layer with a sliding window keeps no more tokens than that sees, the newest in the place of the oldest. A forward
    pass appends to every layer and then moves `length` forward once; see `GPT.hidden`.
    """

    def __init__(self, config: ModelConfig, batch_size: int, *, device: torch.device, dtype: torch.dtype) -> None:
        shapes = [
            (batch_size, config.kv_heads, tokens, config.head_width) for tokens in cached_tokens(config)
        ]  # L of (B, G, block_size or window, D)
        self.keys = [torch.empty(shape, device=device, dtype=dtype) for shape in shapes]
        self.values = [torch.empty(shape, device=device, dtype=dtype) for shape in shapes]
        self.block_size = config.block_size
        self.length = 0

    @property
    def room(self) -> int:
        """Tokens that still fit."""
        return self.block_size - self.length

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Store the new tokens' keys and values (B, G, T, D) of one layer; return those that attention may see.

        They are (B, G, S, D), in the order of the text, the new ones last; for a single new token in any order, since
        it sees them all.
        """
        keys, values = self.keys[layer], self.values[layer]
        start, T, kept = self.length, k.shape[2], keys.shape[2]
        if (end := start + T) <= kept:
            keys.narrow(2, start, T).copy_(k)  # faster than slicing, which costs Python an index tuple
            values.narrow(2, start, T).copy_(v)
            return keys.narrow(2, 0, end), values.narrow(2, 0, end)
        if T == 1:
            keys[:, :, start % kept : start % kept + 1], values[:, :, start % kept : start % kept + 1] = k, v
            return keys, values
        held = torch.arange(max(0, start - kept), start, device=k.device) % kept  # where the text so far lies, in order
        k, v = torch.cat((keys[:, :, held], k), 2), torch.cat((values[:, :, held], v), 2)  # 2 of (B, G, S, D)
        newest = torch.arange(end - kept, end, device=k.device) % kept
        keys[:, :, newest], values[:, :, newest] = k[:, :, -kept:], v[:, :, -kept:]
        return k, v

    def advance(self, tokens: int) -> None:
        """Count `tokens` as cached, once every layer has appended them."""
        self.length += tokens

    def copy_from(self, other: KVCache) -> None:
        """Take over what `other` holds; if it holds one sequence, every sequence here starts with that."""
        self.length = other.length
        for mine, theirs in zip(self.keys + self.values, other.keys + other.values, strict=True):
            mine[:, :, : other.length] = theirs[:, :, : other.length]

    def clear(self) -> None:
        """Forget everything; the memory stays."""
        self.length = 0


def cached_tokens(config: ModelConfig, tokens: int | None = None) -> list[int]:
    """How many tokens of a sequence of `tokens` each layer keeps; by default of a full context."""
    tokens = config.block_size if tokens is None else tokens
    return [min(tokens, config.window_of(layer) or tokens) for layer in range(config.n_layer)]


def cache_bytes(config: ModelConfig, item: int, tokens: int | None = None) -> int:
    """Bytes of the keys and values of a sequence of `tokens`, by default of a full context; numbers of `item` bytes."""
    return 2 * sum(cached_tokens(config, tokens)) * config.kv_heads * config.head_width * item
