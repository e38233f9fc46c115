"""Nested and flat values of settings, before they become a config.

{"train": {"seed": 1}}      nested, as TOML has it
{"train.seed": 1}           flat, with dotted keys
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

from gptcli.errors import ConfigError

Values = dict[str, Any]
MAX_SHOWN = 100
"""Characters of a wrong key or setting that an error repeats."""


def merge(*layers: Mapping[str, Any]) -> Values:
    """One nested dictionary from several; a later layer wins, section by section and key by key."""
    merged: Values = {}
    for layer in layers:
        for key, value in layer.items():
            both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
            merged[key] = merge(merged[key], value) if both else value
    return merged


def nest(dotted: Mapping[str, Any]) -> Values:
    """{"train.seed": 1} → {"train": {"seed": 1}}, without entries that are None."""
    nested: Values = {}
    for key, value in dotted.items():
        if value is not None:
            *sections, name = key.split(".")
            layer: Values = {name: value}
            for section in reversed(sections):
                layer = {section: layer}
            nested = merge(nested, layer)
    return nested


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"train": {"seed": 1}} → {"train.seed": 1}."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat.update(flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value})
    return flat


def parse_setting(setting: str) -> Values:
    """Nested values of one `--set section.key=value`; the value is TOML, or plain text if it is not valid TOML."""
    key, equals, text = setting.partition("=")
    if not equals or key.count(".") != 1:
        is_preset = key.strip() == "preset"
        hint = "Use `preset`." if is_preset else "Write section.key=value, such as optim.lr=0.001."
        raise ConfigError(f"'{setting[:MAX_SHOWN]}' is not a setting.", hint)
    try:
        values = tomllib.loads(f"value = {text}")
        flatten(values)
    except (ValueError, RecursionError):
        values = {}
    return nest({key.strip(): values["value"] if values.keys() == {"value"} else text})


def is_number(text: str) -> bool:
    """Whether a text is a number as Python reads it."""
    try:
        float(text)
    except ValueError:
        return False
    return True
