"""Nested values before they are a config, from config files, `--set` and flags.

{"train": {"seed": 1}}      nested, as TOML has it
{"train.seed": 1}           flat, with dotted keys
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gptcli.errors import ConfigError, reason_of

Values = dict[str, Any]
MAX_SHOWN = 100
"""Characters of a wrong key or setting that an error repeats."""
_MAX_FILE_BYTES = 1 << 20


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


def parse_toml(content: bytes, path: Path) -> Values:
    """Nested values of the content of a TOML config file; `path` names it in errors. Raises ConfigError."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"The config file '{path}' cannot be read: it is not text in UTF-8.") from None
    try:
        values = tomllib.loads(text)
        flatten(values)
        return values
    except RecursionError:
        raise ConfigError(f"The config file '{path}' is nested too deeply.") from None
    except ValueError as error:  # TOMLDecodeError, or Python's refusal of a number with 5,000 digits
        hint = "Write key = value, with text in quotes." if "Invalid value" in str(error) else ""
        raise ConfigError(f"The config file '{path}' is not valid TOML: {error}.", hint) from None


def read_config_file(path: Path) -> bytes:
    """The content of a config file; raises ConfigError."""
    try:
        with open(path, "rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
        if len(content) <= _MAX_FILE_BYTES:
            return content
    except FileNotFoundError:
        raise ConfigError(f"There is no config file '{path}'.") from None
    except IsADirectoryError:
        inside = [f"Name the file in it: {found}" for found in sorted(path.glob("*.toml"))]
        raise ConfigError(f"'{path}' is a folder, not a config file.", inside[0] if inside else "") from None
    except OSError as error:
        raise ConfigError(f"The config file '{path}' cannot be read: {reason_of(error)}.") from None
    except ValueError as error:  # a NUL in the path
        raise ConfigError(f"The config file '{path!s}' cannot be read: {error}.") from None
    raise ConfigError(f"The config file '{path}' is too large: it has more than {_MAX_FILE_BYTES:,} bytes.")


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
