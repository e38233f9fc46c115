"""The models that could be trained on a text, and the one that was chosen."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Group

from gptcli.errors import duration
from gptcli.runs.choosing import Choice
from gptcli.ui.tables import left, right, table


def choice_table(choice: Choice) -> Group:
    """A table of the models, with the time they take and the loss to expect; the chosen one is marked."""
    rows = [
        (
            f"{'→' if one is choice.best else ' '} {one.preset}",
            one.parameters,
            duration(one.seconds),
            f"{one.passes:,.1f}",
            f"{one.dropout:g}",
            f"{one.loss:.2f}",
            f"{one.bits_per_byte:.2f}",
        )
        for one in choice.candidates
    ]
    title = f"Models for this text, on this machine, in {duration(choice.seconds)}"
    columns = [
        *left("model"),
        *right("parameters", "time", "passes", "dropout", "expected val loss", "bits/byte"),
    ]
    return table(title, columns, rows)


def choice_facts(choice: Choice) -> list[dict[str, Any]]:
    """The models for programs."""
    return [
        {name: value for name, value in asdict(one).items() if name != "pace"} | {"chosen": one is choice.best}
        for one in choice.candidates
    ]
