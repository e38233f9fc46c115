"""Ways to change a valid file: bytes, the tokens of a text, and the tree of a JSON value.

All choices come from the `Random` that is given: hypothesis makes one whose choices it can shrink, a campaign one that
starts from a number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

NUMBERS = ("0", "-1", "1", "2", "255", "65536", "2147483648", "9223372036854775808", "1e308", "-0.0", "1e-320", "0.5")
NASTY: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3, 2**16, 2**31, 2**63, 10**30, 1e308, -1e308, 0.5, 1e-320, float("nan")),
    *("", "a", "\0", "..", "../x", "/etc/passwd", "\ud800", "é" * 50, "\u202e\x1b[31m", "x" * 10_000, "inf", "1"),
    *([], {}, [[]], {"a": {}}, [1, "a", None], {"": 0}),
)
CHUNKS = (
    *(b"\0", b"\xff", b"\xf0\x9f", b"\xed\xa0\x80", b"\n", b'"', b"{", b"}", b"[", b"]", b",", b":", b"NaN", b"null"),
    *(b"\xef\xbb\xbf", b"\x1f\x8b", b"PK\x03\x04", b"\xff\xfe", b"\r\n", b"=", b"'''", b"1e999", b"9" * 400),
    *((2**63).to_bytes(8, "little"), (2**64 - 1).to_bytes(8, "little"), bytes(16), b"\x80\x04N."),
)


def mutated_bytes(data: bytes, random: Random) -> bytes:
    """One to four small changes."""
    content = bytearray(data)
    for _ in range(random.randint(1, 4)):
        random.choice(_BYTE_CHANGES)(content, random)
    return bytes(content)


def mutated_text(text: str, random: Random) -> bytes:
    """One to three numbers, words or lines of a text replaced, doubled or lost; or bytes changed."""
    if random.random() < 0.3:
        return mutated_bytes(text.encode(), random)
    for _ in range(random.randint(1, 3)):
        pattern = random.choice([r"[-+.\w]+", r"[^\n]*\n", r"\"[^\"\n]*\"|\[[^\]\n]*\]"])
        found = [match.span() for match in re.finditer(pattern, text)]
        if found:
            start, stop = random.choice(found)
            text = text[:start] + random.choice([*NUMBERS, *_WORDS, text[start:stop] * 2, ""]) + text[stop:]
    return text.encode("utf-8", errors="surrogatepass")


def mutated_json(data: bytes, random: Random) -> bytes:
    """One to three changes to the tree of a JSON text, or to its bytes."""
    way = random.random()
    if way < 0.2:
        return mutated_bytes(data, random)
    value = json.loads(data)
    for _ in range(random.randint(1, 3)):
        value = _changed(value, random)
    text = json.dumps(value)
    if way > 0.95:
        text = text.replace("{", '{"a": 1, "a": 2, ', 1)
    elif way > 0.92:
        text = text.replace("1", "[" * random.choice([70, 2000, 100_000]), 1)
    return text.encode()


def _changed(value: Any, random: Random) -> Any:
    """The value with one place in it replaced, removed, copied or renamed."""
    if not isinstance(value, dict | list) or not value or random.random() < 0.1:
        return random.choice(NASTY)
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key, copy = random.choice(keys), value.copy()
    match random.randint(0, 7):
        case 0:
            copy.pop(key)
        case 1 if isinstance(copy, dict):
            copy[random.choice(["", "a", "\ud800", "../x", "__metadata__", "format", *map(str, keys)])] = copy[key]
        case 1:
            copy.insert(0, copy[key])
        case 2:
            copy[key] = random.choice(NASTY)
        case 3 if isinstance(copy[key], int | float):
            copy[key] = copy[key] + random.choice([1, -1, 2**20, 0.5])
        case _:
            copy[key] = _changed(copy[key], random)
    return copy


def _flip(content: bytearray, random: Random) -> None:
    if content:
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)


def _insert(content: bytearray, random: Random) -> None:
    place = random.randint(0, len(content))
    content[place:place] = random.choice(CHUNKS)


def _overwrite(content: bytearray, random: Random) -> None:
    place, chunk = random.randint(0, len(content)), random.choice(CHUNKS)
    content[place : place + len(chunk)] = chunk


def _delete(content: bytearray, random: Random) -> None:
    start, stop = _span(content, random)
    del content[start:stop]


def _double(content: bytearray, random: Random) -> None:
    start, stop = _span(content, random)
    content[stop:stop] = content[start:stop]


def _cut(content: bytearray, random: Random) -> None:
    del content[random.randint(0, len(content)) :]


def _number(content: bytearray, random: Random) -> None:
    found = [match.span() for match in re.finditer(rb"\d+", content)]
    if found:
        start, stop = random.choice(found)
        content[start:stop] = random.choice(NUMBERS).encode()


def _span(content: bytearray, random: Random) -> tuple[int, int]:
    start = random.randint(0, len(content))
    return start, min(len(content), start + random.choice([1, 2, 8, 100]))


_BYTE_CHANGES: tuple[Callable[[bytearray, Random], None], ...] = (
    *(_flip, _insert, _overwrite, _delete, _double, _cut, _number),
)
_WORDS = (
    *("true", "[]", "{}", '""', '"a"', "nan", "inf", "-inf", "1979-05-27", "[[x]]", "[x]", "x = 1\n", "a.b.c.d = 1\n"),
    *('"\\u0000"', '"../x"', "'" * 3, "[" * 500, "=", "#", "\n", "9" * 5000, '"\\u202e"', "0x" + "f" * 50, "1_000"),
)
