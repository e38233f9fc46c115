"""The learning rate against worked numbers."""

from __future__ import annotations

import doctest

import pytest

from gptcli.config import OptimConfig
from gptcli.training import schedule
from gptcli.training.schedule import learning_rate


def rates(steps: list[int], max_steps: int = 110, **options: object) -> list[float]:
    config = OptimConfig.model_validate({"lr": 1.0, "warmup_steps": 10} | options)
    return [learning_rate(config, step, max_steps) for step in steps]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("linear", [1.0, 0.75, 0.5, 0.01, 0.0]),
        ("cosine", [1.0, 0.853553, 0.5, 0.000247, 0.0]),  # (1 + cos π/4) / 2 at a quarter
        ("constant", [1.0, 1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_worked_numbers(name: str, expected: list[float]) -> None:
    """A hundred steps after ten of warm-up."""
    assert rates([10, 35, 60, 109, 110], schedule=name) == pytest.approx(expected, abs=1e-6)


def test_warm_up_is_linear_and_starts_above_0() -> None:
    assert rates([0, 4, 9, 10], schedule="linear") == pytest.approx([1 / 11, 5 / 11, 10 / 11, 1.0])


def test_warm_up_takes_a_tenth_of_the_run_at_most() -> None:
    assert rates([0, 1, 2], max_steps=20, schedule="constant") == pytest.approx([1 / 3, 2 / 3, 1.0])
    assert rates([0], max_steps=5, schedule="constant") == [1.0]


def test_wsd_falls_in_the_last_share_of_the_run() -> None:
    """A fifth of 1,000 steps: flat to step 800, half-way down at 900."""
    steps = [99, 100, 400, 800, 900, 999, 1000]
    assert rates(steps, 1000, schedule="wsd", warmup_steps=100, decay_fraction=0.2) == pytest.approx(
        [100 / 101, 1.0, 1.0, 1.0, 0.5, 0.005, 0.0]
    )


def test_wsd_that_falls_all_the_time_is_linear() -> None:
    steps = list(range(0, 111, 10))
    assert rates(steps, schedule="wsd", decay_fraction=1.0) == pytest.approx(rates(steps, schedule="linear"))


@pytest.mark.parametrize("name", ["linear", "cosine", "wsd"])
def test_end(name: str) -> None:
    assert rates([110, 200], schedule=name, min_lr_fraction=0.1) == pytest.approx([0.1, 0.1])


def test_example() -> None:
    assert doctest.testmod(schedule) == (0, 1)
