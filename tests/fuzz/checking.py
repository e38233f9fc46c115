"""The check of every input: it is used, or refused with a GptcliError; nothing is written."""

from __future__ import annotations

from pathlib import Path
from random import Random

from gptcli.errors import MAX_MESSAGE_CHARACTERS, GptcliError
from tests.fuzz.target import Target


def survives(target: Target, random: Random) -> bool:
    """Let a target read one changed input; returns whether it was accepted. Raises any error but GptcliError."""
    target.prepare(random)
    before = listing(target.folder)
    refusal = None
    try:
        target.run()
    except GptcliError as error:
        refusal = error
    if refusal is not None:
        assert refusal.message, "an error without a sentence"
        assert len(refusal.message) <= MAX_MESSAGE_CHARACTERS + 1, "an endless sentence"
    assert listing(target.folder) == before, "reading wrote something"
    return refusal is None


def listing(folder: Path) -> list[tuple[str, int, int]]:
    """Name, size and time of change of everything below a folder."""
    found = [(path, path.lstat()) for path in sorted(folder.rglob("*"))]
    return [(str(path), status.st_size, status.st_mtime_ns) for path, status in found if not path.is_dir()]
