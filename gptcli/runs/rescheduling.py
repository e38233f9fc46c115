"""The end of the schedule, kept together with the end of the stated time.

The number of updates is chosen before the first one, by a pace that is measured for a moment. Where the machine gets
other work, the time would cut the schedule off at a high learning rate, which costs more than fewer updates do. So a
session compares the two at its evaluations.
"""

from __future__ import annotations

from gptcli.config import TrainConfig

SHARE_TO_JUDGE = 0.25
"""Share of the updates or of the time after which the pace is judged. Earlier, a moment of other work would count for
much, and the learning rate has hardly begun to fall."""
SMALLEST_CHANGE = 0.01
"""Share of the updates by which their number must be off."""


class Timetable:
    """The updates that fit into the stated time, by the pace of this session."""

    def __init__(self, config: TrainConfig, most_steps: int, step: int, seconds: float) -> None:
        """The session begins at `step`, after `seconds` of earlier ones and of compiling."""
        assert config.max_time, "the number of steps follows from a time"
        self._seconds, self._most_steps = config.max_time, most_steps
        self._first_step, self._began = step, seconds

    def max_steps(self, present: int, step: int, seconds: float) -> int | None:
        """Another number of updates that ends with the time; None where the present one does."""
        done = max(step / present, seconds / self._seconds)
        if done < SHARE_TO_JUDGE or step <= self._first_step:
            return None
        per_step = (seconds - self._began) / (step - self._first_step)
        fitting = step + max(1, int((self._seconds - seconds) / per_step))
        steps = min(self._most_steps, fitting)
        return steps if abs(steps - present) >= SMALLEST_CHANGE * present else None
