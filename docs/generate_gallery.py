"""Take the pictures of gallery.md, from the runs of its commands under runs/.

    python -m docs.generate_gallery            # all pictures but that of a training
    python -m docs.generate_gallery --live     # a training while it runs; it takes a minute of an idle machine

It needs a Chromium, and tmux for `--live`. Train the other runs first, with the commands of gallery.md.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import tempfile
import time
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from tests.ui.browser import Page, find_browser, running_browser

PICTURES = Path(__file__).with_name("pictures")
TEXT = "Return the value of the named attribute"
COLUMNS, ROWS = 100, 36
TAKEN_AT = 0.66
"""Part of a training after which its picture is taken."""
COLORS = TerminalTheme(
    (13, 17, 23),
    (230, 237, 243),
    [
        *((72, 79, 88), (255, 123, 114), (63, 185, 80), (210, 153, 34)),
        *((88, 166, 255), (188, 140, 255), (57, 197, 207), (177, 186, 196)),
    ],
)
"""Background, text, and the eight colors of a terminal, from black to white."""
_TERMINAL = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; background: #0d1117; }}
pre {{ display: inline-block; margin: 0; padding: 16px 20px; color: #e6edf3; }}
pre {{ font: 14px/1.16 "DejaVu Sans Mono", monospace; }}
</style><pre>{content}</pre>"""


def main() -> None:
    program = find_browser()
    assert program, "no Chromium here"
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name, running_browser(program, Path(name)) as browser:
        folder, tab = Path(name), browser.new_page()
        if "--live" in sys.argv:
            of_a_training(tab, folder)
        else:
            of_pages(tab, folder)
            of_terminals(tab, folder)


def of_pages(tab: Page, folder: Path) -> None:
    """Sections of the pages."""
    one, two, post = folder / "report.html", folder / "both.html", folder / "post.html"
    run("gptcli", "report", "runs/python-docs", "--text", TEXT, "-o", str(one))
    run("gptcli", "report", "runs/python-docs", "runs/gpt2-bpe", "-o", str(two))
    run("gptcli", "report", "runs/post-norm", "-o", str(post))
    tab.open(one, width=1100)
    part(tab, "report", "header", "[aria-labelledby=curves]")
    part(tab, "samples-over-time", "[aria-labelledby=samples-over-time]")
    tab.point_at("[data-surprise] [data-token='23']")
    part(tab, "samples-by-surprise", "[aria-labelledby=samples-by-surprise]")
    tab.point_at("#attention-text [data-token='21']")
    part(tab, "attention", "[aria-labelledby=attention]")
    part(tab, "logit-lens", "[aria-labelledby=logit-lens]")
    tab.open(one, width=1100, dark=True)
    part(tab, "positions-dark", "[aria-labelledby=positions]")
    tab.open(post, width=1100)
    part(tab, "layers", ".charts figure:nth-of-type(5)", ".charts figure:nth-of-type(6)", margin=6)
    tab.open(two, width=1100)
    part(tab, "two-runs", "[aria-labelledby=runs]", "[aria-labelledby=curves]")


def part(tab: Page, name: str, first: str, last: str | None = None, margin: int = 20) -> None:
    """A picture of a page from one element to another."""
    tab.picture(PICTURES / f"{name}.png", first, last or first, margin)


def of_terminals(tab: Page, folder: Path) -> None:
    """Commands on a terminal with colors."""
    (folder / "mine.txt").write_text("Return the value of the object. Shakespeare wrote plays.\n", encoding="utf-8")
    commands = {
        "terminal-attention": ("inspect", "runs/python-docs", "--attention", TEXT),
        "terminal-head": ("inspect", "runs/python-docs", "--attention", "Return the value", "--head", "0.0"),
        "terminal-surprise": ("eval", "runs/python-docs", str(folder / "mine.txt"), "--tokens"),
    }
    for name, arguments in commands.items():
        picture(tab, folder, name, on_terminal("gptcli", *arguments))


def of_a_training(tab: Page, folder: Path) -> None:
    """The display of a training, two thirds of the way."""
    command = f"gptcli train python-docs --max-time 1m --sample-every 100 -o {folder / 'run'}"
    tmux = ["tmux", "-L", "gptcli-gallery"]
    size = ["-x", str(COLUMNS), "-y", str(ROWS)]
    subprocess.run([*tmux, "-f", "/dev/null", "new-session", "-d", *size, f"{sys.executable} -m {command}"], check=True)
    step, steps, screen = 0, 1, ""
    while step < TAKEN_AT * steps:
        time.sleep(0.5)
        screen = subprocess.run([*tmux, "capture-pane", "-e", "-p"], capture_output=True, text=True, check=True).stdout
        if progress := re.search(r"step ([\d,]+)/([\d,]+)", Text.from_ansi(screen).plain):
            step, steps = (int(number.replace(",", "")) for number in progress.groups())
    subprocess.run([*tmux, "kill-server"], check=True)
    shown = screen[screen.index("Budget") :]  # what is above has left the screen in part
    picture(tab, folder, "terminal-training", f"$ {command.partition(' -o')[0]}\n…\n{shown}")


def picture(tab: Page, folder: Path, name: str, output: str) -> None:
    """A picture of a terminal's output."""
    page = folder / f"{name}.html"
    page.write_text(_TERMINAL.format(content=as_html(output)), encoding="utf-8")
    tab.open(page, width=1100)
    tab.picture(PICTURES / f"{name}.png", "pre", margin=0)


def run(*command: str) -> None:
    subprocess.run([sys.executable, "-m", *command], check=True)


def on_terminal(*command: str) -> str:
    """The output of a command on a terminal with colors."""
    controller, terminal = pty.openpty()
    environment = os.environ | {"COLUMNS": str(COLUMNS), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    process = subprocess.Popen(
        [sys.executable, "-m", *command], stdout=terminal, stderr=subprocess.DEVNULL, env=environment
    )
    os.close(terminal)
    content = b""
    try:
        while piece := os.read(controller, 1 << 16):
            content += piece
    except OSError:  # Linux reports the end of a terminal as an error
        pass
    process.wait()
    return content.decode().replace("\r\n", "\n")


def as_html(output: str) -> str:
    """Colored output of a terminal as markup."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(output))
    return console.export_html(theme=COLORS, inline_styles=True, code_format="{code}")


if __name__ == "__main__":
    main()
