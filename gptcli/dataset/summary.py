"""What was read and what was not, in numbers and in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from gptcli.dataset.finding import Skipped
from gptcli.errors import counted

_MAX_REASONS = 12


@dataclass(frozen=True)
class ReadSummary:
    """What was read of the sources that were named."""

    formats: dict[str, int] = field(default_factory=dict)
    """Number of files by format: {"text": 58, "jsonl": 2}."""
    skipped: tuple[Skipped, ...] = ()

    @property
    def files(self) -> int:
        return sum(self.formats.values())

    @property
    def reasons(self) -> dict[str, int]:
        """Number of skipped files and folders by reason."""
        return dict(Counter(one.reason for one in self.skipped).most_common())

    def sentence(self, verb: str = "read") -> str:
        """ "60 files read (58 text, 2 jsonl), 1 skipped: 1 binary." About a single plain text there is nothing to say.

        `verb` is "found" where a dataset exists already, so that the files were not read again.
        """
        if self.files == 1 and "text" in self.formats and not self.skipped:
            return ""
        read = f"{counted(self.files, 'file')} {verb}"
        if len(self.formats) > 1:
            read += f" ({_listed(self.formats.items())})"
        elif "text" not in self.formats:
            read += f" as {next(iter(self.formats), 'text')}"
        if not self.skipped:
            return f"{read}."
        return f"{read}, {len(self.skipped):,} skipped: {self.reasons_in_words()}."

    def reasons_in_words(self) -> str:
        """ "3 hidden, 1 binary"."""
        return _listed(self.reasons.items())


def _listed(numbers: Iterable[tuple[str, int]]) -> str:
    """{"hidden": 3, "binary": 1} → "3 hidden, 1 binary"."""
    words = [f"{number:,} {name}" for name, number in numbers]
    more = sum(number for _, number in list(numbers)[_MAX_REASONS:])
    return ", ".join(words[:_MAX_REASONS]) + (f", {more:,} others" if more else "")
