"""Batches are a pure function of seed, step and batch size; windows come without replacement within an epoch."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch

from gptcli.dataset.shards import TokenStream
from gptcli.training import batches as batches_module
from gptcli.training.batches import Batches, Permutation

ORDERS = pytest.mark.parametrize("max_shuffled", [batches_module.MAX_SHUFFLED_WINDOWS, 0], ids=["array", "computed"])


def batches(tokens: int = 100, block_size: int = 8, batch_size: int = 3, seed: int = 1) -> Batches:
    """Batches of a text in which token number i is i."""
    stream = TokenStream([np.arange(tokens, dtype=np.uint16)])
    return Batches(stream, block_size=block_size, batch_size=batch_size, seed=seed)


def check_pure() -> None:
    one, other = batches(), batches()
    steps = [40, 3, 7, 3, 0, 12]
    forwards = {step: one.starts(step) for step in range(50)}
    for step in steps:  # in any order, by another object
        assert np.array_equal(other.starts(step), forwards[step])


def test_a_batch_depends_on_nothing_but_its_step() -> None:
    check_pure()


def test_control_a_shared_random_stream_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    monkeypatch.setattr(np.random, "default_rng", lambda key: random)
    with pytest.raises(AssertionError):
        check_pure()


def test_seeds_and_epochs_differ() -> None:
    assert not np.array_equal(batches(seed=1).starts(0), batches(seed=2).starts(0))
    one = batches(batch_size=1)
    epoch = one.windows_per_epoch
    orders = [[int(one.starts(step)[0]) for step in range(first, first + epoch)] for first in (0, epoch, 2 * epoch)]
    assert orders[0] != orders[1] != orders[2]
    assert len({start % 8 for order in orders for start in order}) > 1  # the offset changes too


def check_without_replacement() -> None:
    """Windows of an epoch do not overlap, whatever the batch size; each batch is a slice of the same sequence."""
    one = batches(batch_size=1)
    sequence = [int(one.starts(step)[0]) for step in range(60)]
    epoch = one.windows_per_epoch
    assert epoch == 11
    for first in range(0, 55, epoch):
        ordered = sorted(sequence[first : first + epoch])
        assert all(right - left == 8 for left, right in pairwise(ordered))
    for size in (2, 5, 12, 30):  # more than an epoch in one batch, too
        several = batches(batch_size=size)
        joined = [int(start) for step in range(60 // size) for start in several.starts(step)]
        assert joined == sequence[: len(joined)]


@ORDERS
def test_windows_are_drawn_without_replacement(max_shuffled: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches_module, "MAX_SHUFFLED_WINDOWS", max_shuffled)
    check_without_replacement()


def test_control_windows_with_replacement_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = np.random.default_rng

    class Replacing:
        def __init__(self, key: object) -> None:
            self.integers = plain(key).integers  # type: ignore[arg-type]

        def permutation(self, count: int) -> np.ndarray:
            return self.integers(0, count, count)

    monkeypatch.setattr(np.random, "default_rng", Replacing)
    with pytest.raises(AssertionError):
        check_without_replacement()


@ORDERS
@pytest.mark.parametrize("block_size", [1, 2, 7, 8])
def test_every_window_is_inside_the_text(block_size: int, max_shuffled: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches_module, "MAX_SHUFFLED_WINDOWS", max_shuffled)
    for tokens in range(block_size + 1, 4 * block_size + 4):
        one = batches(tokens, block_size, batch_size=2)
        seen: Counter[int] = Counter()
        for step in range(200):
            ids = one.batch(step)  # (2, block_size + 1); the stream refuses what is outside
            assert ids.shape == (2, block_size + 1)
            assert torch.equal(ids[:, 1:], ids[:, :-1] + 1)
            seen.update(ids.flatten().tolist())
        if tokens >= 2 * block_size:
            assert set(seen) == set(range(tokens)), "the offset brings every token in, sooner or later"


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 16, 17, 1000, 1023, 65_537])
def test_a_permutation_has_each_number_once(size: int) -> None:
    order = Permutation(size, np.random.default_rng(size))(np.arange(size))
    assert np.array_equal(np.sort(order), np.arange(size))


def test_a_permutation_is_random() -> None:
    size = 100_000
    one, other = (Permutation(size, np.random.default_rng(seed))(np.arange(size)) for seed in (1, 2))
    for a, b in ((one, np.arange(size)), (one[1:], one[:-1]), (one, other)):
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.02, "five standard deviations are 0.016"


def test_the_order_of_very_many_windows_takes_no_memory() -> None:
    class Stream(TokenStream):
        def __len__(self) -> int:
            return 50_000_000_000

    one = Batches(Stream([np.zeros(1, dtype=np.uint16)]), block_size=1024, batch_size=8, seed=1)
    assert len(set(one.starts(0)) | set(one.starts(one.windows_per_epoch // 8))) == 16
    assert all(isinstance(order, Permutation) for _, order in one._orders.values())


def test_a_text_of_one_window() -> None:
    assert batches(9, 8).windows_per_epoch == 1
    with pytest.raises(AssertionError, match="shorter"):
        batches(8, 8)
