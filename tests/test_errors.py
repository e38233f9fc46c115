"""Numbers in words."""

from __future__ import annotations

import pytest

from gptcli.errors import size


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (75_776, "75.8 kB"),
        (999_400, "999 kB"),
        (999_600, "1,000 kB"),
        (5_000_000, "5 MB"),
        (29_700_000, "29.7 MB"),
        (1_030_000_000, "1.03 GB"),
        (137_000_000_000, "137 GB"),
        (2_500_000_000_000, "2.5 TB"),
    ],
)
def test_sizes(count: int, words: str) -> None:
    assert size(count) == words
