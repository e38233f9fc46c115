"""Stop strings, matched on text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Passes text on until one of `stops` is complete; drops that and everything after it.

    The result does not depend on how the text is cut into pieces: the stop string that is complete first ends it, or
    the longest of several that end together.

    >>> matcher = StopMatcher(["END"])
    >>> matcher.push("one E"), matcher.push("NDLESS"), matcher.stopped
    ('one ', '', True)
    """

    def __init__(self, stops: Sequence[str]) -> None:
        assert all(stops), "an empty stop string stops nothing"
        self._stops = tuple(stops)
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """The text that can be shown now: no stop string can still begin in it."""
        if not self._stops:
            return text
        if self.stopped:
            return ""
        text = self._held + text
        found = [(text.find(stop) + len(stop), text.find(stop)) for stop in self._stops if stop in text]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)[1]]
        keep = self._possible_stop(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """The text that was held back, at the end of the text: no stop string was completed."""
        held, self._held = self._held, ""
        return held

    def _possible_stop(self, text: str) -> int:
        """Length of the longest suffix of the text that is a prefix of a stop string."""
        longest = max(len(stop) for stop in self._stops) - 1
        for length in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stops):
                return length
        return 0
