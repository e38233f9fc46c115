"""The time that a running training still takes."""

from __future__ import annotations

import time
from collections.abc import Callable

from gptcli.config import RunConfig
from gptcli.dataset.folder import Dataset
from gptcli.runs.events import EvalMetrics, EvalProgress, Event, Heartbeat, Rescheduled, StepMetrics
from gptcli.runs.rhythm import evaluation_cost


class TimeLeft:
    """An estimate from the events of a training; evaluations are included."""

    def __init__(
        self, config: RunConfig, dataset: Dataset, begin: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`begin` is the step from which training continues."""
        self._max_steps, self._eval_every = config.train.max_steps or 0, config.train.eval_every or 1
        self._evaluation_cost = evaluation_cost(config, dataset)
        self._clock = clock
        self._first: tuple[int, float] | None = None  # the first step seen, and when
        self._step = begin
        self._evaluating_since: float | None = None
        self._share_done = 0.0  # of the evaluation that runs
        self._evaluated = 0.0  # seconds of all evaluations since the first step
        self._last_evaluation: float | None = None

    def observe(self, event: Event) -> None:
        """Take an event into account."""
        now = self._clock()
        if isinstance(event, Rescheduled):
            self._max_steps = event.max_steps
        elif isinstance(event, StepMetrics | Heartbeat):
            self._first = self._first or (event.step, now)
            self._step = event.step
        elif isinstance(event, EvalProgress):
            self._step = event.step
            self._evaluating_since = now if self._evaluating_since is None else self._evaluating_since
            self._share_done = event.done / event.total
        elif isinstance(event, EvalMetrics) and self._evaluating_since is not None:
            self._last_evaluation = now - self._evaluating_since
            self._evaluated += self._last_evaluation if self._first else 0.0
            self._evaluating_since, self._share_done = None, 0.0

    def seconds(self) -> float | None:
        """Seconds left; None while they cannot be estimated."""
        if self._step >= self._max_steps and self._evaluating_since is None:
            return 0.0
        if self._first is None or self._step <= self._first[0]:
            return None
        first, began = self._first
        now = self._clock()
        running = 0.0 if self._evaluating_since is None else now - self._evaluating_since
        per_step = max(0.0, now - began - self._evaluated - running) / (self._step - first)
        evaluation = per_step * self._evaluation_cost if self._last_evaluation is None else self._last_evaluation
        here = 0.0 if self._evaluating_since is None else evaluation * (1 - self._share_done)
        steps_left = self._max_steps - self._step
        if steps_left <= 0:
            return here
        to_come = -(-self._max_steps // self._eval_every) - self._step // self._eval_every
        return per_step * steps_left + evaluation * to_come + here
