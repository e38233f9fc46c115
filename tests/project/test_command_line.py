"""The command line as a newcomer meets it: quick help, clear errors, correct exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from docs.generate_cli import command_names
from gptcli import __version__
from gptcli.cli.app import COMMANDS, app
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
    assert "<bool>" not in done.stdout, "a flag takes no value"
    loaded = set(json.loads(done.stderr.splitlines()[-1]))
    assert "typer" in loaded  # the probe sees what is loaded
    assert not loaded & HEAVY


SPIN_PROBE = """
import sys
from gptcli.cli import threads
threads.spin_where_idle = lambda: sys.exit("late" if "torch" in sys.modules else "in time")
from gptcli.cli.app import app
app(sys.argv[1:])
"""


@pytest.mark.parametrize("command", ["sample", "bench"])
def test_the_spin_count_is_set_before_torch_is_imported(command: str) -> None:
    """OpenMP reads the variable once, when it is loaded."""
    probe = [sys.executable, "-c", SPIN_PROBE, command, "--verbose"]
    done = subprocess.run(probe, cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    assert done.stderr.splitlines()[-1] == "in time"


def test_version(cli: CommandLine) -> None:
    assert cli("--version").stdout == f"gptcli {__version__}\n"


def test_wrong_usage_ends_with_2(cli: CommandLine) -> None:
    result = cli("no-such-command")
    assert (result.code, result.stdout) == (2, "")
    message, hint = result.stderr.splitlines()
    assert message.startswith("Error: ")
    assert "no-such-command" in message
    assert "train" in hint


@pytest.mark.parametrize("arguments", [["-dash.txt"], ["-out.txt"], ["x.txt", "-dash.txt"]])
def test_a_file_whose_name_begins_with_a_dash(cli: CommandLine, arguments: list[str]) -> None:
    (cli.folder / arguments[-1]).write_text("text")
    result = cli("train", *arguments)
    assert result.code == 2
    assert f"./{arguments[-1]}" in result.stderr


def test_the_list_of_commands_has_the_first_line_of_their_help() -> None:
    group: Any = typer.main.get_command(app)
    helps = {name: command.load().help for name, command in group.commands.items()}
    assert {name: text.splitlines()[0] for name, text in helps.items()} == COMMANDS
    assert not re.search(r"[^\n]\n[^\n]", "".join(helps.values())), "no line ends in the middle of a paragraph"


def run(redirection: str, *arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    command = f'"$PYTHON" -m gptcli {" ".join(arguments)} {redirection}'
    variables = os.environ | {"PYTHON": sys.executable, "PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(["sh", "-c", command], cwd=cwd, env=variables, capture_output=True, text=True, check=False)


RESULTS = [["--help"], ["train", "--help"], ["inspect", "--preset", "nano"], ["inspect", "--machine", "--json"]]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("arguments", RESULTS)
def test_a_full_disk_behind_standard_output(arguments: list[str]) -> None:
    done = run("> /dev/full", *arguments)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert "no space left" in line


@pytest.mark.parametrize("arguments", RESULTS)
def test_a_result_that_cannot_be_written_is_an_error(arguments: list[str]) -> None:
    done = run(">&-", *arguments)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert "standard output is closed" in line
    assert run(">&- 2>&-", *arguments).returncode == 1


SMALL = "--preset nano --n-layer 1 --n-head 1 --n-embd 8 --block-size 8 --max-steps 1 --compile off -q"
OF_A_RUN = [
    "sample run -n 5",
    "sample run -n 5 --json",
    "eval run book.txt",
    "eval run book.txt --tokens",
    "tokenize book.txt -o dataset --force",
    "export run --to hf --force",
    "report run",
    f"train book.txt -o other --resume never {SMALL}",
]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text and a run."""
    folder = tmp_path_factory.mktemp("outputs")
    (folder / "book.txt").write_text("a short text\n" * 50)
    assert CommandLine(folder)("train", "book.txt", "-o", "run", *SMALL.split()).code == 0
    return folder


@pytest.mark.parametrize("arguments", OF_A_RUN)
def test_no_command_loses_its_result_in_silence(arguments: str, workplace: Path) -> None:
    done = run(">&-", *arguments.split(), cwd=workplace)
    assert done.returncode == 1
    assert "standard output is closed" in done.stderr.splitlines()[-1]
    receiver, sender = os.pipe()
    os.close(receiver)
    gone = subprocess.run(
        [sys.executable, "-m", "gptcli", *arguments.split()], cwd=workplace, env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=sender, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(sender)
    assert (gone.returncode, "Error" in gone.stderr) == (141, False), gone.stderr


@pytest.mark.parametrize("arguments", RESULTS[1:3])
def test_a_closed_standard_error_is_no_problem(arguments: list[str]) -> None:
    done = run("2>&-", *arguments)
    assert done.returncode == 0
    assert done.stdout


@pytest.mark.parametrize("arguments", RESULTS)
@pytest.mark.parametrize("with_rich", ["0", "1"])
def test_a_reader_that_is_gone(arguments: list[str], with_rich: str) -> None:
    receiver, sender = os.pipe()
    os.close(receiver)
    command = [sys.executable, "-m", "gptcli", *arguments]
    variables = os.environ | {"TYPER_USE_RICH": with_rich}
    done = subprocess.run(command, cwd=ROOT, env=variables, stdout=sender, stderr=subprocess.PIPE, check=False)
    os.close(sender)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("arguments", [["--help"], ["inspect", "--preset", "nano"], ["inspect", "gibt-es-nicht-ä"]])
def test_an_ascii_terminal(arguments: list[str]) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii", "PYTHONCOERCECLOCALE": "0"}
    done = run("", *arguments, **ascii_only)
    assert (done.stdout + done.stderr).isascii()
    assert done.returncode == (1 if "gibt-es-nicht-ä" in arguments else 0)
    assert "unexpected error" not in done.stderr


def test_verbose_prints_versions_time_and_memory(cli: CommandLine) -> None:
    (cli.folder / "a.txt").write_text("the cat sat on the mat\n" * 20, encoding="utf-8")
    told = cli("tokenize", "a.txt", "-o", "data", "-v").stderr
    assert told.startswith(f"gptcli {__version__}, Python ")
    for part in ("Hashing: ", "Encoding: ", "Text: a.txt, 460 bytes.", "s of processor time; peak memory "):
        assert part in told
    assert "peak memory" not in cli("tokenize", "a.txt", "-o", "data").stderr
    assert cli("train", "data", "--dry-run").code == 0  # a dataset has no stages
