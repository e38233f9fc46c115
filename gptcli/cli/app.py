"""The `gptcli` command and its subcommands."""

from __future__ import annotations

from typing import Annotated

import typer

from gptcli import __version__
from gptcli.cli.bench import BENCH_EXAMPLES, bench
from gptcli.cli.boundary import guarded
from gptcli.cli.command import Command
from gptcli.cli.eval import EVAL_EXAMPLES, eval_
from gptcli.cli.export import EXPORT_EXAMPLES, export
from gptcli.cli.inspect import INSPECT_EXAMPLES, inspect
from gptcli.cli.sample import SAMPLE_EXAMPLES, sample
from gptcli.cli.tokenize import TOKENIZE_EXAMPLES, tokenize
from gptcli.cli.train import TRAIN_EXAMPLES, train

app = typer.Typer(
    name="gptcli",
    help="Train GPT language models on your own text, and generate text from them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gptcli {__version__}")
        raise typer.Exit


@app.callback(epilog="Start with:  gptcli train book.txt  and then  gptcli sample")
def gptcli(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Train GPT language models on your own text, and generate text from them."""


app.command("tokenize", cls=Command, epilog=TOKENIZE_EXAMPLES)(guarded(tokenize))
app.command("train", cls=Command, epilog=TRAIN_EXAMPLES)(guarded(train))
app.command("sample", cls=Command, epilog=SAMPLE_EXAMPLES)(guarded(sample))
app.command("eval", cls=Command, epilog=EVAL_EXAMPLES)(guarded(eval_))
app.command("inspect", cls=Command, epilog=INSPECT_EXAMPLES)(guarded(inspect))
app.command("export", cls=Command, epilog=EXPORT_EXAMPLES)(guarded(export))
app.command("bench", cls=Command, epilog=BENCH_EXAMPLES)(guarded(bench))
