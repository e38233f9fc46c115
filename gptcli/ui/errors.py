"""How an error looks: one sentence, and a hint on the next line."""

from __future__ import annotations

from rich.text import Text

from gptcli.ui.console import Output, printable, wording


def show_error(message: str, hint: str, *, no_color: bool = False) -> None:
    """Print an error and its hint ("" for none) on standard error."""
    console = Output(no_color=no_color).err
    in_words = wording.get()
    lines = [Text.assemble(("Error: ", "bold red"), printable(in_words(message)))]
    if hint:
        lines.append(Text.assemble(("Hint: ", "bold"), printable(in_words(hint))))
    for line in lines:
        console.print(line, soft_wrap=True)
