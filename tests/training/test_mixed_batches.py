"""The batches of a mixture: weights are met, each source goes through its own windows, any step at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from gptcli.dataset.mixture import WHOLE, shares
from gptcli.dataset.shards import TokenStream
from gptcli.training import mixed_batches
from gptcli.training.batches import Batches
from gptcli.training.mixed_batches import MixedBatches

BLOCK = 8
MANY = [[0.5, 0.1, 0.1, 0.1, 0.1, 0.1], [1, 2, 3, 4, 5, 6, 7, 8], [1000, 1, 1, 300, 20, 5], [1] * 20]


def source(number: int, batch_size: int, seed: int = 1) -> Batches:
    """Windows of a text whose tokens say which source they are of, and where in it."""
    ids = np.arange(200, dtype=np.uint16) + 1000 * number
    return Batches(TokenStream([ids]), block_size=BLOCK, batch_size=batch_size, seed=(seed, number))


def mixed(weights: Sequence[float], batch_size: int = 6, seed: int = 1) -> MixedBatches:
    return MixedBatches([source(number, batch_size, seed) for number in range(len(weights))], shares(weights))


def check_weights(weights: Sequence[float], within: float) -> None:
    owners, draws = mixed(weights).assigned(np.arange(3000))
    for number, weight in enumerate(np.array(weights) / sum(weights)):
        drawn = np.cumsum(owners == number)
        assert np.abs(drawn - weight * np.arange(1, 3001)).max() < within
        assert np.array_equal(draws[owners == number], np.arange(drawn[-1])), "each draw follows the one before"


@pytest.mark.parametrize("weights", [[0.7, 0.3], [1, 1], [99, 1], [1, 3], [0.6, 0.3, 0.1], [1, 1, 1], [5, 90, 5]])
def test_weights_of_two_or_three_are_met_to_a_sequence(weights: list[float]) -> None:
    check_weights(weights, within=0.5001 if len(weights) == 2 else 1)


@pytest.mark.parametrize("weights", MANY)
def test_weights_of_many_are_met_to_two_sequences(weights: list[float]) -> None:
    check_weights(weights, within=2)


def test_control_random_sources_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def counted(numbers: np.ndarray, share: int, total: int) -> np.ndarray:
        drawn = np.random.default_rng(0).random(10_000) < share / total
        return np.concatenate([[0], np.cumsum(drawn)])[numbers]

    monkeypatch.setattr(mixed_batches, "_counted", counted)
    with pytest.raises(AssertionError):
        check_weights([0.7, 0.3], within=2)


def test_far_sequences_are_counted_exactly() -> None:
    first = 10**15
    owners, draws = mixed([0.7, 0.3]).assigned(np.arange(first, first + 10))
    assert sorted(owners.tolist()) == [0] * 7 + [1] * 3
    share = shares([0.7, 0.3])[0]
    assert abs(int(draws[owners == 0][0]) - first * share // WHOLE) <= 1


def check_pure() -> None:
    """A step in any order, by another object; and batches of any size are slices of the same sequence."""
    weights = [0.5, 0.3, 0.2]
    one = mixed(weights)
    steps = [one.batch(step) for step in range(30)]
    other = mixed(weights)
    for step in (21, 3, 29, 0, 3):
        assert torch.equal(other.batch(step), steps[step])
    sequence = torch.cat(steps)
    assert torch.equal(other.batch(7, slice(2, 5)), steps[7][2:5])
    for size in (1, 4, 9, 60):
        sized = mixed(weights, batch_size=size)
        assert torch.equal(torch.cat([sized.batch(step) for step in range(180 // size)]), sequence)


def test_a_batch_depends_on_nothing_but_its_step() -> None:
    check_pure()


def test_control_counting_as_batches_are_drawn_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, before = Batches.windows, {}

    def drawn_so_far(self: Batches, numbers: np.ndarray) -> np.ndarray:
        start = before.get(self, 0)
        before[self] = start + len(numbers)
        return plain(self, np.arange(start, before[self]))

    monkeypatch.setattr(Batches, "windows", drawn_so_far)
    with pytest.raises(AssertionError):
        check_pure()


def test_each_source_goes_through_its_own_windows() -> None:
    """The windows of a source are those that it would give alone, in their order."""
    ids = torch.cat([mixed([0.7, 0.3]).batch(step) for step in range(100)])  # (600, 9)
    for number, count in ((0, 420), (1, 180)):
        alone = source(number, batch_size=count).batch(0)
        assert torch.equal(ids[ids[:, 0] // 1000 == number], alone)
    assert torch.equal(ids[:, 1:], ids[:, :-1] + 1), "no window goes over two sources"


def test_one_source_is_drawn_as_without_a_mixture() -> None:
    plain = source(0, batch_size=6)
    one = MixedBatches([plain], [WHOLE])
    assert all(torch.equal(one.batch(step), plain.batch(step)) for step in range(20))


def test_seeds_and_sources_differ() -> None:
    assert not torch.equal(mixed([1, 1], seed=1).batch(0), mixed([1, 1], seed=2).batch(0))
    ids = torch.cat([mixed([1, 1]).batch(step) for step in range(8)])
    one, other = (ids[ids[:, 0] // 1000 == number] - 1000 * number for number in (0, 1))
    assert not torch.equal(one, other)


def test_equal_ratios_are_equal_shares() -> None:
    assert shares([0.7, 0.3]) == shares([7, 3]) == shares([2100.0, 900.0])
    assert sum(shares([0.1, 0.2, 0.7, 1 / 3])) == WHOLE
