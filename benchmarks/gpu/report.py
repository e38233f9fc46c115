"""The results of one part, written to the disk after each of them, so that nothing is lost if the part is cut short."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gptcli.config.values import flatten
from gptcli.storage import write_file

Row = Mapping[str, Any]


class Report:
    """Figures by name: PART.json and, as tables, PART.md in one folder."""

    def __init__(self, folder: Path, part: str) -> None:
        """Continue the report that is there."""
        self.folder = folder
        self._json, self._table = folder / f"{part}.json", folder / f"{part}.md"
        self._title = f"GPU: {part}"
        self.figures: dict[str, Any] = {}
        self.reload()

    def reload(self) -> None:
        """Take over what another process has written."""
        if self._json.exists():
            self.figures = json.loads(self._json.read_text(encoding="utf-8"))

    def start(self, **figures: Any) -> None:
        """Begin anew with these figures."""
        self.figures = dict(figures)
        self._write()

    def put(self, name: str, value: Any) -> None:
        """Store one figure, or a mapping of figures."""
        self.figures[name] = value
        self._write()

    def append(self, name: str, row: Row) -> None:
        """Add a row to a table."""
        self.figures.setdefault(name, []).append(dict(row))
        self._write()

    def tables(self) -> str:
        """The figures as Markdown."""
        return "\n".join([f"# {self._title}", "", *(_section(name, value) for name, value in self.figures.items())])

    def _write(self) -> None:
        self._json.parent.mkdir(parents=True, exist_ok=True)
        write_file(self._json, (json.dumps(self.figures, indent=2) + "\n").encode())
        write_file(self._table, self.tables().encode())


def _section(name: str, value: Any) -> str:
    if isinstance(value, list):
        columns = list(dict.fromkeys(column for row in value for column in row))
        rows = [[_cell(row.get(column, "")) for column in columns] for row in value]
    elif isinstance(value, Mapping):
        columns, rows = [name, ""], [[path, _cell(figure)] for path, figure in flatten(value).items()]
    else:
        return f"{name}: {_cell(value)}\n"
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join([f"## {name}", "", *(f"| {' | '.join(line)} |" for line in lines), ""])


def _cell(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)
    return text.replace("|", "\\|").replace("\n", " ")
