"""Building a configuration: the rule of precedence, and config files.

`build_config` merges layers, each stronger than the one before: defaults < the preset's family < preset < fine-tuning
recipe (if training starts from weights) < config file < flags and `--set`. The run folder stores the complete result
(`gptcli.toml`).
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from gptcli.config.model import ModelConfig
from gptcli.config.presets import PRESET_ALIASES, PRESETS, default_family, family, preset
from gptcli.config.problems import config_error, shown
from gptcli.config.schema import RunConfig
from gptcli.config.values import Values, flatten, merge
from gptcli.errors import ConfigError, reason_of

S = TypeVar("S", bound=BaseModel)
_MAX_FILE_BYTES = 1 << 20


def nearest_preset(model: ModelConfig) -> str:
    """The preset whose blocks are nearest in size, for its recipe."""

    def size(n_layer: int, n_embd: int) -> float:
        return math.log(n_layer * n_embd**2)

    def distance(name: str) -> float:
        shape = PRESETS[name]["model"]
        return abs(size(shape["n_layer"], shape["n_embd"]) - size(model.n_layer, model.n_embd))

    return min(PRESETS, key=distance)


def build_config(preset_name: str, *layers: Mapping[str, Any], vocab_size: int) -> RunConfig:
    """The config of a run: defaults < the preset's family < preset < `layers`, each stronger than the one before.

    `vocab_size` is that of the tokenizer. Raises ConfigError, which names every problem at once.
    """
    name = PRESET_ALIASES.get(preset_name, preset_name)
    stated = merge(preset(name), *layers, {"preset": name, "model": {"vocab_size": vocab_size}})
    model = stated["model"]
    return parse_section(RunConfig, merge(family(default_family(name), model.get("n_head")), stated))


def parse_section(section: type[S], values: Values) -> S:
    """A section, or a whole `RunConfig`, from its values; raises ConfigError, which names every problem."""
    try:
        return section.model_validate(values)
    except ValidationError as error:
        raise config_error(error, section) from None


def with_train(config: RunConfig, **values: object) -> RunConfig:
    """The config with other values in its section `train`."""
    return config.model_copy(update={"train": config.train.model_copy(update=values)})


def load_config_file(path: Path) -> Values:
    """Nested values of a config file; raises ConfigError if it cannot be read, or a section is no table."""
    return parse_config_file(_read_config_file(path), path)


def parse_config_file(content: bytes, path: Path) -> Values:
    """Nested values of the content of a config file; errors name `path`. Raises as `load_config_file` does."""
    try:
        values = tomllib.loads(content.decode())
        flatten(values)
    except UnicodeDecodeError:
        raise ConfigError(f"The config file '{path}' cannot be read: it is not text in UTF-8.") from None
    except RecursionError:
        raise ConfigError(f"The config file '{path}' is nested too deeply.") from None
    except ValueError as error:  # TOMLDecodeError, or Python's refusal of a number with 5,000 digits
        hint = "Write key = value, with text in quotes." if "Invalid value" in str(error) else ""
        raise ConfigError(f"The config file '{path}' is not valid TOML: {error}.", hint) from None
    for name in RunConfig.model_fields:
        if name != "preset" and not isinstance(values.get(name, {}), dict):  # a layer above would hide it
            problem = f"{name} = {shown(values[name])} must be a table of settings"
            raise ConfigError(f"The config file '{path}' cannot be used: {problem}.", f"Write it as [{name}].")
    return values


def _read_config_file(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
        if len(content) <= _MAX_FILE_BYTES:
            return content
    except FileNotFoundError:
        hint = "Check the path. Each run has one, such as runs/book/gptcli.toml."
        raise ConfigError(f"There is no config file '{path}'.", hint) from None
    except IsADirectoryError:
        inside = [f"Name the file in it: {found}" for found in sorted(path.glob("*.toml"))]
        raise ConfigError(f"'{path}' is a folder, not a config file.", inside[0] if inside else "") from None
    except OSError as error:
        message = f"The config file '{path}' cannot be read: {reason_of(error)}."
        raise ConfigError(message, "Check the path and its permissions.") from None
    except ValueError as error:  # a NUL in the path
        raise ConfigError(f"The config file '{path!s}' cannot be read: {error}.") from None
    raise ConfigError(f"The config file '{path}' is too large: it has more than {_MAX_FILE_BYTES:,} bytes.")


def to_toml(config: RunConfig) -> str:
    """The config as TOML that `load_config_file` reads back, without the fields that are None."""
    import tomlkit  # only to write: --help needs the rest

    return tomlkit.dumps(config.model_dump(mode="json", exclude_none=True))


def differences(one: RunConfig, other: RunConfig) -> dict[str, tuple[Any, Any]]:
    """Dotted keys whose values differ, with both values."""
    a, b = flatten(one.model_dump(mode="json")), flatten(other.model_dump(mode="json"))
    return {key: (a.get(key), b.get(key)) for key in sorted(a.keys() | b.keys()) if a.get(key) != b.get(key)}
