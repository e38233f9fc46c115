"""The command as a newcomer meets it: quick to answer, and the same from both of its names."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from docs.generate_cli import command_names
from gptcli import __version__
from tests.conftest import ROOT, CommandLine

HEAVY = {"torch", "tensorboard", "transformers", "tokenizers", "numpy"}

PROBE = """
import json, sys
from gptcli.__main__ import main
sys.argv[0] = "gptcli"
try:
    main()
except SystemExit:
    pass
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})), file=sys.stderr)
"""


@pytest.mark.parametrize("command", [None, *command_names()])
def test_help_loads_nothing_heavy(command: str | None) -> None:
    arguments = [command, "--help"] if command else ["--help"]
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments], cwd=ROOT, capture_output=True, encoding="utf-8", check=True
    )
    assert "Usage: gptcli" in done.stdout
    loaded = set(json.loads(done.stderr.splitlines()[-1]))
    assert "typer" in loaded  # the probe sees what is loaded
    assert not loaded & HEAVY


def test_version(cli: CommandLine) -> None:
    assert cli("--version").stdout == f"gptcli {__version__}\n"


def test_wrong_usage_ends_with_2(cli: CommandLine) -> None:
    result = cli("no-such-command")
    assert (result.code, result.stdout) == (2, "")
    assert "no-such-command" in result.stderr
