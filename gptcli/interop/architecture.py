"""How an architecture of transformers corresponds to `GPT`: the keys of its `config.json`, its tensors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gptcli.config import ModelConfig

HEAD = "lm_head.weight"
"""The untied output head, in our names and in those of every architecture."""

_MAX_SHOWN = 60
_KINDS = {bool: "true or false", int: "a whole number", str: "text", list: "a list", dict: "an object"}

T = TypeVar("T")


@dataclass(frozen=True)
class HfTensor:
    """A tensor of transformers that holds rows of one of our parameters."""

    name: str
    rows: int | None = None
    """Number of our rows in it; None: all of them."""
    transposed: bool = False
    """Stored as (in, out); ours is (out, in)."""


@dataclass(frozen=True)
class Field:
    """A key of `config.json` that holds one field of `ModelConfig`."""

    name: str
    optional: bool = False
    """The key may be absent or null: transformers has the same default."""
    if_set: bool = False
    """Written as null unless the field was set: transformers derives the same value."""
    other_key: str = ""
    """Another name of the key, in files of other versions of transformers."""

    def __call__(self, config: ModelConfig) -> Any:
        return config.model_dump()[self.name] if self.if_set else getattr(config, self.name)


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A kind of model in transformers, and its mapping to ours."""

    model_type: str
    class_name: str
    title: str
    """Name for people, such as GPT-2."""
    settings: Mapping[str, Any]
    """`ModelConfig` values that every model of this architecture has. None means n_head for n_kv_head, and
    n_embd / n_head for head_dim."""
    choices: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Further `ModelConfig` fields, with the values that a model of this architecture may have."""
    config: Mapping[str, Any]
    """The content of `config.json` by key. A `Field` is written and read; a function of `ModelConfig` or a constant is
    only written."""
    other_fields: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda values: {}
    """`ModelConfig` values that depend on several keys; raises ValueError that names a wrong key."""
    required_values: Mapping[str, tuple[Any, ...]]
    """Keys of `config.json` that must have one of these values, because our model computes nothing else. None stands
    for an absent key."""
    tensors: Callable[[str, ModelConfig], list[HfTensor]]
    """The stored tensors of our parameter of this name, in the order of its rows."""
    canonical_name: Callable[[str], str | None] = lambda name: name
    """The usual name of a stored tensor that may have another spelling; None if it is not a weight."""


def optional_value(values: Mapping[str, Any], key: str, default: T) -> T:
    """The value of a key that may be absent or null; raises ValueError if its type is not that of `default`."""
    value = values.get(key)
    if value is None:
        return default
    if type(value) is not type(default):
        raise wrong_value(key, value, _KINDS[type(default)])
    return value


def wrong_value(key: str, value: object, needed: str) -> ValueError:
    """An error that names a key of `config.json`, the value that it needs and the one that it has."""
    return ValueError(f"{key} must be {needed}, not {as_json(value)}")


def as_json(value: object) -> str:
    """A value of a `config.json` for a message, shortened."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"
