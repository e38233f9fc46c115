"""Errors in the words of a command line, as typer reports them or before it sees them, in our sentences."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from typer.models import ParameterInfo

from gptcli.cli.flags import SettingInfo, choices, flag_of, numbers
from gptcli.config import RunConfig, SamplingConfig
from gptcli.config.presets import nearest_name
from gptcli.config.problems import allowed_numbers, allowed_values, cannot_be
from gptcli.config.types import MAX_COUNT
from gptcli.config.values import is_number
from gptcli.errors import UsageError

MAY_BE_EMPTY = ("prompt", "stop")
"""Parameters for which an empty text has a meaning or an error message of its own."""


def refuse_empty(given: Mapping[str, Any], command: Any) -> None:
    """Raise UsageError for an empty value, which as a path would be the working folder.

    `given` is what was typed for each parameter of the function `command`.
    """
    for name, value in given.items():
        if name not in MAY_BE_EMPTY and "" in (value if isinstance(value, list | tuple) else [value]):
            hint = "Give a value. A shell variable that is not set is empty."
            raise UsageError(f"An empty value was given for {flag_of(command, name)}.", hint)


def refuse_options_as_files(arguments: Sequence[str], options: Iterable[str]) -> None:
    """Raise UsageError for an option after `--`, where everything is the name of a file."""
    after = arguments[arguments.index("--") + 1 :] if "--" in arguments else []
    for argument in after:
        if argument.partition("=")[0] in options and not os.path.lexists(argument):
            message = f"{argument} comes after --, where everything is taken as the name of a file."
            raise UsageError(message, f"Put {argument} and the other options before the --.")


def refuse_extra(extra: Sequence[str], context: Any) -> None:
    """Raise UsageError for arguments beyond those that the command takes."""
    if extra:
        takes = next((one.metavar for one in context.command.params if one.param_type_name == "argument"), "argument")
        message = f"{context.command_path} takes one {takes.strip('[]')}: there is no place for {shlex.join(extra)}"
        raise UsageError(f"{message}.", "Put a name or a text with spaces in quotes.")


def unknown_command(name: str, commands: Sequence[str]) -> UsageError:
    """The error for a command that does not exist."""
    hint = nearest_name(name, commands) or f"The commands are {', '.join(commands)}."
    if name == "help":
        hint = "See gptcli --help, or gptcli train --help for one command."
    elif os.path.exists(name):
        hint = f"To train a model on it: gptcli train {shlex.quote(name)}"
    return UsageError(f"gptcli has no command '{name}'.", hint)


def explained(error: Any) -> UsageError | None:
    """A usage error of typer in our words; None for a kind that we have none for."""
    name, context, parameter = getattr(error, "option_name", None), error.ctx, getattr(error, "param", None)
    if name and not hasattr(error, "possibilities"):
        if "not take" in str(error):
            return UsageError(f"{name} takes no value.", f"Write {name} alone.")
        return UsageError(f"{name} needs a value.", "Give the value after it.")
    if context is None:
        return None
    if name:
        return _unknown_option(name, context)
    if type(error).__name__ == "MissingParameter":
        return _missing(parameter, context)
    return _wrong_number(parameter, context) or _wrong_choice(parameter, context)


def _missing(parameter: Any, context: Any) -> UsageError:
    """The error for an argument or option that the command needs."""
    name = parameter.opts[0] if parameter.param_type_name == "option" else parameter.metavar
    example = context.command.epilog.split("·")[0].strip()
    return UsageError(f"{name} is missing.", f"For example: {example}")


def _unknown_option(name: str, context: Any) -> UsageError:
    """The error for an option that the command does not have."""
    from gptcli.cli.app import commands_with

    command = context.command
    known = {option.lstrip("-"): option for parameter in command.params for option in parameter.opts}
    elsewhere = commands_with(name)
    nearest = nearest_name(name.lstrip("-"), [option for option in known if len(option) > 1])
    hint = nearest.replace("'", "'--", 1) or f"See {context.command_path} --help"
    if elsewhere:
        hint = f"{name} is an option of {', '.join(f'gptcli {one}' for one in elsewhere)}."
    return UsageError(f"{context.command_path} has no option {name}.", hint)


def _wrong_number(parameter: Any, context: Any) -> UsageError | None:
    """The error for a number that is none, or out of range; None for another kind of error of typer."""
    name, command, given = getattr(parameter, "name", None), context.command, context.obj or {}
    kind, info = numbers(command.callback).get(str(name), (None, None))
    typed = given.get(name)
    wrong = next((one for one in typed if not is_number(one)), None) if isinstance(typed, list) else typed
    if kind is None or info is None or not isinstance(wrong, str):
        return None
    message = cannot_be(flag_of(command.callback, str(name)), _value(wrong), f"must be {_allowed(kind, info)}")
    return UsageError(f"{message}.", _hint(wrong, kind))


def _wrong_choice(parameter: Any, context: Any) -> UsageError | None:
    """The error for a word that is not among those which an option takes; None for another kind of option."""
    words = choices(context.command.callback, str(getattr(parameter, "name", "")))
    typed = (context.obj or {}).get(getattr(parameter, "name", None))
    if not words or not isinstance(typed, str):
        return None
    hint = nearest_name(typed, words) or f"Use {', '.join(words[:-1])} or {words[-1]}."
    return UsageError(f"{parameter.opts[0]} cannot be '{typed}'.", hint)


def _allowed(kind: type[int] | type[float], info: ParameterInfo) -> str:
    if isinstance(info, SettingInfo):
        section, _, name = info.key.partition(".")
        holder: Any = SamplingConfig if section == "sampling" else RunConfig.model_fields[section].annotation
        return allowed_values(holder, name)
    return allowed_numbers(kind, info.min, info.max)


def _value(text: str) -> object:
    return int(text) if text.removeprefix("-").isdecimal() and len(text) < 100 else text


def _hint(text: str, kind: type[int] | type[float]) -> str:
    """How to write the number that was meant by 1,000 or 1e3; "" for other text."""
    try:
        meant = Decimal(text.replace(",", ""))
    except InvalidOperation:
        return ""
    is_whole = kind is int and meant.is_finite() and abs(meant) <= MAX_COUNT and meant == meant.to_integral_value()
    written = f"{meant:.0f}" if is_whole else ""
    return f"Write it as {written}." if written not in ("", text) else ""
