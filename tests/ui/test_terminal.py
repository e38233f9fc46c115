"""Text from a model, a file or a file name never acts on a terminal; a pipe gets it unchanged."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest

from gptcli.checkpoints import names
from gptcli.checkpoints.tensors import tensor_file
from gptcli.config import ModelConfig
from gptcli.generation.stream import Piece, Sample
from gptcli.interop.huggingface import config_to_hf, tensors_to_hf
from gptcli.storage import to_json
from gptcli.tokenizer.char import char_tokenizer
from gptcli.ui import console, generated
from gptcli.ui.console import Output, printable
from gptcli.ui.generated import show_text
from gptcli.ui.tables import facts, table
from tests.conftest import ROOT, CommandLine
from tests.model.reference import random_model

BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
DANGEROUS = "".join(map(chr, [*range(9), *range(11, 32), *range(127, 160)])) + BIDI
ALPHABET = "\x07\x1b\x7f\x85\x9b\u202e\u2066ab]\n"


def acting(text: str) -> set[str]:
    """Characters of a text that would act on a terminal."""
    return {char for char in text if char in DANGEROUS}


def on_terminal(*arguments: str | Path, cwd: Path) -> tuple[str, str]:
    """Output of a command on a terminal (its CR LF as LF), and its standard error, which is a pipe."""
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "gptcli", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=terminal, stderr=subprocess.PIPE, env=environment
    )
    os.close(terminal)
    shown = b"".join(_read(controller))
    os.close(controller)
    assert process.stderr is not None
    errors = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(60) == 0, errors
    return shown.decode().replace("\r\n", "\n"), errors


def _read(controller: int) -> Iterator[bytes]:
    while True:
        try:
            yield os.read(controller, 10_000)
        except OSError:  # the other end is closed
            return


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model over ALPHABET, in a folder whose name holds an escape sequence."""
    path = tmp_path_factory.mktemp("models") / "red\x1b[31m\u202emodel"
    path.mkdir()
    tokenizer = char_tokenizer(ALPHABET)
    model = random_model(
        ModelConfig(vocab_size=tokenizer.vocab_size, n_layer=1, n_head=1, n_embd=8, block_size=16)
    ).float()
    (path / names.CONFIG).write_bytes(to_json(config_to_hf(model.config, bos_token_id=0, eos_token_id=None)))
    (path / names.TOKENIZER).write_text(tokenizer.to_json(), encoding="utf-8")
    (path / names.MODEL).write_bytes(b"".join(tensor_file(tensors_to_hf(model.state_dict(), model.config), {})))
    return path


SAMPLE = ("-n", "300", "--temperature", "5", "--seed", "1", "-q")


def test_an_interrupted_sample_ends_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    def events() -> Iterator[Piece | Sample]:
        yield Piece(0, "half a li")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        show_text(events(), 1, before="")
    assert capsys.readouterr().out == "half a li\n"


def test_what_is_escaped() -> None:
    """C0 but newline and tab, DEL, C1 and the bidirectional controls; nothing else."""
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
    assert {char for char in every if printable(char) != char} == set(DANGEROUS)
    assert printable("a\tb\n\x1b[31m\x9b\u202eé😀") == "a\tb\n\\x1b[31m\\x9b\\u202eé😀"
    assert all(unicodedata.category(char) in ("Cc", "Cf") for char in DANGEROUS)


def check_sample_on_a_terminal(folder: Path) -> None:
    shown, _ = on_terminal("sample", folder, *SAMPLE, cwd=folder.parent)
    assert not acting(shown)
    assert r"\x1b" in shown
    assert r"\x9b" in shown


def test_generated_text_on_a_terminal(folder: Path) -> None:
    check_sample_on_a_terminal(folder)


def test_raw_on_a_terminal_and_on_a_pipe(folder: Path, cli: CommandLine) -> None:
    piped = cli("sample", folder, *SAMPLE).stdout
    assert acting(piped) >= {"\x1b", "\x9b", "\u202e"}
    shown, _ = on_terminal("sample", folder, *SAMPLE, "--raw", cwd=folder.parent)
    assert shown == piped


def test_json_on_a_terminal_is_the_same_value(folder: Path, cli: CommandLine) -> None:
    shown, _ = on_terminal("sample", folder, *SAMPLE, "--json", cwd=folder.parent)
    assert not acting(shown)
    piped = cli("sample", folder, *SAMPLE, "--json").stdout
    assert acting(piped)
    assert json.loads(shown)["text"] == json.loads(piped)["text"]


def test_names_of_files_on_a_terminal(folder: Path) -> None:
    shown, errors = on_terminal("inspect", folder.name, cwd=folder.parent)
    assert r"red\x1b[31m\u202emodel" in shown
    assert not acting(errors)
    assert not acting(shown.replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "")), "styles are ours"


def test_a_result_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    Output().result("runs/a\x1b[31mb")
    assert capsys.readouterr().out == "runs/a\x1b[31mb\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    Output().result("runs/a\x1b[31mb")
    assert capsys.readouterr().out == "runs/a\\x1b[31mb\n"


def test_tables_and_facts(capsys: pytest.CaptureFixture[str]) -> None:
    bad = "a\x1b[31m\x9b\u202e"
    Output().show(table(bad, [(bad, "left")], [[bad]]), facts(bad, [(bad, bad)]), bad)
    assert not acting(capsys.readouterr().out)


SUSPENDED = """
import os, time
from gptcli.ui.console import Output
from gptcli.ui.preparing import PreparingDisplay
with PreparingDisplay(Output()) as display:
    display.update("hashing", 1, 2)
    display.update("reading", 1, 2)
    os.write(1, b"ready\\n")
    time.sleep(60)
"""
HIDE, SHOW, UP = b"\x1b[?25l", b"\x1b[?25h", b"\x1b[1A"


def test_a_suspended_display_shows_the_cursor() -> None:
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", SUSPENDED],
        cwd=ROOT,
        env=os.environ | {"TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=terminal,
        process_group=0,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTSTP)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    shown = b""
    while not (HIDE in shown and SHOW in shown):  # it may arrive in pieces
        shown += os.read(controller, 10_000)
    assert shown.rindex(SHOW) > shown.rindex(HIDE)
    assert b"Reading" not in shown.rpartition(UP)[2], "the bar was removed"
    process.send_signal(signal.SIGCONT)
    again = b""
    while not (HIDE in again and b"Reading" in again):
        again += os.read(controller, 10_000)
    assert UP not in again.partition(b"Reading")[0], "the lines of the shell stay"
    process.kill()
    process.wait()
    process.stdout.close()
    for descriptor in (controller, terminal):
        os.close(descriptor)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_split_stream_smuggles_nothing(
    size: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A text in pieces of any size is shown as the whole text would be."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    text = f"a\x1b]0;title\x07{DANGEROUS}\x1b\x1b[2Jb"
    pieces = [Piece(0, text[place : place + size]) for place in range(0, len(text), size)]
    show_text([*pieces, Sample(0, text, 1, "length", 0, None, 1.0, 0)], 1, before="")
    assert capsys.readouterr().out == printable(text) + "\n"


def test_control_without_escaping(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(console, "printable", lambda text: text)
    with pytest.raises(AssertionError):
        test_a_split_stream_smuggles_nothing(1, monkeypatch, capsys)
    capsys.readouterr()
    with pytest.raises(AssertionError):
        test_a_result_on_a_terminal(monkeypatch, capsys)


CRLF = "\r\n\n\r\none\r\ntwo\rthree\r\n"


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("trim", [False, True])
def test_line_ends_and_leading_blank_lines(
    size: int, trim: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A terminal shows CR LF as a line end, and a pipe gets what was generated."""
    pieces = [Piece(index, CRLF[at : at + size]) for index in (0, 1) for at in range(0, len(CRLF), size)]
    ends = [Sample(index, CRLF, 1, "length", 0, None, 1.0, 0) for index in (0, 1)]
    show_text([*pieces, *ends], 2, before="", trim=trim)
    line = f"{generated.SEPARATOR}\n"
    assert capsys.readouterr().out == CRLF + line + CRLF
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show_text([*pieces, *ends], 2, before="", trim=trim)
    text = ("" if trim else "\n\n\n") + "one\ntwo\\x0dthree\n"
    assert capsys.readouterr().out == text + line + text
    show_text([*pieces, *ends], 2, before="", trim=trim, raw=True)
    assert capsys.readouterr().out == CRLF + line + CRLF


def test_a_text_that_ends_within_a_line_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show_text([Piece(0, "one\r"), Sample(0, "one\r", 1, "length", 0, None, 1.0, 0)], 1, before="")
    assert capsys.readouterr().out == "one\n"
