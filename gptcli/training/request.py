"""What the user asked of a training, before anything is filled in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from gptcli.config import flatten, merge
from gptcli.presets import Values

Resume = Literal["auto", "never", "must"]


@dataclass(frozen=True)
class Request:
    """The layers that the user stated."""

    preset: str | None = None
    file: Values = field(default_factory=dict)
    """Values of the config file."""
    flags: Values = field(default_factory=dict)
    """Values of flags and `--set`."""
    resume: Resume = "auto"
    has_dataset: bool = False
    """Whether the data was given as a dataset folder, with its tokenizer, rather than as text."""

    @property
    def explicit(self) -> Values:
        """Everything that was stated, by file or flag."""
        return merge(self.file, self.flags)

    def states(self, *keys: str) -> bool:
        """Whether one of the dotted `keys` was stated."""
        return not flatten(self.explicit).keys().isdisjoint(keys)

    def stated(self, key: str) -> Any:
        """What was stated for the dotted `key`; None if nothing was."""
        return flatten(self.explicit).get(key)
