"""The interface of a target of fuzzing.

A target is made in an empty folder. `prepare` writes one changed input into it, and `run` reads it: a reader may raise
GptcliError, and writes nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from random import Random


class Target(ABC):
    """A kind of input."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def prepare(self, random: Random) -> None:
        """Make one changed input."""

    @abstractmethod
    def run(self) -> None:
        """Read it."""
