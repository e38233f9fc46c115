"""Attention, logit lens, neighbors and positions of a model as sections of a page."""

from __future__ import annotations

import base64
from html import escape
from itertools import starmap
from typing import Any

import numpy as np

from gptcli.generation.attention import AttentionMaps, HeadFigures
from gptcli.generation.lens import LogitLens, Neighbors, Prediction
from gptcli.generation.logprobs import Candidate
from gptcli.generation.norms import LayerNorms
from gptcli.generation.positions import PositionEncoding
from gptcli.ui.console import printable
from gptcli.ui.html.chart import Chart, Line
from gptcli.ui.html.page import data, escaped, table
from gptcli.ui.lens import layer_names
from gptcli.ui.surprise import NEWLINE
from gptcli.ui.tokens import in_text, shown

MOST_TOKENS, FEWEST_TOKENS = 40, 8
MAP_BYTES = 450_000
"""Bytes of all maps before they become text, which takes a third more."""
HEADS_BESIDE = 5
"""Heads of a layer that have room beside the large map."""
MOST_LAYERS = 13
"""Rows of the lens."""
MOST_NEAREST = 6
PICTURE = (96, 64)
"""Most columns (positions) and rows (values) of the picture of positions."""
_LOOKS = {
    "previous": "the previous token",
    "first": "the first token",
    "itself": "itself",
    "everything": "everything alike",
    "mixed": "various tokens",
}


def attention(maps: AttentionMaps) -> str:
    """All heads as small maps, one as a large map, and the text, in which each token shows where it looks."""
    fitting = int((MAP_BYTES / (2 * maps.layers * maps.heads)) ** 0.5)
    count = min(len(maps.tokens), MOST_TOKENS, max(FEWEST_TOKENS, fitting))
    heads = list(maps.every_head())
    tokens = "".join(
        f'<span data-token="{place}">{escape(_in_text(token))}</span>'
        for place, token in enumerate(maps.tokens[:count])
    )
    first = heads[0]
    label = escaped(f"Attention of head {_name(first)}, a row for each token: mostly {_LOOKS[first.looks_at]}.")
    wide = " wide" if maps.heads > HEADS_BESIDE else ""
    return (
        f'<div class="attention{wide}" id="attention-view">\n'
        f'<div class="heads" role="group" aria-label="Heads">{_buttons(maps, heads)}</div>\n'
        '<div class="controls"><fieldset class="views"><legend>Show</legend>'
        '<label><input type="radio" name="view" value="p" checked> probabilities</label> '
        '<label><input type="radio" name="view" value="s"> scores</label> '
        '<label><input type="radio" name="view" value="masked"> scores after the mask</label></fieldset>\n'
        '<p class="note">Point at a token of the text to see where it looks, or use the arrow keys in the text. In the '
        "map a row is a token, and a column is a token that it looks at.</p>\n"
        '<div class="text strip" id="attention-text" tabindex="0" role="group" aria-label="The text; the arrow keys go '
        f'from token to token">{tokens}</div>\n<p id="attention-says" aria-live="polite"></p></div>\n'
        f'<div class="large"><h3>Head <span id="head-name">{_name(first)}</span></h3>\n'
        f'<canvas id="map" role="img" aria-label="{label}"></canvas></div>\n</div>\n'
        f"{data(_attention_data(maps, heads, count), 'attention-data')}"
    )


def _in_text(token: Candidate) -> str:
    return printable(in_text(token)).replace("\n", f"{NEWLINE}\n")


def _name(head: HeadFigures) -> str:
    return f"{head.layer}.{head.head}"


def _buttons(maps: AttentionMaps, heads: list[HeadFigures]) -> str:
    """A row of buttons for each layer."""
    rows = []
    for layer in range(maps.layers):
        row = (
            f'<button type="button" aria-pressed="{"true" if one is heads[0] else "false"}">'
            f'<canvas aria-hidden="true"></canvas>{_name(one)} <span>{one.looks_at}</span></button>'
            for one in heads
            if one.layer == layer
        )
        rows.append(f"<div>{''.join(row)}</div>\n")
    return "".join(rows)


def _attention_data(maps: AttentionMaps, heads: list[HeadFigures], count: int) -> dict[str, Any]:
    """The maps of the first `count` tokens in 256 steps; as attention is causal, the rest does not change them."""
    found = []
    for one in heads:
        p = maps.probabilities[one.layer, one.head, :count, :count]
        scores = maps.scores[one.layer, one.head, :count, :count]
        low, high = float(scores.min()), float(scores.max())
        steps = (scores - low) / ((high - low) or 1.0)
        found.append(
            {
                "name": _name(one),
                "layer": one.layer,
                "looks": _LOOKS[one.looks_at],
                "p": _bytes(p),
                "s": _bytes(steps),
                "lo": round(low, 4),
                "hi": round(high, 4),
            }
        )
    windows = [int(maps.visible[layer, :count, :count].sum(1).max()) for layer in range(maps.layers)]
    return {"tokens": [shown(token) for token in maps.tokens[:count]], "heads": found, "windows": windows}


def _bytes(values: np.ndarray) -> str:
    """Values from 0 to 1 in 256 steps, in base64."""
    return base64.b64encode((values * 255).round().astype(np.uint8).tobytes()).decode()


def lens(found: LogitLens) -> str:
    """A row for each block, a column for each token: the most likely next token there."""
    names = layer_names(len(found.layers))
    rows = _spread(len(names), MOST_LAYERS)
    following = [*map(shown, found.tokens[1:]), ""][:MOST_TOKENS]
    head = "".join(f'<th scope="col" class="text">{escaped(shown(token))}</th>' for token in found.tokens[:MOST_TOKENS])
    body = "".join(
        f'<tr><th scope="row">{names[row]}</th>'
        f"{''.join(starmap(_lens_cell, zip(found.layers[row], following, strict=False)))}</tr>\n"
        for row in rows
    )
    return (
        f'<div class="table" tabindex="0" role="group" aria-label="Logit lens"><table class="lens">\n'
        f'<thead><tr><th scope="col">after</th>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>\n'
    )


def _lens_cell(prediction: Prediction, following: str) -> str:
    best = prediction.likeliest[0]
    name = escaped(shown(best))
    name = f"<b>{name}</b>" if shown(best) == following else name
    others = escaped(", ".join(f"{shown(one)} {100 * one.probability:.0f} %" for one in prediction.likeliest))
    return (
        f'<td class="text" style="--p:{best.probability:.2f}" title="{others}">{name}'
        f"<small>{100 * best.probability:.0f}</small></td>"
    )


def neighbors(found: tuple[Neighbors, ...]) -> str:
    """A row for each token with those closest to it."""
    rows = (
        (
            f'<span class="text">{escaped(shown(one.token))}</span>',
            ", ".join(
                f'<span class="text">{escaped(shown(near.token))}</span> {near.similarity:.2f}'
                for near in one.nearest[:6]
            ),
        )
        for one in found
    )
    return table(("token", "closest tokens, with the cosine of their embeddings"), rows)


def norms(found: LayerNorms) -> str:
    """Activations and gradients by layer, as curves."""
    charts = (
        ("Activations", "root mean square of the residual stream", found.activations),
        ("Gradients", "norm of the gradient there", found.gradients),
    )
    drawn = (
        Chart(title, unit, "blocks so far", [Line(title.lower(), list(enumerate(values)), 0)], log=True)
        for title, unit, values in charts
    )
    return f'<div class="charts">{"".join(chart.markup() for chart in drawn)}</div>\n'


def positions(encoding: PositionEncoding) -> str:
    """The values of each position as a picture, and the similarity of two positions by their distance."""
    if not encoding.values.size:
        return '<p class="note">This model has no position encoding.</p>\n'
    T, W = encoding.values.shape
    columns, rows = _spread(T, PICTURE[0]), _spread(W, PICTURE[1])
    picture = encoding.values[np.ix_(columns, rows)].T  # (rows, columns)
    scale = np.abs(picture).max() or 1.0
    values = _bytes((picture / scale + 1) / 2)
    what = {
        "rope": "the cosine of the angle by which a pair of each head's queries and keys is rotated",
        "learned": "what was learned for one element of the embedding",
        "sinusoidal": "a sine or cosine that is added to one element of the embedding",
    }[encoding.kind]
    similarity = [(distance, float(value)) for distance, value in enumerate(encoding.similarity)]
    chart = Chart("Similarity of two positions", "cosine", "distance in tokens", [Line("similarity", similarity, 0)])
    label = escaped(f"Position encoding: {T:,} positions from left to right, {W:,} values from top to bottom")
    return (
        f"<p>Positions are <strong>{escaped(encoding.kind)}</strong>. Each row is {what}; "
        f"positions 0 to {T - 1:,} go from left to right.</p>\n"
        f'<div class="charts"><figure class="chart"><figcaption><strong>Values</strong> <span class="unit">'
        f"{-scale:.3g} to {scale:.3g}</span></figcaption>"
        f'<canvas class="picture" role="img" aria-label="{label}" data-map="positions-data"></canvas>'
        f'<div class="ends unit"><span>position 0</span><span>{T - 1:,}</span></div></figure>\n'
        f"{chart.markup()}</div>\n"
        + data({"width": len(columns), "height": len(rows), "values": values}, "positions-data")
    )


def _spread(count: int, most: int) -> list[int]:
    """At most `most` of the numbers below `count`, evenly spread, the first and the last among them."""
    return sorted({round(place) for place in np.linspace(0, count - 1, min(most, count))})
