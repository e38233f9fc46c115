"""Places and names of dataset folders."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from gptcli import storage
from gptcli.dataset.compression import inner_name
from gptcli.dataset.folder import is_dataset
from gptcli.dataset.hashes import HASHES_FILE
from gptcli.dataset.manifest import DATASET_FILE, DatasetManifest, is_dataset_name, read_manifest
from gptcli.dataset.progress import MARKS_FILE
from gptcli.dataset.remote.addresses import name_in
from gptcli.dataset.sources import STANDARD_INPUT
from gptcli.errors import DatasetError, StorageError
from gptcli.paths import is_elsewhere
from gptcli.tokenizer.document import TOKENIZER_FILE

DATA_ROOT = Path("data")
"""Where `train` keeps datasets, below the working directory."""

_MAX_NAME_CHARACTERS = 60
_OUR_FILES = re.compile(
    rf"{re.escape(DATASET_FILE)}|{re.escape(TOKENIZER_FILE)}|{re.escape(HASHES_FILE)}|{re.escape(MARKS_FILE)}|(train|val)-[0-9]+\.npy"
)


def dataset_roots(run: Path) -> tuple[Path, ...]:
    """The folders that a run's dataset may be kept in, in order: `data/`, then `data/` beside the run folder."""
    beside = run.parent / ("datasets" if run.name == "data" else "data")
    return tuple(dict.fromkeys((DATA_ROOT, beside)))


def writable_root(roots: Sequence[Path]) -> Path:
    """The first of `roots` that can be written to, or made. Raises StorageError if there is none."""
    for root in roots:
        if _is_writable(root):
            return root
    named = " or ".join(f"'{root}'" for root in roots)
    raise StorageError(
        f"There is no place for the dataset: {named} cannot be written.",
        "Change to a folder that you can write to, choose another place for the run with `out`, or prepare the dataset "
        "elsewhere with `gptcli tokenize` and train on that.",
    )


def restore_interrupted(*paths: str | Path) -> None:
    """Restore each dataset that a killed process was about to replace. Call this before looking for a dataset."""
    for path in map(Path, paths):
        with suppress(OSError, ValueError, StorageError):
            if not path.exists():
                storage.remove_leftovers(path.parent, of=path.name)


def traces_of(root: Path, name: str) -> list[Path]:
    """Datasets of texts with this name in `root`, whatever their keys, and work on them."""
    ours = re.compile(rf"\.?{re.escape(name)}-[0-9a-f]{{8}}([.-].*)?")
    try:
        return [path for path in root.iterdir() if ours.fullmatch(path.name)]
    except OSError:
        return []


def earlier_folders(traces: Iterable[Path]) -> list[Path]:
    """The datasets and the unfinished work among the traces."""
    datasets = [path for path in traces if not path.name.startswith(".")]
    works = [path for path in traces if path.name.endswith(storage.UNFINISHED_SUFFIX)]
    return [*datasets, *works]


def dataset_with(fingerprint: str, roots: Iterable[Path], name: str) -> DatasetManifest | None:
    """The manifest of the dataset with this fingerprint of a text with this name; None if it is not in `roots`."""
    for path in (trace for root in roots for trace in traces_of(root, name)):
        with suppress(DatasetError):
            manifest = read_manifest(path)
            if manifest.fingerprint() == fingerprint:
                return manifest
    return None


def remove_outdated_work(out: Path, key: str) -> None:
    """Delete unfinished work on other keys of the text that `out` is named after."""
    if out.name.endswith(f"-{key[:8]}"):
        for trace in traces_of(out.parent, out.name.removesuffix(f"-{key[:8]}")):
            other = out.with_name(trace.name.removeprefix(".").removesuffix(storage.UNFINISHED_SUFFIX))
            if trace == storage.unfinished_of(other) and other != out:
                storage.remove_unfinished(other)


def refuse_foreign(out: Path) -> None:
    """Raise StorageError if `out` exists and is neither empty nor a dataset folder, whole or damaged."""
    with storage.disk_errors(out, "Reading"):
        if not out.exists() and not out.is_symlink():
            return
        what = "is not a folder"
        if out.is_dir() and not out.is_symlink():
            if all(_OUR_FILES.fullmatch(path.name) for path in out.iterdir()):
                return
            what = "is a folder with other files"
    raise StorageError(f"'{out}' is already there and {what}.", "Choose another place with `out`.")


def dataset_name(inputs: Sequence[str]) -> str:
    """The name of the dataset of `inputs`, whether it has been prepared or not. Raises DatasetError."""
    return read_manifest(Path(inputs[0])).name if is_dataset(inputs[0]) else name_of_text(inputs[0])


def name_of_text(given: str) -> str:
    """A dataset name from a path, an address or a corpus: letters, digits, dot, dash and underscore."""
    if is_elsewhere(given):
        return _plain(name_in(given))
    path = Path("standard-input") if given == STANDARD_INPUT else Path(given)
    stem = path.name if path.is_dir() else inner_name(path).stem
    if not stem or stem == "..":
        stem = path.resolve().name
    return _plain(stem)


def name_of_folder(out: Path) -> str:
    """A dataset name from the folder that was chosen for it."""
    return out.name if is_dataset_name(out.name) else _plain(out.name)


def _plain(name: str) -> str:
    """.my book → my-book; `text` if nothing is left."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-.")[:_MAX_NAME_CHARACTERS] or "text"


def _is_writable(root: Path) -> bool:
    nearest = next(path for path in (root, *root.absolute().parents) if os.path.lexists(path))
    return os.path.isdir(nearest) and os.access(nearest, os.W_OK | os.X_OK)
