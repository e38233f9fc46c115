"""What holds for every input: it is used, or refused with an error of ours; and nothing is written."""

from __future__ import annotations

from pathlib import Path
from random import Random

from gptcli.errors import MAX_MESSAGE_CHARACTERS, GptcliError
from tests.fuzz.targets import Target


def survives(target: Target, random: Random) -> bool:
    """Let a target read one changed input: whether it was accepted. Any error but ours comes through."""
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
    """Everything below a folder: name, size, time of change."""
    found = [(path, path.lstat()) for path in sorted(folder.rglob("*"))]
    return [(str(path), status.st_size, status.st_mtime_ns) for path, status in found if not path.is_dir()]
