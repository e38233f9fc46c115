"""How an architecture's tensors are called and stored elsewhere: what its mapping has to say about each of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gptcli.config import ModelConfig

HEAD = "lm_head.weight"
"""An output head that is not tied, by our name and by that of every architecture."""


@dataclass(frozen=True)
class Part:
    """Where rows of one of our tensors are found elsewhere."""

    name: str
    rows: int | None = None
    """How many rows of ours; None: all of them, and nothing else belongs to our tensor."""
    transposed: bool = False
    """Whether the matrix is stored (in, out) there; ours is (out, in)."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A kind of model that Hugging Face's transformers knows."""

    model_type: str
    class_name: str
    title: str
    """What people call it."""
    parts: Callable[[str, ModelConfig], list[Part]]
    """The parts of our parameter of this name, in the order of our rows."""
    to_values: Callable[[ModelConfig], dict[str, Any]]
    """What `config.json` says of the model's shape."""
    from_values: Callable[[Mapping[str, Any]], dict[str, Any]]
    """`ModelConfig` values from a `config.json`; raises KeyError for a key that is not there."""
    required: Mapping[str, tuple[Any, ...]]
    """Keys of a `config.json` that must have one of these values for us to compute the model exactly; None among them:
    the key may be absent."""
    plain_name: Callable[[str], str | None] = lambda name: name
    """The name that a stored tensor goes by, of several spellings; None: it is no weight."""
