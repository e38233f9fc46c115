"""Rows of Parquet files, read by pyarrow in batches."""

from __future__ import annotations

from collections.abc import Iterator

from gptcli.dataset.refusals import MissingExtraError
from gptcli.dataset.rows.row import Row
from gptcli.dataset.sources import OnBytes, Source, as_file, size_of
from gptcli.errors import CorpusError, first_line

_BATCH_ROWS = 256
"""Rows that are in memory at once."""


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
            message = f"{source.label} is damaged or no Parquet file: {first_line(error).rstrip('.')}."
            raise CorpusError(message, "Make or download it again.") from None
