"""Scales and ticks of charts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_LOG_STEPS = (
    (1.0,),
    (1.0, 3.0),
    (1.0, 2.0, 5.0),
    (1.0, 1.5, 2.0, 3.0, 5.0, 7.0),
    (1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0),
)
"""Ticks within a power of ten, from few to many."""
_FEWEST, _MOST = 4, 8


@dataclass(frozen=True)
class Scale:
    """A range of values on a line from `start` to `stop`, in the units of the drawing."""

    low: float
    high: float
    start: float
    stop: float
    ticks: tuple[float, ...]
    log: bool = False

    def place(self, value: float) -> float:
        """Place of a value in the drawing."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.start + (value - low) / ((high - low) or 1.0) * (self.stop - self.start)


def linear(low: float, high: float, start: float, stop: float, most: int = 6) -> Scale:
    """A scale whose range is widened to whole ticks."""
    if high <= low:
        high = low + (abs(low) or 1.0)
    exact = (high - low) / most
    power = 10.0 ** math.floor(math.log10(exact))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= exact * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(round(number * step, 12) for number in range(first, last + 1))
    return Scale(ticks[0], ticks[-1], start, stop, ticks)


def logarithmic(low: float, high: float, start: float, stop: float) -> Scale:
    """A logarithmic scale, a little wider than its range, with ticks at round numbers."""
    assert low > 0, "a logarithm"
    low, high = low * 0.97, high * 1.03
    ticks: list[float] = []
    for steps in _LOG_STEPS:
        ticks = _log_ticks(low, high, steps)
        if len(ticks) >= _FEWEST:
            break
    if len(ticks) < 2:  # a narrow range is nearly linear
        ticks = [tick for tick in linear(low, high, 0, 1).ticks if low <= tick <= high]
    return Scale(low, high, start, stop, tuple(ticks[:: -(-len(ticks) // _MOST)]), log=True)


def _log_ticks(low: float, high: float, steps: Sequence[float]) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]


def label(value: float) -> str:
    """The number at a tick: 2,000 · 0.004 · 1e-05."""
    if abs(value) >= 1e9:
        return f"{value / 1e9:g} G"
    if abs(value) >= 1e6:
        return f"{value / 1e6:g} M"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
