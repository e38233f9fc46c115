"""The most likely tokens at each step of a generated text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from gptcli.generation.logprobs import Candidate, TokenLogprob
from gptcli.generation.stream import Sample
from gptcli.ui.console import Output
from gptcli.ui.tokens import shown

MARK = "*"
TOKEN_WIDTH = 8
"""Columns for a token; a longer one takes more and moves the rest of its line."""
GAP = "  "


def show_candidates(samples: Sequence[Sample], output: Output) -> None:
    """Print the most likely tokens of each step below a heading, as many on a line as the terminal has room for."""
    for sample in samples:
        whose = f"Sample {sample.index + 1}: most" if len(samples) > 1 else "Most"
        heading = f"{whose} likely tokens in %, before temperature and filters ({MARK} generated)"
        output.show(Text(heading, "bold"), *_lines(sample.logprobs, output.out.width))


def _lines(tokens: Sequence[TokenLogprob], width: int) -> list[Text]:
    places = len(f"{len(tokens):,}")
    column = max((cell_len(shown(one)) for token in tokens for one in (token, *token.alternatives)), default=0)
    column = min(column, TOKEN_WIDTH)
    own_width = places + 2 + len(_cell(1, "", column)) + 1
    in_line = max(1, (width - own_width) // (len(GAP) + len(_cell(1, "", column)) + 1))
    lines = []
    for step, token in enumerate(tokens, 1):
        cells = [_candidate(one, column, chosen=one.id == token.id) for one in token.alternatives]
        for start in range(0, max(1, len(cells)), in_line):
            first = Text(f"{step:{places},}  ") + Text(_cell(token.probability, shown(token), column), "bold")
            line = first if start == 0 else Text(" " * (own_width - 1))
            for cell in cells[start : start + in_line]:
                line = line + Text(GAP) + cell
            lines.append(line)
    return lines


def _candidate(token: Candidate, column: int, *, chosen: bool) -> Text:
    return Text((MARK if chosen else " ") + _cell(token.probability, shown(token), column), "bold" if chosen else "")


def _cell(probability: float, token: str, column: int) -> str:
    percent = f"{100 * probability:4.1f}"[:4].rstrip(".")  # 100, not 100.0
    return f"{token}{' ' * (column - cell_len(token))} {percent:>4}"
