"""The tokens of a text by surprise, for `gptcli eval --tokens`: shaded on a terminal, one on a line without colors."""

from __future__ import annotations

import math
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from rich.text import Text

from gptcli.generation.logprobs import TokenLogprob
from gptcli.generation.surprise import Place, Surprise, TextSurprise
from gptcli.ui.console import Output, one_line, printable
from gptcli.ui.scores import scores_as_json, show_scores
from gptcli.ui.tables import left, right, table
from gptcli.ui.tokens import in_text, shown, token_as_json

LEVELS = (1, 3, 6, 10)
"""Bits from which on a token has the next color."""
STYLES = ("", "black on #fff1c4", "black on #ffd27a", "black on #ff9a52", "white on #c62828")
"""The style of each level; both colors are set, so that they are readable on light and dark terminals."""
SHOWN_TOKENS = 2_000
"""Most tokens of a text that are shown on a terminal."""
NEWLINE = "↵"


def level(token: TokenLogprob) -> int:
    """The color of a token, from 0 to `len(LEVELS)`; 0 for a token that nothing precedes."""
    return sum(token.bits >= bits for bits in LEVELS)


def level_names() -> list[str]:
    """`under 1 bit`, `1 to 3`, …, `10 and more`: what each color means."""
    between = [f"{low} to {high}" for low, high in pairwise(LEVELS)]
    return [f"under {LEVELS[0]} bit", *between, f"{LEVELS[-1]} and more"]


def visible(token: TokenLogprob) -> str:
    """A token in running text: control characters escaped, and newlines that surprise with a sign before them.

    Of Windows line ends, whose two characters may be two tokens, only the newline is shown.
    """
    text = in_text(token)
    text = "" if text == "\r" else printable(text.replace("\r\n", "\n"))
    return text.replace("\n", f"{NEWLINE}\n") if level(token) else text


def show_surprise(surprise: Surprise, run: Path, output: Output) -> None:
    """Show the tokens of each text and its most surprising places, and then the scores; or one JSON object."""
    if output.as_json:
        values = scores_as_json(surprise.scores, run)
        for text, own in zip(surprise.texts, values["texts"], strict=True):
            own["logprobs"] = [_token_as_json(token) for token in text]
            own["places"] = [_place_as_json(place) for place in text.places()]
        for note in surprise.scores.notes:
            output.note(note)
        output.json(values)
        return
    for text in surprise.texts:
        _show_text(text, output, named=len(surprise.texts) > 1)
    show_scores(surprise.scores, run, output)


def _show_text(text: TextSurprise, output: Output, *, named: bool) -> None:
    console = output.out
    count = min(len(text), SHOWN_TOKENS) if console.is_terminal else len(text)
    if named:
        output.show(Text(one_line(text.score.name), "bold"))
    if console.is_terminal and console.color_system and not console.no_color:
        output.show(_shaded(text, count), "", _legend())
    else:
        for token in islice(text, count):
            output.result(_row(token))
    if count < len(text):
        output.note(f"The first {count:,} of {len(text):,} tokens are shown; all with --json or on a pipe.")
    output.show("", _places(text), "")


def _shaded(text: TextSurprise, count: int) -> Text:
    whole = Text()
    for token in islice(text, count):
        whole.append(visible(token), STYLES[level(token)])
    whole.rstrip()
    return whole


def _legend() -> Text:
    parts = [(f" {name} ", style) for name, style in zip(level_names(), STYLES, strict=True)]
    return Text.assemble("Bits per token:", *(part for name in parts for part in (" ", name)))


def _row(token: TokenLogprob) -> str:
    return f"{_bits(token):>6}  {shown(token)}"


def _bits(token: TokenLogprob) -> str:
    return "–" if math.isnan(token.logprob) else f"{token.bits:.2f}"


def _places(text: TextSurprise) -> Any:
    rows = [
        (place.line, _bits(place.token), _excerpt(place), shown(place.token.alternatives[0])) for place in text.places()
    ]
    columns = [*right("line", "bits"), *left("place", "expected")]
    return table("Most surprising places", columns, rows)


def _excerpt(place: Place) -> Text:
    mark = Text(f"»{shown(place.token)}«", "bold")
    return Text(one_line(place.before)) + mark + Text(one_line(place.after))


def _token_as_json(token: TokenLogprob) -> dict[str, Any]:
    return token_as_json(token) | {"bits": token.bits}


def _place_as_json(place: Place) -> dict[str, Any]:
    return {
        "index": place.index,
        "line": place.line,
        "before": place.before,
        "text": place.token.text,
        "after": place.after,
        "bits": place.token.bits,
    }
