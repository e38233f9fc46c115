"""Data with weights, as people give it: `code=0.7 prose=0.3`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from gptcli.errors import UsageError
from gptcli.paths import is_elsewhere, text_paths

Data = str | Path | Iterable[str | Path] | Mapping[str, float]
"""Paths, or parts with their weights: "book.txt", ["a", "b"], ["a=0.7", "b=0.3"] or {"a": 0.7, "b": 0.3}."""


def weighted_paths(data: Data) -> tuple[tuple[str, ...], tuple[float, ...] | None]:
    """The paths in `data` as they were given, and a weight for each; None if none has one.

    A path that exists wins over its reading as a weight, and in an address with a query `=` is part of the address.
    Raises UsageError where only some parts have a weight, and as `text_paths` does.

    >>> weighted_paths(["code=0.7", "prose=0.3"])
    (('code', 'prose'), (0.7, 0.3))
    """
    if isinstance(data, Mapping):
        paths = text_paths(data.keys())
        return paths, tuple(map(float, data.values()))
    given = data if isinstance(data, Iterable) and not isinstance(data, str) else [data]
    parts = [_weighted(one) if isinstance(one, str) else (one, None) for one in given]
    paths, weights = text_paths([path for path, _ in parts]), [weight for _, weight in parts]
    stated = tuple(weight for weight in weights if weight is not None)
    if not stated:
        return paths, None
    if len(stated) < len(paths):
        without, other = paths[weights.index(None)], paths[next(i for i, one in enumerate(weights) if one is not None)]
        raise UsageError(f"'{other}' has a weight, and '{without}' has none.", f"Give it one, such as {without}=1.")
    return paths, stated


def _weighted(given: str) -> tuple[str, float | None]:
    """The path in `given` and its weight; the whole of it and None where it has no weight."""
    path, equals, number = given.rpartition("=")
    if not equals or not path or (is_elsewhere(path) and "?" in path) or _exists(given):
        return given, None
    try:
        return path, float(number)
    except ValueError:
        return given, None


def _exists(path: str) -> bool:
    try:
        return os.path.lexists(path)
    except ValueError:  # a NUL
        return False
