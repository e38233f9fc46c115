"""Write `cli.md`, the reference of all commands, from their `--help`.

    python docs/generate_cli.py

A test checks that the page is up to date.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from gptcli.cli.app import COMMANDS

PAGE = Path(__file__).with_name("cli.md")

INTRODUCTION = """\
# Commands

The output of `gptcli COMMAND --help` for every command. `make docs` generates this page.
"""


def render() -> str:
    """The whole page."""
    sections = [_section("gptcli"), *(_section(f"gptcli {name}") for name in command_names())]
    return INTRODUCTION + "".join(sections)


def command_names() -> list[str]:
    """Every command, in the order of `gptcli --help`."""
    return list(COMMANDS)


def _section(command: str) -> str:
    return f"\n## {command}\n\n```text\n{_help_of(command)}\n```\n"


def _help_of(command: str) -> str:
    # Without rich there are no frames and no colors, and the width does not depend on the terminal.
    environment = os.environ | {"TYPER_USE_RICH": "0", "COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"}
    arguments = [sys.executable, "-m", *command.split(), "--help"]
    done = subprocess.run(arguments, env=environment, capture_output=True, encoding="utf-8", check=True)
    return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
