"""The table of `gptcli eval`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gptcli.generation.scoring import Score, Scores
from gptcli.ui.console import Output
from gptcli.ui.tables import left, right, table

COUNTS = ("tokens", "scored", "characters", "bytes")
FIGURES = ("loss", "perplexity", "bits_per_byte", "bits_per_character")


def show_scores(scores: Scores, run: Path, output: Output) -> None:
    """Show a row for each text and one for all together, or one JSON object."""
    for note in scores.notes:
        output.note(note)
    if output.as_json:
        output.json(scores_as_json(scores, run))
        return
    columns = left("text") + right("tokens", "loss", "perplexity", "bits/byte", "bits/character")
    rows = [_row(score) for score in scores.texts]
    title = f"{run}, windows of {scores.context:,} tokens every {scores.stride:,}"
    output.show(table(title, columns, rows, total=_row(scores.total) if len(rows) > 1 else None))


def scores_as_json(scores: Scores, run: Path) -> dict[str, Any]:
    """The scores for programs; the names are a promise."""
    texts = [_as_json(score) for score in scores.texts]
    return {"run": str(run), "stride": scores.stride, "texts": texts, **_as_json(scores.total)}


def _as_json(score: Score) -> dict[str, object]:
    return {name: getattr(score, name) for name in ("name", *COUNTS, *FIGURES)}


def _row(score: Score) -> list[object]:
    return [score.name, score.tokens, *(f"{getattr(score, name):.4f}" for name in FIGURES)]
