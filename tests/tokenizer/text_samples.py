"""Awkward texts, and how hypothesis mixes them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import settings
from hypothesis import strategies as st

some = settings(deadline=None, max_examples=60)
"""As many examples as fit into a short test run."""

LESSON = (
    "The cat sat on the mat, and the dog didn't. I'll say: it's 42 o'clock!\r\nThe end... \n\n"
    "Où est le café? Là-bas; naïve façade.\tÜber die Straße.  Zwei   Leerzeichen.\n"
    "你好，世界。今天天气很好。你好，朋友。 😀😃 e\u0301te\u0301 \u2028 \xa0 <|endoftext|> x = f(a, b) + 1234567\n"
)
"""An awkward text: contractions, several spaces, CRLF, accents, Chinese, emoji, odd white space."""

_TROUBLE = [
    *(
        "a",
        "the",
        "don't",
        "'",
        "'s",
        "'ll",
        "I'",
        " ",
        "  ",
        "\n",
        "\r\n",
        "\r",
        "\t",
        "\v",
        "\f",
        "1",
        "234",
        "½",
        "Ⅷ",
    ),
    *("你好", "。", "，", "\u3000", "😀", "e\u0301", "\u0301", "é", "ß", "\u2028", "\xa0", "\x85", "\x1c", "\x00"),
    *("\u180e", "\u200b", "\ufeff", "\ue000", "\U0010ffff", "<|endoftext|>", "!", "...", "-", "_", "ǅ", "ः", "𐐷", "𞤀"),
]
texts = st.lists(st.sampled_from(_TROUBLE) | st.characters(exclude_categories=["Cs"]), max_size=40).map("".join)


def split_at(text: str, places: list[int]) -> list[str]:
    """`text` in pieces, cut at `places` (those beyond its end are ignored)."""
    marks = [0, *sorted(min(place, len(text)) for place in places), len(text)]
    return [text[start:stop] for start, stop in pairwise(marks)]
