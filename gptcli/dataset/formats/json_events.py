"""Objects out of a JSON file of any length, one at a time. ijson parses it."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

MAX_DEPTH = 64
"""Nesting levels of objects and lists."""

Place = tuple[str | int, ...]
"""Keys and indices that lead to a value: ("chats", "list", 3, "messages", 17)."""


def json_objects(
    file: BinaryIO, is_wanted: Callable[[list[str | int]], bool]
) -> Iterator[tuple[Place, dict[str, Any]]]:
    """The objects at the places that are wanted, in order. Raises ValueError for JSON that is damaged or too deep."""
    import ijson

    if file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
        file.seek(0)
    try:
        yield from _objects(ijson.basic_parse(file, use_float=True), is_wanted)
    except ijson.JSONError as error:
        raise ValueError(f"its JSON is damaged ({str(error).splitlines()[0]})") from None


def _objects(
    events: Iterator[tuple[str, Any]], is_wanted: Callable[[list[str | int]], bool]
) -> Iterator[tuple[Place, dict[str, Any]]]:
    from ijson.common import ObjectBuilder

    place: list[str | int] = []
    builder, depth = None, 0
    for event, value in events:
        if event.startswith("end_"):
            place.pop()
        elif event == "map_key":
            place[-1] = value
        elif place and isinstance(place[-1], int):
            place[-1] += 1
        if builder is None and event == "start_map" and is_wanted(place):
            builder, depth = ObjectBuilder(), len(place)
        if builder is not None:
            builder.event(event, value)
        if event.startswith("start_"):
            place.append(-1 if event == "start_array" else "")
            if len(place) > MAX_DEPTH:
                raise ValueError(f"its JSON is nested more than {MAX_DEPTH} levels deep")
        if builder is not None and event == "end_map" and len(place) == depth:
            yield tuple(place), builder.value
            builder = None
