"""`gptcli sample -i` on a terminal: the text so far is context; commands; Ctrl-C stops the text and not the program."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gptcli.cli import chat
from gptcli.cli.chat import Chat
from gptcli.config import SamplingConfig
from gptcli.generation.conversation import Conversation
from gptcli.generation.loaded_model import LoadedModel, load
from gptcli.signals import Stopped
from gptcli.ui import generated
from gptcli.ui.console import Output
from tests.conftest import ROOT
from tests.generation.conftest import model_folder


@pytest.fixture(scope="module")
def model(folder: Path) -> LoadedModel:
    return load(folder, device="cpu")


def test_the_prompt_is_what_was_typed_and_generated(model: LoadedModel) -> None:
    conversation = Conversation(model)
    first = conversation.typed("ab")
    assert first is not None
    assert (first.text, first.ids) == ("ab", model.encode("ab").ids)
    conversation.generated("cd")
    second = conversation.typed("e")
    assert second is not None
    assert second.text == "abcd\ne"
    conversation.generated("f\n")
    third = conversation.typed("")
    assert third is not None
    assert third.text == "abcd\nef\n", "an empty line continues the text as it is"
    fourth = conversation.typed("g")
    assert fourth is not None
    assert fourth.text == "abcd\nef\ng", "one line end is enough"
    conversation.forget()
    fifth = conversation.typed("a")
    assert fifth is not None
    assert fifth.text == "a"


def test_unknown_characters_are_skipped_with_a_note(model: LoadedModel) -> None:
    conversation = Conversation(model)
    prompt = conversation.typed("aXb")
    assert prompt is not None
    assert prompt.text == "ab"
    assert "X" in prompt.notes[0]
    again = conversation.typed("c")
    assert again is not None
    assert (again.text, again.notes) == ("ab\nc", ()), "said once"
    assert conversation.typed("你好") is None
    assert conversation.text == "ab\nc"


def test_a_model_without_line_ends_or_with_those_of_windows(tmp_path: Path) -> None:
    without = Conversation(load(model_folder(tmp_path / "crlf", "ab\r\n"), device="cpu"))
    without.typed("a")
    without.generated("b\r\na")
    prompt = without.typed("b")
    assert prompt is not None
    assert prompt.text == "ab\r\na\r\nb"


def turns(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch, *lines: str, **settings: object
) -> list[tuple[str, SamplingConfig]]:
    """Prompt and settings of each text of a chat in which these lines are typed."""
    asked: list[tuple[str, SamplingConfig]] = []
    stream = LoadedModel.stream

    def record(self: LoadedModel, prompt: object, config: SamplingConfig) -> object:
        asked.append((getattr(prompt, "text", ""), config))
        return stream(self, prompt, config)  # type: ignore[arg-type]

    monkeypatch.setattr(LoadedModel, "stream", record)
    monkeypatch.setattr(chat, "typed_texts", lambda: iter(lines))
    configs = settings.pop("configs", None) or [SamplingConfig(max_new_tokens=3, seed=5, **settings)]  # type: ignore[arg-type]
    Chat(model, configs, Output(), raw=False).run()  # type: ignore[arg-type]
    return asked


def test_each_text_is_context_of_the_next(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = model.generate("ab", max_new_tokens=3, seed=5)[0].text
    asked = turns(model, monkeypatch, "ab", "c", "/forget", "d", "/quit", "never asked")
    shown = capsys.readouterr()
    assert asked[0][0] == "ab"
    assert asked[1][0] == f"ab{first}" + ("" if first.endswith("\n") else "\n") + "c"
    assert asked[2][0] == "d"
    assert [config.seed for _, config in asked] == [5, 6, 7], "nothing comes after /quit"
    assert shown.out.startswith(first)
    assert "/help" in shown.err


def test_commands(model: LoadedModel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked = turns(
        model, monkeypatch, "/temp 0.25", "/seed 40", "a", "/nope b", "/temp hot", "/temp -1", "/seed", "//", "/help"
    )
    said = capsys.readouterr().err
    assert [(config.temperature, config.seed) for _, config in asked] == [(0.25, 40)]
    assert "no command /nope" in said
    for wrong in ("'hot'", "'-1'", "''"):
        assert f"cannot be {wrong}" in said
    assert "knows none" in said, "// is a slash, which this model does not know"
    assert all(name in said for name in ("/forget", "/temp", "/seed", "/help"))


def test_several_texts_are_no_context(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    both = [SamplingConfig(max_new_tokens=3, seed=5, temperature=heat) for heat in (0.1, 2.0)]
    asked = turns(model, monkeypatch, "ab", "c", configs=both)
    assert [text for text, _ in asked] == ["ab", "ab", "c", "c"]
    assert [config.seed for _, config in asked] == [5, 5, 6, 6]


def test_ctrl_c_soon_after_a_text_was_meant_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import prompt_toolkit

    answers: list[object] = [KeyboardInterrupt(), "abc", KeyboardInterrupt()]

    class Session:
        def prompt(self, _mark: str) -> str:
            answer = answers.pop(0)
            if not answers:
                monkeypatch.setattr(generated, "REACTION_SECONDS", -1.0)
            if isinstance(answer, BaseException):
                raise answer
            return str(answer)

    monkeypatch.setattr(prompt_toolkit, "PromptSession", Session)
    typed = generated.typed_texts()
    assert next(typed) == "abc"
    with pytest.raises(KeyboardInterrupt):
        next(typed)
    answers[:] = [Stopped(signal.SIGTERM), "abc"]
    monkeypatch.undo()
    monkeypatch.setattr(prompt_toolkit, "PromptSession", Session)
    with pytest.raises(Stopped):
        next(generated.typed_texts())


READY = "\x1b[?2004h"
"""The prompt waits: it has asked the terminal to mark what is pasted."""


class Terminal:
    """A command with a terminal for its input and outputs."""

    def __init__(self, *arguments: str | Path) -> None:
        self._controller, terminal = pty.openpty()
        command = [sys.executable, "-m", "gptcli", *map(str, arguments)]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
        self.process = subprocess.Popen(
            command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment, start_new_session=True
        )
        os.close(terminal)
        self.shown, self._read = b"", 0

    def types(self, text: str) -> None:
        self.until(READY)
        os.write(self._controller, text.encode())

    def until(self, text: str) -> None:
        """Wait until the terminal shows a text, after the one of the last call."""
        while text.encode() not in self.shown[self._read :]:
            assert select.select([self._controller], [], [], 60)[0], self.shown
            assert len(self.shown) < 30_000, "the text does not end"
            self.shown += os.read(self._controller, 10_000)  # an OSError if the command has ended
        self._read = self.shown.index(text.encode(), self._read) + len(text.encode())

    def close(self) -> None:
        os.close(self._controller)


@contextmanager
def on_terminal(*arguments: str | Path) -> Iterator[Terminal]:
    terminal = Terminal(*arguments)
    try:
        yield terminal
    finally:
        terminal.process.kill()
        terminal.process.wait(60)
        terminal.close()


def test_a_chat_on_a_terminal(folder: Path) -> None:
    with on_terminal("sample", folder, "-i", "-n", "10000000", "--seed", "1") as terminal:
        terminal.until("/help")
        terminal.types("/temp 0.5\r")
        terminal.until("Temperature 0.5.")
        terminal.types("\x1b[200~ab\ncd\x1b[201~\r")  # a paste
        terminal.until("a")
        terminal.until("\n")
        terminal.until("e")  # generated
        terminal.process.send_signal(signal.SIGINT)
        terminal.until("Stopped the text")
        terminal.types("/forget\r")
        terminal.until("The text so far is forgotten.")
        terminal.types("\x04")
        assert terminal.process.wait(60) == 0
        assert b"Traceback" not in terminal.shown


def test_sigterm_ends_a_chat(folder: Path) -> None:
    with on_terminal("sample", folder, "-i", "-n", "10000000", "--seed", "1") as terminal:
        terminal.types("ab\r")
        terminal.until("e")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.process.wait(60) == 143
