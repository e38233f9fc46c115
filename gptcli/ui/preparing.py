"""Progress while text is read, tokenized or scored, and the resulting dataset."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from itertools import pairwise

from rich.live import Live
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from gptcli.dataset.finding import Skipped
from gptcli.dataset.folder import Dataset
from gptcli.dataset.mixture import Mixture, MixturePart
from gptcli.dataset.preparing import Prepared
from gptcli.dataset.previewing import Preview
from gptcli.dataset.progress import SAVE_EVERY_BYTES
from gptcli.errors import counted, size
from gptcli.report.text import TokenizerSummary, summary_of
from gptcli.signals import Stopped
from gptcli.ui.console import Output, live_display

_MAX_SOURCES = 20
"""Texts that `--verbose` lists."""
_MAX_SKIPPED = 1000
"""Skipped files that `--verbose` lists."""


class PreparingDisplay:
    """A bar with MB/s for each stage, on a terminal; nothing on a pipe."""

    def __init__(self, output: Output) -> None:
        self._console = output.err
        self._progress = Progress(
            TextColumn("{task.description:<18}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:>3.0f}%"),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            expand=True,
            auto_refresh=False,
        )
        self._is_shown = self._console.is_terminal and not output.quiet
        self._output = output
        self._open = ExitStack()
        self._tasks: dict[str, TaskID] = {}
        self._may_have_written = self._is_downloading = False
        self._stages: list[tuple[str, float, int]] = []
        """For each stage its name, its start time and its bytes."""

    def __enter__(self) -> PreparingDisplay:
        if self._is_shown:
            live = Live(self._progress, console=self._console, transient=True, refresh_per_second=10)
            self._open.enter_context(live_display(live))
        return self

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        self._open.close()
        if isinstance(error, KeyboardInterrupt):
            self.announce_interruption(error)
        end = ("", time.perf_counter(), 0)
        for (stage, began, total), (_next, ended, _bytes) in pairwise([*self._stages, end]):
            self._output.detail(f"{_capitalized(stage)}: {ended - began:,.2f} s for {size(total)}.")

    def announce_interruption(self, error: KeyboardInterrupt) -> None:
        """Say that a signal ended the command before it wrote anything, unless a dataset may be complete already."""
        if not self._may_have_written:
            if isinstance(error, Stopped):
                error.announced = True
            with suppress(OSError):  # of a closed terminal
                rest = "The same command continues the download" if self._is_downloading else "Nothing was written"
                rest = "The same command continues the work" if self._is_kept else rest
                self._output.note(f"Stopped. {rest}.")

    @property
    def _is_kept(self) -> bool:
        """Whether an interruption now leaves work to continue."""
        stage, _, total = self._stages[-1] if self._stages else ("", 0.0, 0)
        return stage == "encoding" and total >= SAVE_EVERY_BYTES

    def update(self, stage: str, done_bytes: int, total_bytes: int) -> None:
        """Show the progress of a stage."""
        if stage not in self._tasks:
            self._stages.append((stage, time.perf_counter(), total_bytes))
            self._tasks[stage] = self._progress.add_task(_capitalized(stage), total=total_bytes or None)
        self._progress.update(self._tasks[stage], completed=done_bytes, total=total_bytes or None)
        self._may_have_written = stage == "encoding" and done_bytes >= total_bytes
        self._is_downloading = stage.startswith("downloading")


def _capitalized(stage: str) -> str:
    """A stage, which may name a file, at the beginning of a line."""
    return stage[:1].upper() + stage[1:]


def show_prepared(output: Output, prepared: Prepared) -> None:
    """Print the path of the dataset (or, as JSON, its figures) as the result, and the rest as notes."""
    for note in prepared.notes:
        output.note(note)
    if prepared.reused:
        output.note("The text has not changed: using the existing dataset.")
    output.note(describe(prepared.dataset))
    show_skipped(output, prepared.summary.skipped)
    for source in prepared.dataset.sources[:_MAX_SOURCES]:
        output.detail(f"Text: {source.name}, {counted(source.size, 'byte')}.")
    if more := len(prepared.dataset.sources[_MAX_SOURCES:]):
        output.detail(f"And {counted(more, 'more text')}.")
    if total := prepared.dataset.source_total:
        output.detail(f"Text: {counted(total.files, 'file')}, {counted(total.bytes, 'byte')}.")
    if output.as_json:
        skipped = [asdict(one) for one in prepared.summary.skipped]
        output.json(figures(prepared.dataset) | {"reused": prepared.reused, "skipped": skipped})
    else:
        output.result(str(prepared.dataset.path))


def show_preview(output: Output, preview: Preview) -> None:
    """Print what would be read, by format, and the first documents as the result; the rest as notes."""
    if output.as_json:
        output.json(asdict(preview))
        return
    for note in preview.notes:
        output.note(note)
    show_skipped(output, preview.skipped)
    formats = ", ".join(f"{counted(number, 'file')} of {name}" for name, number in preview.files.items())
    sizes = f"{counted(preview.documents, 'document')}, {counted(preview.characters, 'character')}"
    output.result(f"{formats}: {sizes}, {size(preview.bytes)}")
    for number, beginning in enumerate(preview.beginnings, start=1):
        output.result(f"\nDocument {number:,}:\n{beginning}")


def show_skipped(output: Output, skipped: Sequence[Skipped]) -> None:
    """List files and folders that were not read, as details."""
    for one in skipped[:_MAX_SKIPPED]:
        output.detail(f"Skipped: {one.name} ({one.reason}).")
    if more := len(skipped[_MAX_SKIPPED:]):
        output.detail(f"And {more:,} more.")


def describe(dataset: Dataset) -> str:
    """One line about a dataset."""
    tokens, text = dataset.train.tokens + dataset.val.tokens, dataset.train.bytes + dataset.val.bytes
    return (
        f"Data: {dataset.name}, {counted(text, 'byte')}, {counted(tokens, 'token')} "
        f"({dataset.val.tokens:,} of them held out), "
        f"{ids_in_words(summary_of(dataset.tokenizer))}."
    )


def ids_in_words(tokenizer: TokenizerSummary) -> str:
    """The ids of a tokenizer in words: `66 ids (65 characters, end of text)`."""
    if tokenizer.characters is None:
        return f"{counted(tokenizer.vocab_size, 'id')} (byte-level BPE)"
    ends = tokenizer.end_of_text is not None
    parts = tokenizer.vocab_size - tokenizer.characters - ends
    words = [counted(tokenizer.characters, "character")]
    words += [f"{counted(parts, 'part')} of characters"] if parts else []
    words += ["end of text"] if ends else []
    return f"{counted(tokenizer.vocab_size, 'id')} ({', '.join(words)})"


def figures(dataset: Dataset) -> dict[str, object]:
    """The figures of a dataset for JSON."""
    return {
        "dataset": str(dataset.path),
        "name": dataset.name,
        "fingerprint": dataset.fingerprint,
        "tokenizer": dataset.tokenizer.kind,
        "vocab_size": dataset.tokenizer.vocab_size,
        "documents": dataset.documents,
        "train": {"tokens": dataset.train.tokens, "characters": dataset.train.characters, "bytes": dataset.train.bytes},
        "val": {"tokens": dataset.val.tokens, "characters": dataset.val.characters, "bytes": dataset.val.bytes},
        **({"parts": [*map(_part_figures, dataset.parts)]} if isinstance(dataset, Mixture) else {}),
    }


def _part_figures(part: MixturePart) -> dict[str, object]:
    tokens = {"train": part.dataset.train.tokens, "val": part.dataset.val.tokens}
    return {"name": part.name, "weight": part.weight, "tokens": tokens, "fingerprint": part.dataset.fingerprint}
