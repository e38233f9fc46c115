"""The end of the schedule, kept together with the end of the stated time.

The number of updates is chosen before the first one, by a pace that is measured for a moment. Where the machine gets
other work, the time would cut the schedule off while the learning rate is high, and where the machine is faster, time
would be left over (docs/log.md has what that costs). So a session compares the end of the schedule with the end of the
time whenever it saves a checkpoint.
"""

from __future__ import annotations

SHARE_TO_JUDGE = 0.25
"""Share of the updates or of the time after which the pace is judged. Earlier, a moment of other work would count for
much, and the learning rate has hardly begun to fall."""
SMALLEST_CHANGE = 0.01
"""Share of the updates by which their number must be off."""


class Timetable:
    """The number of updates that ends with the stated time, by the pace of one session."""

    def __init__(self, seconds: float, steps_limit: int) -> None:
        """`seconds` of training in all sessions, and the most updates."""
        self._seconds, self._steps_limit = seconds, steps_limit
        self._first: tuple[int, float] | None = None

    def max_steps(self, present: int, step: int, seconds: float) -> int | None:
        """The number of updates to make instead of the `present` one; None while that is good, or it is too early.

        Called at regular steps, each time after `seconds` of training. The first call begins the measurement, which
        then has whole intervals, with their evaluations.
        """
        if self._first is None:
            self._first = step, seconds
            return None
        if max(step / present, seconds / self._seconds) < SHARE_TO_JUDGE:
            return None
        first, began = self._first
        per_step = (seconds - began) / (step - first)
        steps = min(self._steps_limit, step + max(1, int((self._seconds - seconds) / per_step)))
        return steps if abs(steps - present) >= SMALLEST_CHANGE * present else None
