"""The time that a running training still takes."""

from __future__ import annotations

import time
from collections.abc import Callable

from gptcli.config import RunConfig
from gptcli.dataset.folder import Dataset
from gptcli.runs.events import EvalMetrics, EvalProgress, Event, Heartbeat, StepMetrics
from gptcli.runs.pace import evaluation_cost


class TimeLeft:
    """An estimate from the events of a training; evaluations are included."""

    def __init__(self, config: RunConfig, dataset: Dataset, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_steps, self._eval_every = config.train.max_steps or 0, config.train.eval_every
        self._evaluation_cost = evaluation_cost(config, dataset)
        self._clock = clock
        self._first: tuple[int, float] | None = None  # the first step seen, and when
        self._step = 0
        self._evaluating_since: float | None = None
        self._share_done = 0.0  # of the evaluation that runs
        self._evaluated = 0.0  # seconds of all evaluations since the first step
        self._last_evaluation: float | None = None

    def observe(self, event: Event) -> None:
        """Take an event into account."""
        now = self._clock()
        if isinstance(event, StepMetrics | Heartbeat):
            self._first = self._first or (event.step, now)
            self._step = event.step
        elif isinstance(event, EvalProgress):
            self._evaluating_since = self._evaluating_since or now
            self._share_done = event.done / event.total
        elif isinstance(event, EvalMetrics) and self._evaluating_since is not None:
            self._last_evaluation = now - self._evaluating_since
            self._evaluated += self._last_evaluation if self._first else 0.0
            self._evaluating_since, self._share_done = None, 0.0

    def seconds(self) -> float | None:
        """Seconds left; None while nobody knows."""
        if self._step >= self._max_steps and self._evaluating_since is None:
            return 0.0
        if self._first is None or self._step <= self._first[0]:
            return None
        first, began = self._first
        now = self._clock()
        running = now - self._evaluating_since if self._evaluating_since else 0.0
        per_step = max(0.0, now - began - self._evaluated - running) / (self._step - first)
        evaluation = self._last_evaluation or per_step * self._evaluation_cost
        to_come = -(-self._max_steps // self._eval_every) - self._step // self._eval_every
        here = evaluation * (1 - self._share_done) if self._evaluating_since else 0.0
        return per_step * (self._max_steps - self._step) + evaluation * max(0, to_come) + here
