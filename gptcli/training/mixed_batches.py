"""The batches of a mixture: sequence by sequence, from one dataset or another in the ratio of their shares.

The source of sequence i, and how often it was drawn from before, are computed from i alone. Counts are split in two
along a Huffman tree of the sources: of the first n sequences of a branch with the share p, n·p rounded to a whole
number go to its first half. This number grows by 0 or 1 with n, so that both halves count on without gaps. A tree of
two or three sources keeps every count within one of n times its share, and any tree within two, since errors of the
levels above shrink with the shares on the way down.

Letters: B sequences per update, T tokens each.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gptcli.config import RunConfig
from gptcli.dataset.folder import Dataset
from gptcli.dataset.mixture import Mixture
from gptcli.training.batches import Batches

_Tree = int | tuple["_Tree", "_Tree", int, int]
"""A source, or two halves with the share of the first one and of both."""


class MixedBatches:
    """Batches of windows from several sources; each advances through its own epochs."""

    def __init__(self, sources: Sequence[Batches], shares: Sequence[int]) -> None:
        """`shares` are the integers that say how often each source is drawn from."""
        self.sources = sources
        self._tree = _huffman_tree(shares)

    @property
    def windows_per_epoch(self) -> int:
        """Windows in all sources. After as many sequences, a source with more than its share of weight has repeated."""
        return sum(source.windows_per_epoch for source in self.sources)

    def batch(self, step: int, part: slice = slice(None)) -> Tensor:
        """Token ids of a step or a part of it, int64 (B, T + 1); the inputs are all but the last."""
        numbers = self.sources[0].numbers(step, part)  # (B,)
        owners, draws = self.assigned(numbers)
        ids = np.empty((len(numbers), self.sources[0].block_size + 1), dtype=np.int64)
        for owner in np.unique(owners):
            mine = owners == owner
            ids[mine] = self.sources[owner].windows(draws[mine])
        return torch.from_numpy(ids)

    def assigned(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The source of each sequence, and how often it was drawn from before; int64 (n,) → two of int64 (n,)."""
        owners, draws = np.empty_like(numbers), np.empty_like(numbers)
        _assign(self._tree, numbers, np.arange(len(numbers)), owners, draws)
        return owners, draws


def _huffman_tree(shares: Sequence[int]) -> _Tree:
    """The tree that joins the two smallest branches until one is left: large shares are near the top."""
    branches: list[tuple[int, int, _Tree]] = [(share, source, source) for source, share in enumerate(shares)]
    heapq.heapify(branches)
    while len(branches) > 1:
        (one, age, first), (other, _, second) = heapq.heappop(branches), heapq.heappop(branches)
        heapq.heappush(branches, (one + other, len(shares) + age, (first, second, one, one + other)))
    return branches[0][2]


def _assign(tree: _Tree, numbers: np.ndarray, places: np.ndarray, owners: np.ndarray, draws: np.ndarray) -> None:
    """Assign the sequences with these numbers within a branch; `places` are theirs in the results."""
    if isinstance(tree, int):
        owners[places], draws[places] = tree, numbers
        return
    first, second, share, total = tree
    before = _counted(numbers, share, total)
    goes_first = _counted(numbers + 1, share, total) > before
    _assign(first, before[goes_first], places[goes_first], owners, draws)
    _assign(second, (numbers - before)[~goes_first], places[~goes_first], owners, draws)


def _counted(numbers: np.ndarray, share: int, total: int) -> np.ndarray:
    """numbers · share / total, rounded, without overflow."""
    whole, rest = np.divmod(numbers, total)
    counted: np.ndarray = whole * share + (rest * share + total // 2) // total
    return counted


def training_batches(config: RunConfig, dataset: Dataset) -> Batches | MixedBatches:
    """The batches of a config over the training split; of a mixture each part has random numbers of its own."""
    train = config.train
    sizes = {"block_size": config.model.block_size, "batch_size": train.batch_size}
    if not isinstance(dataset, Mixture):
        return Batches(dataset.train.stream, **sizes, seed=train.seed)
    sources = [
        Batches(part.dataset.train.stream, **sizes, seed=(train.seed, place))
        for place, part in enumerate(dataset.parts)
    ]
    return MixedBatches(sources, [part.share for part in dataset.parts])
