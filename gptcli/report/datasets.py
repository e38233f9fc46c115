"""The datasets in a folder such as `data/`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path

from gptcli.dataset.folder import is_dataset
from gptcli.dataset.manifest import DATASET_FILE, read_manifest
from gptcli.errors import GptcliError


@dataclass(frozen=True)
class DatasetSummary:
    """A dataset in one line."""

    name: str
    path: str
    bytes: int
    """Size of the folder."""
    made: str
    """Date in ISO format."""
    tokenizer: str | None = None
    """`char` or `bpe`."""
    vocab_size: int | None = None
    tokens: int | None = None
    problem: str = ""
    """The reason why it cannot be read; "" if it can."""


@dataclass(frozen=True)
class DatasetList:
    root: str
    datasets: tuple[DatasetSummary, ...]
    bytes: int
    """Total size."""
    kind: str = "datasets"


def list_datasets(root: Path) -> DatasetList:
    """The datasets in a folder, by name; their hashes are not checked."""
    found = tuple(_summary(path) for path in sorted(root.iterdir()) if is_dataset(path))
    return DatasetList(str(root), found, sum(dataset.bytes for dataset in found))


def _summary(path: Path) -> DatasetSummary:
    size = sum(file.stat().st_size for file in path.iterdir() if file.is_file() and not file.is_symlink())
    made = date.fromtimestamp((path / DATASET_FILE).stat().st_mtime).isoformat()
    try:
        manifest = read_manifest(path)
    except GptcliError as error:
        return DatasetSummary(path.name, str(path), size, made, problem=error.message)
    tokens = manifest.train.tokens + manifest.val.tokens
    return DatasetSummary(
        path.name, str(path), size, made, manifest.tokenizer.kind, manifest.tokenizer.vocab_size, tokens
    )
