"""The key-value cache: keys and values of earlier tokens, computed once.

Letters: B sequences, L layers, G key and value heads, S attended tokens, T new tokens, D head width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gptcli.config import ModelConfig


class KVCache:
    """Keys and values of up to `block_size` tokens for `batch_size` sequences, allocated once.

    A layer with a sliding window keeps only that many tokens, as a ring buffer. A forward pass appends to every layer
    and then advances `length` once; see `GPT.hidden`.
    """

    def __init__(self, config: ModelConfig, batch_size: int, *, device: torch.device, dtype: torch.dtype) -> None:
        # L of (B, G, block_size or window, D)
        shapes = [(batch_size, config.n_kv_head, tokens, config.head_dim) for tokens in cached_tokens(config)]
        self.keys = [torch.empty(shape, device=device, dtype=dtype) for shape in shapes]
        self.values = [torch.empty(shape, device=device, dtype=dtype) for shape in shapes]
        self.block_size = config.block_size
        self.length = 0

    def places(self, tokens: int) -> slice | Tensor:
        """Positions of the next `tokens` tokens in the context."""
        return slice(self.length, self.length + tokens)

    @property
    def room(self) -> int:
        """Tokens that still fit."""
        return self.block_size - self.length

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Store keys and values (B, G, T, D) of new tokens in one layer; return the attended ones and a mask or None.

        They are (B, G, S, D) in text order. For a single new token they may be in any order, since it attends to all
        of them, or to those that the mask, bool (1, S), marks.
        """
        keys, values = self.keys[layer], self.values[layer]
        start, T, kept = self.length, k.shape[2], keys.shape[2]
        if (end := start + T) <= kept:
            keys.narrow(2, start, T).copy_(k)  # faster than slicing, which costs Python an index tuple
            values.narrow(2, start, T).copy_(v)
            return keys.narrow(2, 0, end), values.narrow(2, 0, end), None
        if T == 1:
            keys[:, :, start % kept : start % kept + 1], values[:, :, start % kept : start % kept + 1] = k, v
            return keys, values, None
        held = torch.arange(max(0, start - kept), start, device=k.device) % kept  # cached tokens, in text order
        k, v = torch.cat((keys[:, :, held], k), 2), torch.cat((values[:, :, held], v), 2)  # 2 of (B, G, S, D)
        newest = torch.arange(end - kept, end, device=k.device) % kept
        keys[:, :, newest], values[:, :, newest] = k[:, :, -kept:], v[:, :, -kept:]
        return k, v, None

    def advance(self, tokens: int) -> None:
        """Count `tokens` as cached, once every layer has appended them."""
        self.length += tokens

    def copy_from(self, other: KVCache) -> None:
        """Copy the content of `other`. If it has a single sequence, every sequence here gets a copy."""
        self.length = other.length
        for mine, theirs in zip(self.keys + self.values, other.keys + other.values, strict=True):
            mine[:, :, : other.length] = theirs[:, :, : other.length]

    def clear(self) -> None:
        """Empty the cache and keep its memory."""
        self.length = 0


class StaticCacheView(KVCache):
    """A decode step with static shapes, so that it can be captured as a CUDA graph.

    The position of the new token is a number on the device, `position` () of int64; attention gets the first `visible`
    cached tokens and a mask. The cache must hold finite numbers everywhere, since masked values are multiplied by zero.
    The caller advances `position` and the cache's `length`.
    """

    def __init__(self, cache: KVCache, position: Tensor, visible: int) -> None:
        self.keys, self.values, self.block_size, self.length = cache.keys, cache.values, cache.block_size, 0
        self._position, self._visible = position, visible
        self._slots = torch.arange(visible, device=position.device)

    def places(self, tokens: int) -> Tensor:
        """The position of the new token, (1,)."""
        assert tokens == 1, "a decode step has one token"
        return self._position.view(1)

    def append(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Store keys and values (B, G, 1, D) of the new token; return those of up to `visible` tokens, and a mask."""
        keys, values = self.keys[layer], self.values[layer]
        kept = keys.shape[2]
        slot = self._position.view(1) % kept
        keys.index_copy_(2, slot, k)
        values.index_copy_(2, slot, v)
        S = min(self._visible, kept)
        mask = (self._slots[:S] <= self._position)[None]  # (1, S); all of them once a window is full
        return keys[:, :, :S], values[:, :, :S], mask

    def advance(self, tokens: int) -> None:
        """Do nothing: the caller advances the cache."""


def cached_tokens(config: ModelConfig, tokens: int | None = None) -> list[int]:
    """Cached tokens per layer for a sequence of `tokens` tokens (default: a full context)."""
    tokens = config.block_size if tokens is None else tokens
    return [min(tokens, config.window_of(layer) or tokens) for layer in range(config.n_layer)]
