"""What is wrong with a value, in words: pydantic finds it, and this says what is allowed instead."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from gptcli.config.types import open_if_auto

_SHOWN = 60
_WORDS = {bool: "true or false", str: "text", tuple: "a list of texts"}
_NUMBERS = {int: "a whole number", float: "a number"}


def problems(error: ValidationError, section: type[BaseModel]) -> Iterable[tuple[str, Any, str]]:
    """Dotted key, value and reason ("must be a whole number from 1 to 512") of everything that is wrong.

    A key that is unknown has the reason "unknown", one that is needed "missing".
    """
    for problem in error.errors():
        if problem["type"] == "default_factory_not_called":  # a derived field, because of another field's problem
            continue
        location = tuple(str(part) for part in problem["loc"])
        yield ".".join(location), problem["input"], _reason(problem, location, section)


def shown(value: object) -> str:
    """A value for a sentence: as Python writes it, cut short; "" for a table."""
    if isinstance(value, Mapping):
        return ""
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**_SHOWN else "a huge number"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _reason(problem: Mapping[str, Any], location: tuple[str, ...], section: type[BaseModel]) -> str:
    if problem["type"] == "extra_forbidden":
        return "unknown"
    if problem["type"] == "missing":
        return "missing"
    if problem["type"] == "value_error":  # a rule of our own, in words of our own
        return str(problem["msg"]).removeprefix("Value error, ")
    if not location or location[0] not in section.model_fields:  # such as a key that is no text
        return "must be a setting of the configuration"
    if problem["type"] == "string_too_short":
        assert problem["ctx"]["min_length"] == 1, "no text of the configuration has another least length"
        return "must not be empty"
    if problem["type"] == "string_pattern_mismatch":
        return f"must be text that matches {problem['ctx']['pattern']}"
    value = problem["input"]
    not_finite = isinstance(value, float) and not math.isfinite(value)
    return f"must be {_allowed(location, section, 'finite ' if not_finite else '')}"


def _allowed(location: tuple[str, ...], section: type[BaseModel], finite: str) -> str:
    """What the field of a config class allows: "a number above 0"."""
    field = section.model_fields[location[0]]
    inner = field.annotation
    if isinstance(inner, type) and issubclass(inner, BaseModel):
        return _allowed(location[1:], inner, finite) if len(location) > 1 else "a table of settings"
    if get_origin(inner) is tuple and len(location) > 1:  # one of a list
        inner = get_args(inner)[0]
    words = _described(inner, field.metadata, finite)
    if any(getattr(rule, "func", None) is open_if_auto for rule in field.metadata):
        return f"auto{', ' if ' or ' in words else ' or '}{words}"
    return words


def _described(kind: Any, rules: list[Any], finite: str) -> str:
    if get_origin(kind) is Annotated:
        kind, *more = get_args(kind)
        return _described(kind, [*rules, *more], finite)
    if get_origin(kind) in (Union, UnionType):
        return _described(next(part for part in get_args(kind) if part is not NoneType), rules, finite)
    if get_origin(kind) is Literal:
        *others, last = get_args(kind)
        return f"{', '.join(others)} or {last}"
    if kind in _NUMBERS:
        return f"{_NUMBERS[kind].replace('a ', f'a {finite}', 1)}{_range(rules)}"
    return _WORDS[get_origin(kind) or kind]


def _range(rules: list[Any]) -> str:
    """ " from 1 to 512", from pydantic's constraints."""
    flat = [part for rule in rules for part in (rule.metadata if isinstance(rule, FieldInfo) else [rule])]
    bounds = {name: getattr(rule, name) for rule in flat for name in ("ge", "gt", "le", "lt") if hasattr(rule, name)}
    above, below = bounds.get("gt"), bounds.get("lt")
    least, most = bounds.get("ge"), bounds.get("le")
    if least is not None and most is not None:
        return f" from {least:,} to {most:,}"
    words = [
        f" of at least {least:,}" if least is not None else "",
        f" above {above:,}" if above is not None else "",
        f" below {below:,}" if below is not None else "",
        f" of at most {most:,}" if most is not None else "",
    ]
    return " and".join(filter(None, words))
