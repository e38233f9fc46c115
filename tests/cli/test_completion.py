"""Completion of commands and options in a shell, which asks the program at each Tab."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import ROOT, CommandLine

PROGRAM = """
import sys
from gptcli.__main__ import main
try:
    main()
finally:
    print("torch" in sys.modules, file=sys.stderr)
"""


def completions(shell: str, line: str) -> tuple[str, str]:
    """What the program answers to a shell for a line, whose last word is completed, and its standard error."""
    words = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    asked = words | {"_GPTCLI_COMPLETE": f"complete_{shell}"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=CommandLine._environment(asked),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout, done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("gptcli tok", "tokenize"),
        ("gptcli train book.txt --max-st", "--max-steps"),
        ("gptcli sample one two --temp", "--temperature"),
    ],
)
def test_commands_and_options_without_torch(shell: str, line: str, expected: str) -> None:
    """Also on a line that is wrong so far."""
    answer, errors = completions(shell, line)
    assert expected in answer
    assert "Error" not in answer
    assert errors == "False\n"


def test_the_words_of_an_option() -> None:
    answer, _ = completions("bash", "gptcli train book.txt --resume ")
    assert answer.split() == ["auto", "never", "must"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_asks_the_program(shell: str, cli: CommandLine) -> None:
    done = cli("--help", env={"_GPTCLI_COMPLETE": f"source_{shell}"})
    assert done.code == 0
    assert f"_GPTCLI_COMPLETE=complete_{shell}" in done.stdout
