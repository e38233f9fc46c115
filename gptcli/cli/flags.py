"""Settings as a person types them: `train.micro_batch_size = 4` in an error becomes `--micro-batch-size 4`.

Below `cli/` a message names a setting in backticks: a config field (`optim.lr`) or a parameter of the Python API
(`out`), with a value where one is suggested (`checkpoint = last`). The options of the running command say which flag it
has, or whether its `--set` takes the field. What it does not have is said with a command that has it: "--lr (of gptcli
train)". Other text in backticks stays as it is.
"""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

from typer.models import ArgumentInfo, OptionInfo, ParameterInfo

_SETTING = re.compile(r"`(\w+(?:\.\w+)?)(?: = ([^`]+))?`", re.ASCII)


class SettingInfo(OptionInfo):
    """An option that sets the config field `key`."""

    def __init__(self, key: str, *names: str, **options: Any) -> None:
        super().__init__(default=..., param_decls=names, **options)
        self.key = key


class FieldsInfo(OptionInfo):
    """The option `--set` for any field whose dotted name begins with one of `beginnings`."""

    def __init__(self, beginnings: tuple[str, ...], **options: Any) -> None:
        super().__init__(default=..., param_decls=("--set",), **options)
        self.beginnings = beginnings


@dataclass(frozen=True)
class _Typed:
    """One parameter of a command on the command line."""

    text: str
    """`--out` of an option, `RUN` of an argument."""
    switch: str | None = None
    """The value that an option without a value stands for: "true", or "false" of `--no-echo`."""

    def with_value(self, value: str | None) -> str | None:
        """The words to type; None where this parameter cannot have the value."""
        if value is None or value == self.switch:
            return self.text
        return None if self.switch else f"{self.text} {shlex.quote(value)}"


def settings_as_flags(command: Callable[..., None], text: str) -> str:
    """`text` with the settings that it names in backticks as a person types them for `command`."""

    def typed(found: re.Match[str]) -> str:
        name, value = found[1], found[2] and found[2].strip("\"'")
        return _typed(command, name, value) or _typed_elsewhere(command, name, value, text) or found[0]

    return _SETTING.sub(typed, text)


def _typed(command: Callable[..., None], name: str, value: str | None) -> str | None:
    """The words for a setting of this command; None if it has no such setting, or not with this value."""
    known = _parameters(command).get(name)
    if known is None and name in _config_fields():
        known = _namesakes(command).get(name.rpartition(".")[2])
    words = known.with_value(value) if known else None
    if words is None and name in _config_fields() and name.startswith(_beginnings(command)):
        words = name if value is None else f"--set {shlex.quote(f'{name}={value}')}"
    return words


def _typed_elsewhere(command: Callable[..., None], name: str, value: str | None, text: str) -> str | None:
    """The words for an option of other commands, with the name of one unless `text` names one; None if none has it."""
    from gptcli.cli.app import functions

    others = {other: function for other, function in functions().items() if function is not command}
    named = {other: function for other, function in others.items() if f"gptcli {other}" in text}
    for other, function in (named | {"train": others.get("train", command)} | others).items():
        known = _parameters(function).get(name)
        words = _typed(function, name, value) if known is None or known.text.startswith("--") else None
        if words:
            return words if other in named else f"{words} (of gptcli {other})"
    return None


def flag_of(command: Callable[..., None], parameter: str) -> str:
    """The flag of a parameter of a command, or the name of an argument: `--max-steps`, `RUN`."""
    return _parameters(command)[parameter.strip("_")].text


def stated_settings(command: Callable[..., None], values: Mapping[str, Any]) -> dict[str, Any]:
    """The config fields that were given as options: {"train.max_steps": 100}. `values` has all parameters by name."""
    return {
        info.key: values[name]
        for name, _, info in _declarations(command)
        if isinstance(info, SettingInfo) and values[name] is not None and values[name] is not False
    }


def numbers(command: Callable[..., None]) -> dict[str, tuple[type[int] | type[float], ParameterInfo]]:
    """The parameters of a command that are numbers, with their declarations."""
    found = {name: (kind, info) for name, kind, info in _declarations(command)}
    return {
        name: (number, info)
        for name, (kind, info) in found.items()
        for number in (int, float)
        if number in _leaves(kind)
    }


def choices(command: Callable[..., None], parameter: str) -> list[str]:
    """The words that a parameter of a command can be, in their order; [] for one that takes any text."""
    kind = next((kind for name, kind, _ in _declarations(command) if name == parameter), None)
    return [word for word in get_args(kind) if isinstance(word, str)]


def _leaves(kind: Any) -> set[Any]:
    """The types that a type consists of: list[float] | None → {float, None}."""
    return {leaf for part in get_args(kind) for leaf in _leaves(part)} or {kind}


def without_options(arguments: Sequence[str], *flags: str) -> list[str]:
    """The arguments of a command without these options and their values.

    >>> without_options(["train", "a.txt", "--resume", "never", "-o=b"], "--resume", "-o")
    ['train', 'a.txt']
    """
    kept, rest = [], iter(arguments)
    for argument in rest:
        if argument in flags:
            next(rest, None)
        elif argument.partition("=")[0] not in flags:
            kept.append(argument)
    return kept


@cache
def _parameters(command: Callable[..., None]) -> dict[str, _Typed]:
    """The parameters of a command by config field, by name, by flag, and by the last part of their config field."""
    exact: dict[str, _Typed] = {}
    other: dict[str, _Typed] = {}
    for name, kind, info in _declarations(command):
        name = name.strip("_")
        if isinstance(info, ArgumentInfo):
            exact[name] = _Typed((info.metavar or name).strip("[].").upper())
            continue
        flag = _flag(info) or f"--{name.replace('_', '-')}"
        if kind is bool:
            exact[name] = _Typed(flag, "true")
            if name.startswith("no_"):
                exact[name.removeprefix("no_")] = _Typed(flag, "false")
        else:
            exact[name] = _Typed(flag)
        other.setdefault(flag.removeprefix("--").replace("-", "_"), exact[name])
        if isinstance(info, SettingInfo):
            exact[info.key] = exact[name]
            other.setdefault(info.key.partition(".")[2], exact[name])
    return other | exact


@cache
def _declarations(command: Callable[..., None]) -> tuple[tuple[str, Any, ParameterInfo], ...]:
    """Name, type and typer's declaration of each parameter of a command."""
    annotated = [
        (name, *(get_args(parameter.annotation) or (parameter.annotation,)))
        for name, parameter in inspect.signature(command, eval_str=True).parameters.items()
    ]
    return tuple(
        (name, kind, note) for name, kind, *notes in annotated for note in notes if isinstance(note, ParameterInfo)
    )


def _flag(info: ParameterInfo) -> str | None:
    """The long name of an option; in `Annotated`, typer keeps the first name where it keeps defaults elsewhere."""
    names = (info.default, *(info.param_decls or ()))
    return next((name for name in names if isinstance(name, str) and name.startswith("--")), None)


@cache
def _namesakes(command: Callable[..., None]) -> dict[str, _Typed]:
    """The options that set no field of the config, by name: `--vocab-size` of `inspect`."""
    plain = {name for name, _, info in _declarations(command) if isinstance(info, OptionInfo)}
    plain -= {name for name, _, info in _declarations(command) if isinstance(info, SettingInfo)}
    return {name: typed for name, typed in _parameters(command).items() if name in plain}


def _beginnings(command: Callable[..., None]) -> tuple[str, ...]:
    """The beginnings of the fields that `--set` of a command takes."""
    return next((info.beginnings for _, _, info in _declarations(command) if isinstance(info, FieldsInfo)), ())


@cache
def _config_fields() -> frozenset[str]:
    from gptcli.config import RunConfig, field_names

    return frozenset(field_names(RunConfig))
