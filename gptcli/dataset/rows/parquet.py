"""Rows of Parquet files, read by pyarrow in batches."""

from __future__ import annotations

from collections.abc import Iterator

from gptcli.dataset.refusals import MissingExtraError
from gptcli.dataset.rows.row import Row
from gptcli.dataset.sources import OnBytes, Source, as_file, size_of
from gptcli.errors import CorpusError, first_line

_BATCH_ROWS = 256
"""Rows that are in memory at once."""
_NO_FOOTER = ("magic bytes not found", "file size is")
"""Words of pyarrow about a file whose end is not that of a Parquet file."""


def read_parquet(source: Source, on_bytes: OnBytes, column: str | None = None) -> Iterator[Row]:
    """The rows of a Parquet file, with all columns or only `column`."""
    try:
        import pyarrow as arrow
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise MissingExtraError(source.label, "data") from None
    size = size_of(source)
    with as_file(source) as file:
        try:
            table = ParquetFile(file, pre_buffer=False)
            rows, done = max(1, table.metadata.num_rows), 0
            only = None if column is None else [column]
            for batch in table.iter_batches(_BATCH_ROWS, columns=only, use_threads=False):
                for value in batch.to_pylist():
                    done += 1
                    yield Row(f"row {done:,}", value)
                on_bytes(size * done // rows - size * (done - batch.num_rows) // rows)
        except (arrow.ArrowException, OSError, ValueError) as error:
            reason = first_line(error).rstrip(".")
            problem = "is cut off, or no Parquet file"
            if not any(words in reason for words in _NO_FOOTER):
                problem = f"is damaged, or pyarrow cannot read it: {reason}"
            raise CorpusError(f"{source.label} {problem}.", "Make or download it again.") from None
