"""The logit lens, and the neighbors of a token, on the terminal."""

from __future__ import annotations

import math
from typing import Any

from rich.text import Text

from gptcli.generation.lens import LogitLens, Neighbors, Prediction
from gptcli.ui.console import Output
from gptcli.ui.tables import left, right, table
from gptcli.ui.tokens import id_as_json, shown, token_as_json


def show_lens(lens: LogitLens, output: Output) -> None:
    """A row for each token, with the most likely next token after each block; or one JSON object."""
    for note in lens.notes:
        output.note(note)
    if output.as_json:
        output.json(_as_json(lens))
        return
    following = [*(shown(token) for token in lens.tokens[1:]), None]
    rows = [
        (shown(token), following[place], *(_cell(row[place], following[place]) for row in lens.layers))
        for place, token in enumerate(lens.tokens)
    ]
    columns = left("token", "next", *layer_names(len(lens.layers)))
    output.show(table("Most likely next token after each block, in % (bold: it does come next)", columns, rows))


def layer_names(count: int) -> list[str]:
    """Names of the rows of a lens: `embedding`, `block 0`, …."""
    return ["embedding", *(f"block {number}" for number in range(count - 1))]


def _cell(prediction: Prediction, following: str | None) -> Text:
    best = prediction.likeliest[0]
    return Text(f"{shown(best)} {100 * best.probability:.0f}", "bold" if shown(best) == following else "")


def show_neighbors(found: Neighbors, output: Output) -> None:
    """A row for each neighbor with the cosine of the two embeddings; or one JSON object."""
    if output.as_json:
        nearest = [id_as_json(near.token) | {"similarity": near.similarity} for near in found.nearest]
        output.json({"kind": "neighbors", "token": id_as_json(found.token), "nearest": nearest})
        return
    rows = [(shown(near.token), near.token.id, f"{near.similarity:.3f}") for near in found.nearest]
    title = f"Tokens whose embeddings are closest to that of {shown(found.token)}"
    output.show(table(title, [*left("token"), *right("id", "cosine")], rows))


def _as_json(lens: LogitLens) -> dict[str, Any]:
    names = layer_names(len(lens.layers))
    layers = [
        {"layer": name, "predictions": [_prediction_as_json(one) for one in row]}
        for name, row in zip(names, lens.layers, strict=True)
    ]
    return {"kind": "lens", "tokens": [id_as_json(token) for token in lens.tokens], "layers": layers}


def _prediction_as_json(one: Prediction) -> dict[str, Any]:
    following = None if math.isnan(one.logprob) else one.logprob
    return {"next_logprob": following, "likeliest": [token_as_json(token) for token in one.likeliest]}
