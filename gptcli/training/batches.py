"""The batches of a training: which windows of the text are trained on at each step.

A batch is a pure function of (seed, step, batch size), so that nothing has to be saved to continue exactly, and
micro-batches are slices of it. Windows are drawn without replacement within an epoch: starting at an offset that
changes every epoch, the text is cut into windows of one context length, which are visited in random order: a shuffled
array, or for very many windows a permutation that is computed for each place and needs no memory.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from gptcli.dataset.shards import TokenStream

MAX_SHUFFLED_WINDOWS = 1 << 22
"""Largest number of windows whose order is kept as an array, of 32 MiB."""

Order = Callable[[np.ndarray], np.ndarray]
"""The windows at these places of an epoch, int64 (n,) → int64 (n,)."""


class Batches:
    """Batches of `batch_size` windows of `block_size` + 1 tokens."""

    def __init__(self, stream: TokenStream, *, block_size: int, batch_size: int, seed: int | tuple[int, ...]) -> None:
        """`seed` may be several numbers."""
        assert len(stream) > block_size, "the text is shorter than one window"
        self.stream = stream
        self.block_size = block_size
        self.batch_size = batch_size
        self.seed = seed if isinstance(seed, tuple) else (seed,)
        self._orders: dict[int, tuple[int, Order]] = {}

    @property
    def windows_per_epoch(self) -> int:
        """Windows in one pass over the text; tokens that the offset leaves out are seen in other epochs."""
        return max(1, (len(self.stream) - self.block_size) // self.block_size)

    def starts(self, step: int, part: slice = slice(None)) -> np.ndarray:
        """Start positions of the windows of a step, or of a part of them, int64 (batch_size,)."""
        return self._starts(self.numbers(step, part))

    def numbers(self, step: int, part: slice = slice(None)) -> np.ndarray:
        """The numbers of a step's sequences or a part of them, from the first of the training, int64 (batch_size,)."""
        return np.arange(step * self.batch_size, (step + 1) * self.batch_size)[part]

    def windows(self, numbers: np.ndarray) -> np.ndarray:
        """Token ids of the sequences with these numbers, int64 (n,) → int64 (n, block_size + 1)."""
        return self.stream.windows(self._starts(numbers), self.block_size + 1)

    def _starts(self, numbers: np.ndarray) -> np.ndarray:
        epochs, places = np.divmod(numbers, self.windows_per_epoch)
        starts = np.empty_like(numbers)
        for epoch in np.unique(epochs):
            offset, order = self._order(int(epoch))
            chosen = epochs == epoch
            starts[chosen] = offset + order(places[chosen]) * self.block_size
        return starts

    def batch(self, step: int, part: slice = slice(None)) -> Tensor:
        """Token ids of a step or a part of it, int64 (batch_size, block_size + 1); the inputs are all but the last."""
        return torch.from_numpy(self.windows(self.numbers(step, part)))

    def _order(self, epoch: int) -> tuple[int, Order]:
        """The offset and the order of windows of an epoch; those of the last two epochs are cached."""
        if epoch not in self._orders:
            random, windows = np.random.default_rng((*self.seed, epoch)), self.windows_per_epoch
            last_start = len(self.stream) - 1 - windows * self.block_size
            offset = int(random.integers(0, last_start + 1))
            shuffled = windows <= MAX_SHUFFLED_WINDOWS
            order = random.permutation(windows).take if shuffled else Permutation(windows, random)
            self._orders = dict(list(self._orders.items())[-1:])
            self._orders[epoch] = offset, order
        return self._orders[epoch]


class Permutation:
    """A random permutation of 0 … size - 1, computed place by place.

    A Feistel network permutes the numbers below the next power of four; a number that lands at `size` or above is
    permuted again until it does not (Black & Rogaway 2002, "Ciphers with Arbitrary Finite Domains").

    >>> sorted(Permutation(10, np.random.default_rng(0))(np.arange(10)).tolist())
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """

    ROUNDS = 6

    def __init__(self, size: int, random: np.random.Generator) -> None:
        self._size = size
        self._half = np.uint64((max(size - 1, 1).bit_length() + 1) // 2)
        """Bits of each half of a number."""
        self._mask = np.uint64((1 << int(self._half)) - 1)
        self._keys = random.integers(2**64, size=self.ROUNDS, dtype=np.uint64)

    def __call__(self, places: np.ndarray) -> np.ndarray:
        """The numbers at `places`, int64 (n,) → int64 (n,)."""
        numbers = self._permuted(places.astype(np.uint64))
        while (outside := np.flatnonzero(numbers >= self._size)).size:
            numbers[outside] = self._permuted(numbers[outside])
        return numbers.astype(np.int64)

    def _permuted(self, numbers: np.ndarray) -> np.ndarray:
        left, right = numbers >> self._half, numbers & self._mask
        for key in self._keys:
            left, right = right, left ^ (_mixed(right ^ key) & self._mask)
        joined: np.ndarray = (left << self._half) | right
        return joined


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Each number hashed to 64 bits (the finalizer of splitmix64, Steele et al. 2014)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = numbers ^ (numbers >> np.uint64(31))
    return mixed
