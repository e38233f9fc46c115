"""The batches of a training: which windows of the text are trained on at each step.

A batch is a pure function of (seed, step, batch size), so that nothing has to be saved to continue exactly, and
micro-batches are slices of it. Windows are drawn without replacement within an epoch: starting at an offset that
changes every epoch, the text is cut into windows of one context length, which are visited in random order.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gptcli.config import RunConfig
from gptcli.dataset.folder import Dataset
from gptcli.dataset.shards import TokenStream


class Batches:
    """Batches of `batch_size` windows of `block_size` + 1 tokens."""

    def __init__(self, stream: TokenStream, *, block_size: int, batch_size: int, seed: int) -> None:
        assert len(stream) > block_size, "the text is shorter than one window"
        self.stream = stream
        self.block_size = block_size
        self.batch_size = batch_size
        self.seed = seed
        self._orders: dict[int, tuple[int, np.ndarray]] = {}

    @property
    def windows_per_epoch(self) -> int:
        """Windows in one pass over the text; tokens that the offset leaves out are seen in other epochs."""
        return max(1, (len(self.stream) - self.block_size) // self.block_size)

    def starts(self, step: int) -> np.ndarray:
        """Start positions of the windows of a step, int64 (batch_size,)."""
        numbers = np.arange(step * self.batch_size, (step + 1) * self.batch_size)
        epochs, places = np.divmod(numbers, self.windows_per_epoch)
        starts = np.empty_like(numbers)
        for epoch in np.unique(epochs):
            offset, order = self._order(int(epoch))
            chosen = epochs == epoch
            starts[chosen] = offset + order[places[chosen]] * self.block_size
        return starts

    def batch(self, step: int) -> Tensor:
        """Token ids of a step, int64 (batch_size, block_size + 1); the inputs are all but the last."""
        return torch.from_numpy(self.stream.windows(self.starts(step), self.block_size + 1))

    def _order(self, epoch: int) -> tuple[int, np.ndarray]:
        """The offset and the order of windows of an epoch; those of the last two epochs are cached."""
        if epoch not in self._orders:
            random = np.random.default_rng((self.seed, epoch))
            last_start = len(self.stream) - 1 - self.windows_per_epoch * self.block_size
            offset = int(random.integers(0, last_start + 1))
            self._orders = dict(list(self._orders.items())[-1:])
            self._orders[epoch] = offset, random.permutation(self.windows_per_epoch)
        return self._orders[epoch]


def training_batches(config: RunConfig, dataset: Dataset) -> Batches:
    """The batches of a config over the training split."""
    train = config.train
    return Batches(
        dataset.train.stream, block_size=config.model.block_size, batch_size=train.batch_size, seed=train.seed
    )
