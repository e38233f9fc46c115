"""A text that a person and a model write in turns: each prompt is what was typed and generated so far."""

from __future__ import annotations

from dataclasses import replace

from gptcli.generation.loaded_model import LoadedModel
from gptcli.generation.prompt import Prompt


class Conversation:
    """The text so far, which the model continues."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self.text = ""
        """What was typed and generated since the beginning, or since `forget`."""

    def typed(self, text: str) -> Prompt | None:
        """The prompt for what was typed: after the text so far, on a line of its own.

        Characters that the model does not know are left out, with a note. An empty text continues the text so far as it
        is. None if nothing is left of what was typed.
        """
        said = self._model.encode(text, unknown="skip")
        if text and not said.text:
            return None
        end_of_line = "\r\n" if "\r\n" in self.text else "\n"
        between = end_of_line if self.text and said.text and not self.text.endswith("\n") else ""
        whole = self._model.encode(self.text + between + said.text, unknown="skip")  # a model may know no line end
        self.text = whole.text
        return replace(whole, notes=said.notes)

    def generated(self, text: str) -> None:
        """Take the text that the model has generated."""
        self.text += text

    def forget(self) -> None:
        """Begin anew."""
        self.text = ""
