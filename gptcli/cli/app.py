"""The `gptcli` command. Each subcommand is imported when it is used, so that `--help` answers at once."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from pkgutil import resolve_name
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from gptcli import __version__
from gptcli.cli.boundary import exit_code_of, guarded

COMMANDS = {
    "tokenize": "Turn text into tokens once, for several runs.",
    "train": "Train a model on text, or resume a run that was stopped.",
    "sample": "Generate text with a trained model.",
    "eval": "Score texts with a model: loss, perplexity, bits per byte and per character.",
    "inspect": "Show what something is: parts, shapes, memory, counts.",
    "report": "Make a page about a run, or about several: curves, samples, attention.",
    "export": "Write a model in the format of another tool.",
    "bench": "Measure how fast a model trains and generates on this machine.",
}
"""Each command, a module of `gptcli.cli`, with the first line of its help."""


class _Commands(TyperGroup):
    """All commands, with our exit codes and error messages in place of typer's."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes | {"commands": {name: _Unloaded(name, help=COMMANDS[name]) for name in COMMANDS}})

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, flags without `<bool>` in the help."""
        return _bare_flags(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of the first argument; raises UsageError if there is none."""
        from gptcli.cli.arguments import unknown_command

        if args[0] not in COMMANDS and not ctx.resilient_parsing:
            raise unknown_command(args[0], list(COMMANDS))
        return super().resolve_command(ctx, args)

    def main(self, *arguments: Any, **options: Any) -> NoReturn:
        options |= {"prog_name": "gptcli", "standalone_mode": False}
        raise SystemExit(exit_code_of(lambda: super(_Commands, self).main(*arguments, **options)))


def _bare_flags(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


class Command(TyperCommand):
    """A command that refuses empty values, options after `--`, and an option given twice; exits with 2.

    Of an option given twice typer would silently use the last.
    """

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters, flags without `<bool>` in the help: a value after them would be an argument."""
        return _bare_flags(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as typer does, after these checks. What was typed stays in `ctx.obj`, for errors that quote it."""
        if ctx.resilient_parsing:  # a shell asks for completions of a line that is not finished
            return super().parse_args(ctx, args)
        from gptcli.cli.arguments import refuse_empty, refuse_extra, refuse_options_as_files

        refuse_options_as_files(args, [option for parameter in self.params for option in parameter.opts])
        ctx.obj, extra, given = self.make_parser(ctx).parse_args(list(args))
        refuse_extra(extra, ctx)
        refuse_empty(ctx.obj, self.callback)
        for option, count in Counter(given).items():
            if isinstance(option, TyperOption) and count > 1 and not (option.multiple or option.is_flag):
                ctx.fail(f"{' / '.join(option.opts)} was given {count} times: give it once.")
        return super().parse_args(ctx, args)


class _Unloaded(TyperCommand):
    """A command that imports its module when it is used."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        return self.load().make_context(*arguments, **options)

    def load(self) -> Any:
        """The command with its options."""
        module = resolve_name(f"gptcli.cli.{self.name}")
        function = getattr(module, f"{self.name}_", None) or getattr(module, str(self.name))
        only = typer.Typer(add_completion=False)
        epilog = getattr(module, f"{self.name}_examples".upper())
        text = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(function) or "")  # typer keeps line breaks
        only.command(self.name, cls=Command, help=text, epilog=epilog)(guarded(function))
        return typer.main.get_command(only)


@cache
def functions() -> dict[str, Callable[..., None]]:
    """The function of each command. Imports all of them."""
    return {name: inspect.unwrap(_Unloaded(name).load().callback) for name in COMMANDS}


def commands_with(option: str) -> list[str]:
    """The commands that have this option."""
    return [name for name in COMMANDS if any(option in known.opts for known in _Unloaded(name).load().params)]


app = typer.Typer(
    cls=_Commands,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gptcli {__version__}")
        raise typer.Exit


@app.callback(epilog="Start with:  gptcli train book.txt  and then  gptcli sample")
def gptcli(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Train GPT language models on your own text, and generate text from them."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)
