"""Stop strings: cut exactly, whatever the pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcli.generation.stops import StopMatcher


def obvious(text: str, stops: list[str]) -> tuple[str, bool]:
    """Character after character: the first stop string that is complete ends the text, the longest of several."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            return text[: end - len(max(complete, key=len))], True
    return text, False


def in_pieces(pieces: list[str], stops: list[str]) -> tuple[str, bool]:
    matcher = StopMatcher(stops)
    shown = "".join(matcher.push(piece) for piece in pieces)
    return shown + matcher.finish(), matcher.stopped


@given(
    st.lists(st.text("ab", max_size=4), max_size=12),
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
)
def test_pieces_do_not_matter(pieces: list[str], stops: list[str]) -> None:
    assert in_pieces(pieces, stops) == obvious("".join(pieces), stops)


def test_a_possible_stop_is_held_back_and_let_go() -> None:
    matcher = StopMatcher(["\n\n", "STOP"])
    assert matcher.push("Hello\n") == "Hello"
    assert matcher.push("world ST") == "\nworld "
    assert matcher.push("AR") == "STAR"
    assert matcher.finish() == ""
    assert not matcher.stopped


def test_nothing_after_a_stop_is_shown() -> None:
    matcher = StopMatcher(["."])
    assert matcher.push("One. Two") == "One"
    assert matcher.push(" Three") == ""
    assert matcher.finish() == ""
    assert matcher.stopped


def test_without_stops_text_passes_at_once() -> None:
    assert StopMatcher(()).push("a") == "a"


def test_an_empty_stop_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(AssertionError, match="empty"):
        StopMatcher([""])
