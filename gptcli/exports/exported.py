"""What an export wrote."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Exported:
    """The file or folder that was written."""

    path: Path
    type: str
    """Number format of the matrices."""
    kept_f16: list[str] = field(default_factory=list)
    """Matrices that could not be quantised."""
    hint: str = ""
    """How the other tool opens it."""
    note: str = ""
    """That no other tool does, in a sentence."""

    @property
    def bytes(self) -> int:
        """Size of the file, or of the files in the folder."""
        files = [self.path] if self.path.is_file() else list(self.path.iterdir())
        return sum(file.stat().st_size for file in files)
