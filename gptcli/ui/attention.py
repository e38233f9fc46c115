"""Attention on the terminal: all heads at a glance, and one head large."""

from __future__ import annotations

from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np
from rich.cells import cell_len, set_cell_size
from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.text import Text

from gptcli.generation.attention import AttentionMaps, HeadFigures
from gptcli.ui.console import Output
from gptcli.ui.tables import left, right, share, table
from gptcli.ui.tokens import id_as_json, shown

MAP_CELLS = 12
"""Cells on each side of a small map; two of them are one character high."""
MOST_MAPS = 48
"""Heads of a model that have a small map; the table has all."""
CELL, LABEL = 4, 10
"""Columns of a token in a large map, and most columns of the labels of its rows."""
DARK, BRIGHT = (24, 32, 48), (255, 196, 77)
"""Colors of the probabilities 0 and 1; what is between them grows with the square root, so that small ones are seen."""


def show_attention(maps: AttentionMaps, head: tuple[int, int] | None, output: Output) -> None:
    """Show all heads, or one head large; with JSON, the scores and probabilities of these heads."""
    for note in maps.notes:
        output.note(note)
    if output.as_json:
        output.json(_as_json(maps, head))
    elif head is not None:
        _show_head(maps, *head, output)
    else:
        if colored(output.out) and maps.layers * maps.heads <= MOST_MAPS:
            output.show(*_small_maps(maps, output.out.width), "")
        output.show(_head_table(maps))


def colored(console: Console) -> bool:
    """Whether colors are seen."""
    return console.is_terminal and bool(console.color_system) and not console.no_color


def _head_table(maps: AttentionMaps) -> Any:
    rows = [
        (
            f"{one.layer}.{one.head}",
            one.looks_at,
            *(share(part) for part in (one.previous, one.first, one.itself)),
            f"{one.entropy:.2f} of {one.most_entropy:.2f}",
            f"{one.distance:.1f}",
        )
        for one in maps.every_head()
    ]
    title = f"Attention of each head, a mean over {len(maps.tokens):,} tokens"
    columns = [*left("head", "looks at"), *right("previous", "first", "itself", "entropy in bits", "tokens back")]
    return table(title, columns, rows)


def _small_maps(maps: AttentionMaps, width: int) -> list[Text]:
    """A small map of each head, a layer after another, as many beside each other as fit."""
    cells = min(MAP_CELLS, len(maps.tokens))
    column = max(cells, len("0.0 everything")) + 2
    at_once = max(1, width // column)
    lines = []
    for layer in range(maps.layers):
        for start in range(0, maps.heads, at_once):
            heads = range(start, min(maps.heads, start + at_once))
            figures = [maps.figures(layer, head) for head in heads]
            lines.append(Text("".join(_caption(one).ljust(column) for one in figures), "bold"))
            pictures = [_picture(_shrunk(maps.probabilities[layer, head], cells), column) for head in heads]
            lines += [Text().join(parts) for parts in zip(*pictures, strict=True)]
    return lines


def _caption(figures: HeadFigures) -> str:
    return f"{figures.layer}.{figures.head} {figures.looks_at}"


def _shrunk(p: np.ndarray, cells: int) -> np.ndarray:
    """A map (T, T) with `cells` cells on each side: the largest probability of each part."""
    edges = np.linspace(0, len(p), cells + 1).round().astype(int)
    parts = [slice(start, stop) for start, stop in pairwise(edges)]
    return np.array([[p[rows, columns].max() for columns in parts] for rows in parts])


def _picture(cells: np.ndarray, column: int) -> list[Text]:
    """A map as lines of half blocks, each two rows high."""
    rows = cells if len(cells) % 2 == 0 else np.vstack([cells, np.zeros(cells.shape[1])])
    lines = []
    for above, below in zip(rows[::2], rows[1::2], strict=True):
        line = Text()
        for top, bottom in zip(above, below, strict=True):
            line.append("▀", Style(color=_color(top), bgcolor=_color(bottom)))
        line.append(" " * (column - len(cells)))
        lines.append(line)
    return lines


def _color(probability: float) -> Color:
    part = float(probability) ** 0.5
    return Color.from_rgb(*(dark + part * (bright - dark) for dark, bright in zip(DARK, BRIGHT, strict=True)))


def _show_head(maps: AttentionMaps, layer: int, head: int, output: Output) -> None:
    """A row for each token, with its attention to each earlier token in percent."""
    names = [shown(token) for token in maps.tokens]
    label = 1 + min(LABEL, max(map(cell_len, names)))
    count = len(names)
    if output.out.is_terminal:
        count = min(count, (output.out.width - label) // CELL)
    one = maps.figures(layer, head)
    lines = [
        Text(f"Head {_caption(one)}: where each token (row) looks, in %", "bold"),
        Text(" " * label + "".join(set_cell_size(f" {name}", CELL) for name in names[:count])),
    ]
    shades = colored(output.out)
    for row in range(count):
        line = Text(set_cell_size(names[row], label - 1) + " ")
        for column in range(count):
            p = maps.probabilities[layer, head, row, column]
            text = f"{100 * p:{CELL - 1}.0f} " if maps.visible[layer, row, column] else " " * CELL
            line.append(text, _shade(p) if shades and text.strip() else "")
        lines.append(line)
    output.show(*lines)
    if count < len(names):
        output.note(f"The first {count:,} of {len(names):,} tokens are shown; all with --json or on a pipe.")


def _shade(probability: float) -> Style:
    dark_text = float(probability) ** 0.5 > 0.5
    return Style(color="black" if dark_text else "white", bgcolor=_color(probability))


def _as_json(maps: AttentionMaps, head: tuple[int, int] | None) -> dict[str, Any]:
    wanted = (one for one in maps.every_head() if head in (None, (one.layer, one.head)))
    return {
        "kind": "attention",
        "tokens": [id_as_json(token) for token in maps.tokens],
        "heads": [_head_as_json(maps, one) for one in wanted],
    }


def _head_as_json(maps: AttentionMaps, one: HeadFigures) -> dict[str, Any]:
    scores = maps.scores[one.layer, one.head]
    masked = np.where(maps.visible[one.layer], scores, np.nan)  # null in JSON
    maps_of_head = {"scores": scores, "masked_scores": masked, "probabilities": maps.probabilities[one.layer, one.head]}
    values = asdict(one) | {"looks_at": one.looks_at}
    return values | {name: found.tolist() for name, found in maps_of_head.items()}
