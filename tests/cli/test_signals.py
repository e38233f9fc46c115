"""A stop signal ends any command quietly with 128 plus the signal, whenever it comes."""

from __future__ import annotations

import os
import pty
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from gptcli.cli import graceful_stop
from gptcli.signals import STOP_SIGNALS
from tests.conftest import ROOT, CommandLine

PROGRAM = """
import os, signal, sys
from gptcli.__main__ import main
from gptcli.cli import app

def stop(signum=signal.{signum}):
    os.kill(os.getpid(), signum)

def bench():
    print("begun")
    {body}
    print("done")

import gptcli.cli.bench as module
module.bench = bench
sys.argv = ["gptcli", "bench"]
main()
"""


def ended(body: str, signum: str = "SIGINT", cwd: Path = ROOT) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command with this body, in which `stop()` sends it the signal."""
    code = PROGRAM.format(body=body.replace("\n", "\n    "), signum=signum)
    done = subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("signum", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_unwinds_a_command(signum: str) -> None:
    code = 128 + signal.Signals[signum]
    assert ended("try: stop()\nfinally: print('cleaned up')", signum) == (code, "begun\ncleaned up\n", "")


def on_terminal(body: str) -> tuple[int, str]:
    """Exit code of a command with this body, and what a terminal behind its standard error shows."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(body=body, signum="SIGINT")], cwd=ROOT, stdout=subprocess.DEVNULL,
        stderr=terminal,
    )  # fmt: skip
    os.close(terminal)
    shown = b""
    with suppress(OSError):  # the other end is closed
        while more := os.read(controller, 10_000):
            shown += more
    os.close(controller)
    return process.wait(60), shown.decode()


SAYS_SO = "\r\x1b[KStopped.\r\n"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("stop()", SAYS_SO),
        ("try: stop()\n    except BaseException: raise AttributeError", SAYS_SO),
        ("sys.modules['gptcli.signals'].end_on_signals(); stop()", SAYS_SO),
        ("raise sys.modules['gptcli.signals'].Stopped(2)", SAYS_SO),
        ("e = sys.modules['gptcli.signals'].Stopped(2); e.announced = True; raise e", ""),
    ],
)
def test_a_terminal_shows_that_a_signal_stopped_the_command(body: str, said: str) -> None:
    code, shown = on_terminal(body)
    assert (code, shown.removesuffix("\x1b[?25h")) == (130, said)


def test_a_second_signal_ends_at_once() -> None:
    code, out, err = ended("try: stop()\nfinally: stop(signal.SIGTERM); print('cleaned up')")
    assert (code, err) == (143, "")
    assert "cleaned up" not in out


def test_a_signal_during_an_import_ends_at_once(tmp_path: Path) -> None:
    """An exception that passes through the C++ code of a module that is being imported would abort the process."""
    (tmp_path / "module_that_is_stopped.py").write_text("import __main__\n__main__.stop()\n", encoding="utf-8")
    body = f"sys.path.append({str(tmp_path)!r})\ntry: import module_that_is_stopped\nfinally: print('unwound')"
    assert ended(body) == (130, "begun\n", "")


READING = """
import os, signal, sys
from gptcli.__main__ import main
from gptcli.dataset import {module}

original = {module}.{function}

def stopped(*arguments, **options):
    {before}
    os.kill(os.getpid(), signal.SIGINT)

{module}.{function} = stopped
sys.argv = ["gptcli", *{arguments!r}]
main()
"""


@pytest.mark.parametrize("command", [["tokenize", "book.txt", "-o", "made"], ["train", "book.txt", "-o", "made"]])
def test_ctrl_c_while_reading_says_that_nothing_was_written(cli: CommandLine, corpus: str, command: list[str]) -> None:
    (cli.folder / "book.txt").write_text(corpus[:20_000], encoding="utf-8")

    def ended_at(module: str, function: str, before: str, *more: str) -> tuple[int, str, str]:
        code = READING.format(module=module, function=function, before=before, arguments=[*command, *more])
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=cli.folder, capture_output=True, text=True, check=False,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    assert ended_at("preparation", "scan", "pass") == (130, "", "Stopped. Nothing was written.\n")
    assert ended_at("preparation", "scan", "pass", "--quiet") == (130, "", "")
    assert sorted(path.name for path in cli.folder.rglob("*.json")) == []
    code, out, err = ended_at("preparation", "open_dataset", "original(*arguments, **options)")
    assert (code, out, "Nothing was written" in err) == (130, "", False), "the dataset is there"
    assert [path.name for path in cli.folder.rglob("dataset.json")] == ["dataset.json"]


@pytest.mark.parametrize("swallow", ["pass", "raise AttributeError('half imported')"])
def test_code_that_swallows_a_signal_does_not_hide_it(swallow: str) -> None:
    code, _, err = ended(f"try: stop()\nexcept BaseException: {swallow}")
    assert (code, err) == (130, "")


def test_an_interrupted_training_is_no_error() -> None:
    code, _, err = ended(
        "from gptcli.errors import Interrupted\nraise Interrupted('Stopped.', 'Resume.', signal.SIGTERM)"
    )
    assert (code, err.splitlines()) == (143, ["Stopped.", "Hint: Resume."])


def kill_at(cli: CommandLine, arguments: list[str], delay: float, signum: int) -> None:
    """Start a command, send it the signal after a delay, and check how it ends."""
    shutil.rmtree(cli.folder / "made", ignore_errors=True)
    process = cli.start(*arguments)
    time.sleep(delay)
    process.send_signal(signum)
    _, err = process.communicate(timeout=100)
    if "<frozen site>" in err or "<frozen runpy>" in err:
        return  # Python itself is starting
    assert process.returncode in (0, 128 + signum, -signum), (delay, signum, err)  # -signum: Python starts or ends
    assert not any(word in err for word in ("Traceback", "terminate", "unexpected error", "Exception ignored")), err


SMALL = ["--preset", "nano", "--n-layer", "1", "--n-head", "2", "--n-embd", "16", "--block-size", "16", "-q"]
COMMANDS = [
    ["train", "book.txt", "-o", "run", *SMALL, "--max-steps", "1000000", "--compile", "off"],
    ["tokenize", "book.txt", "-o", "made"],
    ["sample", "other", "-n", "1000000", "-q"],
]


def check_kills(cli: CommandLine, corpus: str, tries: int) -> None:
    chance = random.Random(7)
    (cli.folder / "book.txt").write_text(corpus[:20_000], encoding="utf-8")
    assert cli("train", "book.txt", "-o", "other", *SMALL, "--max-steps", "1").code == 0
    for _ in range(tries):
        kill_at(cli, chance.choice(COMMANDS), chance.uniform(0.2, 3), chance.choice(STOP_SIGNALS))


def test_some_kills(cli: CommandLine, corpus: str) -> None:
    check_kills(cli, corpus, 5)


@pytest.mark.campaign
def test_many_kills(cli: CommandLine, corpus: str) -> None:
    check_kills(cli, corpus, 200)


def test_the_second_signal_of_a_training_shows_the_cursor_again(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(graceful_stop, "end_now", codes.append)
    with graceful_stop.GracefulStop(lambda: None) as stop:
        stop.arm()
        signal.raise_signal(signal.SIGINT)
        assert (stop.requested(), codes) == (True, [])
        signal.raise_signal(signal.SIGTERM)
    assert codes == [143], "`end_now` shows the cursor"
