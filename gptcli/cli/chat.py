"""`gptcli sample -i` on a terminal: texts are typed and continued in turns, with commands between them."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gptcli.cli.graceful_stop import GracefulStop
from gptcli.config import SamplingConfig, parse_section
from gptcli.config.problems import allowed_values, cannot_be
from gptcli.errors import ConfigError, UsageError
from gptcli.generation.conversation import Conversation
from gptcli.generation.loaded_model import LoadedModel
from gptcli.generation.stream import Piece, Sample
from gptcli.signals import Stopped
from gptcli.ui.generated import show_samples, typed_texts

if TYPE_CHECKING:
    from gptcli.ui.console import Output

COMMANDS = {
    "/forget": "Forget the text so far.",
    "/temp 0.8": "Set the temperature.",
    "/seed 7": "Set the seed of the next text; later ones count up from it.",
    "/help": "Show this.",
    "/quit": "End, as Ctrl-D does.",
}
"""Each command as an example, with what it does."""
_FIELDS = {"/temp": ("temperature", float), "/seed": ("seed", int)}


class Chat:
    """The state between two prompts: the settings of the next texts, and the text so far."""

    def __init__(self, model: LoadedModel, configs: Sequence[SamplingConfig], output: Output, *, raw: bool) -> None:
        self.configs = list(configs)
        """The settings of the next text; several are compared with each other."""
        self._model, self._output, self._raw = model, output, raw
        self._conversation = Conversation(model)

    @property
    def keeps_context(self) -> bool:
        """Whether the text so far is the context of the next one; of several texts none would be the one to keep."""
        return len(self.configs) == 1 and self.configs[0].num_samples == 1

    def run(self) -> None:
        """Take turns until Ctrl-D. Raises KeyboardInterrupt for Ctrl-C while nothing is generated."""
        kept = "The text so far is kept as context. " if self.keeps_context else ""
        self._output.note(f"Type a text to continue. {kept}/help shows the commands, Ctrl-D ends.")
        for line in typed_texts():
            if line == "/quit":
                return
            if line.startswith("/") and not line.startswith("//"):
                self._obey(*line.split(maxsplit=1))
            else:
                self._continue(line.removeprefix("/") if line.startswith("//") else line)

    def _continue(self, line: str) -> None:
        prompt = self._conversation.typed(line)
        if prompt is None:
            self._output.warn("The model knows none of these characters.")
            return
        heard: list[Piece | Sample] = []
        with GracefulStop(lambda: None, copies_for=1.0) as stop:
            stop.arm()
            streams = [(config, _until(stop, self._model.stream(prompt, config), heard)) for config in self.configs]
            try:
                show_samples(streams, prompt, self._output, echo=False, raw=self._raw)
            except Stopped:
                self._output.note("Stopped the text. Ctrl-D ends the program.")
        if stop.signum not in (0, signal.SIGINT):
            raise Stopped(stop.signum)
        self._take(heard)

    def _take(self, heard: Sequence[Piece | Sample]) -> None:
        """Keep what was generated, and take the next seeds."""
        ended = any(isinstance(event, Sample) and event.finish_reason == "end_of_text" for event in heard)
        if not self.keeps_context:
            self._conversation.forget()
        elif ended:
            self._conversation.forget()
            self._output.note("The model has ended its text: the next one starts without context.")
        else:
            self._conversation.generated("".join(event.text for event in heard if isinstance(event, Piece)))
        following = {"seed": self.configs[0].seed + self.configs[0].num_samples}
        self.configs = [config.model_copy(update=following) for config in self.configs]

    def _obey(self, name: str, value: str = "") -> None:
        """Carry out a command, or say why not."""
        if name == "/help":
            for command, summary in COMMANDS.items():
                self._output.note(f"{command:<12}{summary}")
            self._output.note(
                "An empty line lets the model continue. A text that begins with a slash is typed as //text."
            )
        elif name == "/forget":
            self._conversation.forget()
            self._output.note("The text so far is forgotten.")
        elif name in _FIELDS:
            try:
                self._set(name, value)
            except UsageError as error:
                self._output.warn(error.message)
        else:
            self._output.warn(f"There is no command {name}. /help lists them; a text with a slash begins with //.")

    def _set(self, name: str, value: str) -> None:
        """Change a setting of the next texts; raises UsageError."""
        field, kind = _FIELDS[name]
        try:
            changed = self.configs[0].model_dump() | {field: kind(value)}
            first = parse_section(SamplingConfig, changed)
        except (ValueError, ConfigError):
            reason = f"must be {allowed_values(SamplingConfig, field)}"
            raise UsageError(f"{cannot_be(name, value, reason)}.") from None
        if field == "seed":
            self.configs = [config.model_copy(update={"seed": first.seed}) for config in self.configs]
        else:
            self.configs = [first]
        self._output.note(f"{field.capitalize()} {getattr(first, field)}.")


def _until(
    stop: GracefulStop, events: Iterator[Piece | Sample], heard: list[Piece | Sample]
) -> Iterator[Piece | Sample]:
    """The events of a text, which `heard` gets too. Raises Stopped once a signal asks to stop."""
    for event in events:
        heard.append(event)
        yield event
        if stop.requested():
            raise Stopped(stop.signum)
