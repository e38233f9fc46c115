"""Validation errors of pydantic as sentences that say what is allowed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from gptcli.config.presets import nearest_name
from gptcli.config.types import open_if_auto
from gptcli.config.values import MAX_SHOWN
from gptcli.errors import ConfigError

_SHOWN = 60
_MAX_PROBLEMS = 20
_WORDS = {bool: "true or false", str: "text"}
_NUMBERS = {int: "a whole number", float: "a number"}


def config_error(error: ValidationError, section: type[BaseModel]) -> ConfigError:
    """One ConfigError for all problems of a validation, with the nearest known name for each unknown one."""
    sentences, hints = [], []
    for key, value, reason in problems(error, section):
        name = f"`{key}`" if key in field_names(section) else f"'{key[:MAX_SHOWN]}'"
        if reason == "unknown":
            sentences.append(f"there is no setting '{key[:MAX_SHOWN]}'")
            hints.append(_nearest_setting(key[:MAX_SHOWN], section))
        elif reason == "missing":
            sentences.append(f"{name} is missing")
        elif shown(value):
            sentences.append(cannot_be(name, value, reason))
        else:  # a rule on several fields, which names them
            sentences.append(reason if reason.startswith("`") else f"{name} {reason}")
    sentences = list(dict.fromkeys(sentences))
    more = f"; and {len(sentences) - _MAX_PROBLEMS:,} more" if len(sentences) > _MAX_PROBLEMS else ""
    message = f"{'; '.join(sentences[:_MAX_PROBLEMS])}{more}."
    return ConfigError(message[:1].upper() + message[1:], " ".join(dict.fromkeys(filter(None, hints))))


def problems(error: ValidationError, section: type[BaseModel]) -> Iterator[tuple[str, Any, str]]:
    """Dotted key, value and reason ("must be a whole number from 1 to 512") of each problem.

    The reason of an unknown key is "unknown", that of a key without a value "missing".
    """
    for problem in error.errors():
        if problem["type"] == "default_factory_not_called":  # a derived field, because of another field's problem
            continue
        location = tuple(str(part) for part in problem["loc"])
        key = ".".join(location[:-1] if location and location[-1].isdecimal() else location)  # an element of a list
        reason = _reason(problem, location, section)
        inner = [*problem["input"]] if reason == "unknown" and isinstance(problem["input"], Mapping) else []
        if inner and len(location) == 1:  # a section that does not exist
            yield from ((f"{key}.{name}", problem["input"][name], reason) for name in inner)
        else:
            yield key, problem["input"], reason


def field_names(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Dotted names of all fields of a config class."""
    for name, field in section.model_fields.items():
        nested = field.annotation
        if isinstance(nested, type) and issubclass(nested, BaseModel):
            yield from field_names(nested, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def cannot_be(name: str, value: object, reason: str) -> str:
    """The sentence about a wrong value; `reason` says what is allowed ("must be a whole number above 0")."""
    return f"{name} cannot be {shown(value)}: it {reason}"


def allowed_values(section: type[BaseModel], name: str) -> str:
    """The allowed values of the field `name` of a section: "a whole number from 1 to 512"."""
    return _allowed((name,), section, "")


def allowed_numbers(kind: type[int] | type[float], least: float | None, most: float | None) -> str:
    """The numbers from `least` to `most` in words; None: unbounded."""
    bounds = [bound for bound in (least is not None and Ge(least), most is not None and Le(most)) if bound]
    return _described(kind, bounds, "")


def shown(value: object) -> str:
    """A value for a sentence: as Python writes it, cut short; "" for a table."""
    if isinstance(value, Mapping):
        return ""
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**_SHOWN else "a huge number"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _nearest_setting(key: str, section: type[BaseModel]) -> str:
    """A question that names the same field in another section, else the setting most like `key`; "" for none."""
    names = list(field_names(section))
    elsewhere = [name for name in names if name.rpartition(".")[2] == key.rpartition(".")[2]]
    if elsewhere:
        return f"Did you mean {' or '.join(map(repr, elsewhere))}?"
    part, dot, last = key.rpartition(".")
    own = {name.rpartition(".")[2]: name for name in names if name.startswith(f"{part}.")}
    if dot and own:  # a section that exists
        nearest = nearest_name(last, own)
        return nearest.replace("'", f"'{part}.", 1) or f"Settings of '{part}': {', '.join(own)}."
    return nearest_name(key, names if dot else sorted({*names, *section.model_fields}))


def _reason(problem: Mapping[str, Any], location: tuple[str, ...], section: type[BaseModel]) -> str:
    if problem["type"] == "extra_forbidden":
        return "unknown"
    if problem["type"] == "missing":
        return "missing"
    if problem["type"] == "value_error":  # raised by a validator of ours
        return str(problem["ctx"]["error"])
    if not location or location[0] not in section.model_fields:  # such as a key that is not text
        return "must be a setting of the configuration"
    if problem["type"] == "string_too_short":
        assert problem["ctx"]["min_length"] == 1, "no text of the configuration has another minimum length"
        return "must not be empty"
    if problem["type"] == "string_pattern_mismatch":
        return f"must be text that matches {problem['ctx']['pattern']}"
    value = problem["input"]
    not_finite = isinstance(value, float) and not math.isfinite(value)
    return f"must be {_allowed(location, section, 'finite ' if not_finite else '')}"


def _allowed(location: tuple[str, ...], section: type[BaseModel], finite: str) -> str:
    """The allowed values of a field: "a number above 0"."""
    field = section.model_fields[location[0]]
    inner = field.annotation
    if isinstance(inner, type) and issubclass(inner, BaseModel):
        return _allowed(location[1:], inner, finite) if len(location) > 1 else "a table of settings"
    if len(location) > 1 and (listed := _list_in(inner)):  # an element of it
        inner = get_args(listed)[0]
    words = _described(inner, field.metadata, finite)
    if any(getattr(rule, "func", None) is open_if_auto for rule in field.metadata):
        return f"auto{', ' if ' or ' in words else ' or '}{words}"
    return words


def _list_in(kind: Any) -> Any:
    """The type of a list that may be left open; None for any other type."""
    if get_origin(kind) in (Union, UnionType, Annotated):
        return next(filter(None, map(_list_in, get_args(kind))), None)
    return kind if get_origin(kind) is tuple else None


def _described(kind: Any, rules: Iterable[Any], finite: str) -> str:
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
    if get_origin(kind) is tuple:
        element = _described(get_args(kind)[0], (), finite)
        return "a list of texts" if element == _WORDS[str] else f"a list, each {element}"
    return _WORDS[kind]


def _range(rules: Iterable[Any]) -> str:
    """ " from 1 to 512", from pydantic's constraints."""
    flat = [part for rule in rules for part in (rule.metadata if isinstance(rule, FieldInfo) else [rule])]
    bounds = {name: getattr(rule, name) for rule in flat for name in ("ge", "gt", "le", "lt") if hasattr(rule, name)}
    if "ge" in bounds and "le" in bounds:
        return f" from {bounds['ge']:,} to {bounds['le']:,}"
    words = {"ge": "of at least", "gt": "above", "lt": "below", "le": "of at most"}
    return " and".join(f" {words[name]} {bounds[name]:,}" for name in words if name in bounds)
