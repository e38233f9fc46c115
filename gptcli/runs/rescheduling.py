"""The end of the schedule, kept together with the end of the stated time.

The number of updates is chosen before the first one, by a pace that is measured for a moment. Where the machine gets
other work, the time would cut the schedule off at a high learning rate, which costs more than fewer updates do. So a
session compares the two at its evaluations.
"""

from __future__ import annotations

from gptcli.config import TrainConfig

SHARE_TO_JUDGE = 0.25
"""Share of the time after which the pace is judged: earlier, a moment of other work would count for much, and the
learning rate has hardly begun to fall."""
SMALLEST_CHANGE = 0.01
"""Share of the updates by which their number must be off."""


class Timetable:
    """The updates that fit into the stated time, by the pace of this session."""

    def __init__(self, config: TrainConfig, step: int, seconds: float) -> None:
        """The session begins at `step`, after `seconds` of earlier ones and of compiling."""
        assert config.max_steps, "the config is not complete"
        assert config.max_time, "the number of steps follows from a time"
        self._planned, self._seconds = config.max_steps, config.max_time
        self._first_step, self._began = step, seconds

    def max_steps(self, present: int, step: int, seconds: float) -> int | None:
        """Another number of updates that ends with the time, at most the planned one; None where the present one does.

        More than planned would go over the text more often than suits the model.
        """
        if seconds < SHARE_TO_JUDGE * self._seconds or step <= self._first_step:
            return None
        per_step = (seconds - self._began) / (step - self._first_step)
        fitting = step + max(1, int((self._seconds - seconds) / per_step))
        steps = min(self._planned, fitting)
        return steps if abs(steps - present) >= SMALLEST_CHANGE * present else None
