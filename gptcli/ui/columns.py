"""Generated texts side by side, a column for each temperature."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from gptcli.config import SamplingConfig
from gptcli.ui.console import Output

WIDE_TERMINAL = 100
"""Columns of a terminal from which on texts stand side by side."""
NARROWEST_TEXT = 30
"""Columns that each text needs at least."""
_GAP = 3


def fits_side_by_side(output: Output, texts: int) -> bool:
    """Whether `texts` texts stand side by side: on a wide terminal, and never on a pipe."""
    console = output.out
    wide = console.width >= max(WIDE_TERMINAL, texts * (NARROWEST_TEXT + _GAP) - _GAP)
    return texts > 1 and console.is_terminal and wide


def heading(config: SamplingConfig) -> Text:
    """The line above the texts of one temperature."""
    return Text(f"--- temperature {config.temperature:g} ---", "bold")


def side_by_side(configs: Sequence[SamplingConfig], texts: Sequence[Sequence[str]]) -> Table:
    """A column for each temperature: its texts, which are printable, below each other."""
    form = Table.grid(padding=(0, _GAP, 0, 0), pad_edge=False, expand=True)
    for _ in configs:
        form.add_column(overflow="fold", ratio=1)
    form.add_row(*map(heading, configs))
    for row, alike in enumerate(zip(*texts, strict=True)):
        if row:
            form.add_row()
        form.add_row(*(Text(text.rstrip("\n")) for text in alike))
    return form
