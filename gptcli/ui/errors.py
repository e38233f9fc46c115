"""How an error looks: a sentence, and a hint on the next line."""

from __future__ import annotations

from rich.text import Text

from gptcli.ui.console import Output, printable, wording


def show_error(message: str, hint: str, *, label: str = "Error", no_color: bool = False) -> None:
    """Print a message and its hint ("" for none) on standard error, with `label` ("" for none) before the message."""
    console = Output(no_color=no_color).err
    for name, style, text in ((label, "bold red", message), ("Hint", "bold", hint)):
        if text:
            line = Text.assemble((f"{name}: ", style) if name else "", printable(wording.get()(text)))
            console.print(line, soft_wrap=True)
