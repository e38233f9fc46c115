"""The table of `gptcli eval`."""

from __future__ import annotations

from gptcli.report.scores import Score, Scores, figures
from gptcli.ui.console import Output
from gptcli.ui.tables import left, right, table


def show_scores(scores: Scores, output: Output) -> None:
    """A row for each text and one for all together; or one JSON object."""
    for note in scores.notes:
        output.note(note)
    if output.as_json:
        texts = [figures(score) for score in scores.texts]
        output.json({"run": str(scores.run), "stride": scores.stride, "texts": texts, **figures(scores.total)})
        return
    columns = left("text") + right("tokens", "loss", "perplexity", "bits/byte", "bits/character")
    rows = [_row(score.name, score) for score in scores.texts]
    total = _row("all", scores.total) if len(rows) > 1 else None
    title = f"{scores.run}, windows of {scores.context:,} tokens every {scores.stride:,}"
    output.show(table(title, columns, rows, total=total))


def _row(name: str, score: Score) -> list[object]:
    figures = (score.loss, score.perplexity, score.bits_per_byte, score.bits_per_character)
    return [name, score.tokens, *(f"{figure:.4f}" for figure in figures)]
