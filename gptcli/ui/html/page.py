"""The frame of every page, and the file that it becomes.

A page is one file: style and script are inside it, and a policy in its head forbids the browser to load anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

from gptcli.errors import StorageError, UsageError
from gptcli.paths import output_path
from gptcli.storage import disk_errors, write_file
from gptcli.ui.console import one_line

PAGE_BYTES = 2_000_000
"""Size below which a browser opens a page at once."""
_MARK = '<meta name="generator" content="gptcli">'
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
_HEAD_BYTES = 1000
_FILES = Path(__file__).parent


def page(title: str, body: str, *, scripted: bool = False) -> str:
    """A whole page. `title` is text, `body` is markup; with `scripted` the page has the script `page.js`."""
    style = (_FILES / "page.css").read_text(encoding="utf-8")
    script = f"<script>\n{(_FILES / 'page.js').read_text(encoding='utf-8')}</script>\n" if scripted else ""
    return (
        f'<!doctype html>\n<html lang="">\n<head>\n<meta charset="utf-8">\n{_MARK}\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escaped(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n{body}{script}</body>\n</html>\n"
    )


def escaped(value: object) -> str:
    """A value as a line of text inside markup."""
    return escape(one_line(str(value)))


def data(value: Any, name: str | None = None) -> str:
    """Values for the script, under an id if they have a name; no text in them ends the element."""
    content = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    identity = "" if name is None else f' id="{name}"'
    return f'<script type="application/json"{identity}>{content}</script>\n'


def table(head: Iterable[str], rows: Iterable[Iterable[str]], numbers: Iterable[int] = ()) -> str:
    """A table from cells of markup; the columns `numbers` are aligned to the right."""
    classes = dict.fromkeys(numbers, ' class="n"')

    def line(cells: Iterable[str], kind: str) -> str:
        scope = ' scope="col"' if kind == "th" else ""
        parts = (f"<{kind}{classes.get(place, '')}{scope}>{cell}</{kind}>" for place, cell in enumerate(cells))
        return f"<tr>{''.join(parts)}</tr>\n"

    body = "".join(line(row, "td") for row in rows)
    return f'<div class="table"><table>\n<thead>{line(head, "th")}</thead>\n<tbody>{body}</tbody></table></div>\n'


def page_path(given: str | Path, setting: str) -> Path:
    """The path of a page to write, which `setting` has.

    Raises UsageError where that would replace a file that is no such page.
    """
    path = output_path(given)
    if not path.parent.is_dir():
        raise UsageError(f"`{setting}` is '{path}', and there is no folder '{path.parent}'.", "Make the folder first.")
    if path.is_dir():
        raise UsageError(f"`{setting}` is '{path}', a folder.", "Name a file in it.")
    if path.exists():
        with disk_errors(path, "Reading", f"`{setting}`"), open(path, "rb") as file:
            is_page = _MARK.encode() in file.read(_HEAD_BYTES)
        if not is_page:
            raise UsageError(f"`{setting}` is '{path}', a file that gptcli did not make.", "Choose another name.")
    return path


def write_page(path: Path, content: str, setting: str) -> None:
    """Write a page, or replace an earlier one. Raises StorageError."""
    try:
        write_file(path, content.encode())
    except StorageError as error:
        error.hint = error.hint.replace("`out`", f"`{setting}`")
        raise
