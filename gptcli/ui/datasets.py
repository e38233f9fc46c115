"""The table of datasets that `inspect data/` shows."""

from __future__ import annotations

from rich.console import RenderableType

from gptcli.report.datasets import DatasetList
from gptcli.ui.tables import left, right, size, table


def dataset_list(report: DatasetList) -> RenderableType:
    """A row for each dataset, and their total size."""
    columns = [*left("dataset", "tokenizer"), *right("ids", "tokens", "size"), *left("made", "")]
    rows = [
        (
            dataset.name,
            dataset.tokenizer,
            dataset.vocab_size,
            dataset.tokens,
            size(dataset.bytes),
            dataset.made,
            dataset.problem,
        )
        for dataset in report.datasets
    ]
    total = ("total", "", "", "", size(report.bytes), "", "")
    return table(
        f"Datasets in {report.root}. Safe to delete: rebuilt from the text when needed", columns, rows, total=total
    )
