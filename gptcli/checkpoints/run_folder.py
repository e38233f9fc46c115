"""The run folder: a Hugging Face model folder that also remembers how it was made.

It holds no absolute path, and sampling from it needs nothing outside it. It knows its data by name and fingerprint.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from gptcli.checkpoints import names
from gptcli.checkpoints.checkpoint import Progress
from gptcli.checkpoints.model_card import model_card
from gptcli.checkpoints.small_files import RESTORE, SIZE_LIMIT, listed_files, read_json, read_small, verified_files
from gptcli.checkpoints.tensors import fingerprint, read_metadata, tensor_file
from gptcli.checkpoints.weights import stored_loss, stored_step, weights_metadata
from gptcli.config import ModelConfig, RunConfig, parse_config_file, parse_section, to_toml
from gptcli.dataset.folder import Dataset
from gptcli.errors import ConfigError, ModelFolderError, StorageError, clause
from gptcli.interop.hub import model_name
from gptcli.interop.huggingface import config_to_hf, tokenizer_settings
from gptcli.storage import MANIFEST_FILE, FileEntry, disk_errors, new_directory, to_json, write_file
from gptcli.tokenizer.document import END_OF_TEXT
from gptcli.tokenizer.tokenizer import Tokenizer
from gptcli.untrusted import read_bounded, strict_json

FORMAT = 1


@dataclass(frozen=True)
class StoredRun:
    """The content of a run folder's small files."""

    path: Path
    config: RunConfig
    data_name: str
    data_fingerprint: str
    files: dict[str, FileEntry]
    """Manifest entries by file name; kept up to date as files are written."""
    tokenizer_json: bytes = b""
    """Content of `tokenizer.json`, where it was verified."""


def is_run(path: Path) -> bool:
    """Whether a folder was made by training here."""
    try:
        return (path / names.RUN_CONFIG).is_file() and (path / MANIFEST_FILE).is_file()
    except OSError:  # such as a name that is too long
        return False


def missing_part(path: Path) -> str:
    """The one file that a damaged run lacks, of the two that make a folder a run; "" if it has both or neither."""
    missing = [name for name in (names.RUN_CONFIG, MANIFEST_FILE) if not (path / name).is_file()]
    return missing[0] if len(missing) == 1 else ""


def create_run(
    path: Path, config: RunConfig, dataset: Dataset, weights: Mapping[str, Tensor] | None = None
) -> StoredRun:
    """Make a run folder, with the weights that it starts from if they are not random.

    Raises StorageError if something else is there.
    """
    if path.exists() and not path.is_dir():
        raise StorageError(f"'{path}' is a file; a run needs a folder of its own.", "Choose another place with `out`.")
    entries: dict[str, FileEntry] = {}
    with new_directory(path, manifest=None) as new:
        files = hugging_face_files(config.model, dataset.tokenizer, dataset.start_id, dataset.end_id)
        for name, content in (files | {names.RUN_CONFIG: to_toml(config).encode()}).items():
            new.write(name, _hashed(content, entries, name))
        new.write(names.README, model_card(model_name(path), config, dataset, Progress()).encode())
        new.make_folder(names.CHECKPOINTS)
        if weights is not None:
            new.write(names.MODEL, _hashed(tensor_file(weights, weights_metadata(0)), entries, names.MODEL))
        run = StoredRun(path, config, dataset.name, dataset.fingerprint, entries)
        new.write(MANIFEST_FILE, _manifest(run))
    return run


def hugging_face_files(
    config: ModelConfig, tokenizer: Tokenizer, start_id: int, end_id: int | None, dtype: str = "float32"
) -> dict[str, bytes]:
    """The small files of a Hugging Face model folder, by name: all but the weights, which are in `dtype`."""
    hf_config = config_to_hf(config, bos_token_id=start_id, eos_token_id=end_id, dtype=dtype)
    end_text = END_OF_TEXT if tokenizer.end_of_text is not None else None
    return {
        names.CONFIG: to_json(hf_config),
        names.GENERATION_CONFIG: to_json({"bos_token_id": start_id, "eos_token_id": end_id}),
        names.TOKENIZER: tokenizer.to_json().encode(),
        names.TOKENIZER_CONFIG: to_json(tokenizer_settings(end_text, config.block_size)),
    }


def read_run(path: Path) -> StoredRun:
    """The config and data of a run folder, without verifying its files; raises ModelFolderError."""
    return _stored_run(path, _read_manifest(path), read_small(path / names.RUN_CONFIG))


def open_run(path: Path) -> StoredRun:
    """A run folder whose small files were verified against its manifest. Reads each file once.

    The weights verify themselves when they are read. Raises ModelFolderError.
    """
    manifest = _read_manifest(path)
    content, entries = verified_files(path, manifest), listed_files(manifest, path)
    try:
        run_config = read_small(path / names.RUN_CONFIG, entries.get(names.RUN_CONFIG))
    except ModelFolderError as error:
        hint = f"To train with changed settings, start another run with `config = {path / names.RUN_CONFIG}`."
        raise ModelFolderError(f"The run folder is damaged: {clause(error.message)}.", hint) from None
    run = _stored_run(path, manifest, run_config)
    return replace(run, files=entries, tokenizer_json=content.get(names.TOKENIZER, b""))


def _read_manifest(path: Path) -> dict[str, object]:
    manifest = read_json(path / MANIFEST_FILE)
    if manifest.get("format") != FORMAT:
        found = manifest.get("format")
        raise ModelFolderError(f"'{path}' has format {found}, and this version reads {FORMAT}.", "Use a newer gptcli.")
    return manifest


def _stored_run(path: Path, manifest: Mapping[str, object], run_config: bytes) -> StoredRun:
    data = manifest.get("data")
    try:
        assert isinstance(data, dict)
        config = parse_section(RunConfig, parse_config_file(run_config, path / names.RUN_CONFIG))
        return StoredRun(path, config, str(data["name"]), str(data["fingerprint"]), {})
    except ConfigError as error:
        raise ModelFolderError(f"'{path / names.RUN_CONFIG}' is damaged: {error.message}", RESTORE) from None
    except (AssertionError, KeyError):
        raise ModelFolderError(f"'{path / MANIFEST_FILE}' does not say what the run was trained on.", RESTORE) from None


def update_config(run: StoredRun, config: RunConfig) -> StoredRun:
    """Store the config with which a run resumes; writes nothing if it is stored already.

    Two files cannot be replaced in one step: between them the manifest is silent on the config, so that a run which is
    killed there does not look damaged.
    """
    content = to_toml(config).encode()
    entry = FileEntry(len(content), hashlib.sha256(content).hexdigest())
    if run.files.get(names.RUN_CONFIG) != entry:
        run.files.pop(names.RUN_CONFIG, None)
        write_file(run.path / MANIFEST_FILE, _manifest(run))
        write_file(run.path / names.RUN_CONFIG, content)
        run.files[names.RUN_CONFIG] = entry
        write_file(run.path / MANIFEST_FILE, _manifest(run))
    return replace(run, config=config)


def refresh_weights_entry(run: StoredRun) -> None:
    """Bring the manifest's entry of the best weights up to date: a kill may have come before it was written."""
    weights = run.path / names.MODEL
    if weights.exists():
        entry, _ = fingerprint(weights)
        if run.files.get(names.MODEL) != entry:
            run.files[names.MODEL] = entry
            write_file(run.path / MANIFEST_FILE, _manifest(run))


def replace_weights(run: StoredRun, tensors: dict[str, Tensor], *, step: int, val_loss: float) -> None:
    """Put the best weights so far into the run folder, by rename; the file verifies itself.

    Better weights of another step stay: a kill can leave weights there whose evaluation came after the last checkpoint.
    """
    standing = read_metadata(run.path / names.MODEL)
    best = stored_loss(standing)
    if stored_step(standing) != step and best is not None and best < val_loss:
        return
    pieces = tensor_file(tensors, weights_metadata(step, val_loss))
    write_file(run.path / names.MODEL, _hashed(pieces, run.files, names.MODEL))
    write_file(run.path / MANIFEST_FILE, _manifest(run))


def _hashed(
    content: bytes | Iterable[bytes | memoryview], entries: dict[str, FileEntry], name: str
) -> Iterator[bytes | memoryview]:
    """Yield a file's content unchanged, then add its manifest entry to `entries`."""
    hasher, size = hashlib.sha256(), 0
    for piece in [content] if isinstance(content, bytes) else content:
        hasher.update(piece)
        size += len(piece)
        yield piece
    entries[name] = FileEntry(size, hasher.hexdigest())


def _manifest(run: StoredRun) -> bytes:
    """`manifest.json` of a run."""
    data = {"name": run.data_name, "fingerprint": run.data_fingerprint}
    return to_json({"format": FORMAT, "data": data, "files": dict(sorted(run.files.items()))})


def write_card(run: StoredRun, dataset: Dataset, progress: Progress) -> None:
    """Bring the model card up to date with the result; nothing is written if it is."""
    card = model_card(model_name(run.path), run.config, dataset, progress).encode()
    path = run.path / names.README
    with disk_errors(path, "Reading"):
        if path.is_file() and path.read_bytes() == card:
            return
    write_file(path, card)


def logged_saves(run: Path) -> tuple[int, int]:
    """The step of the last line of a run's metrics.jsonl that can be read, and the number of failed saves in it."""
    step = failed = 0
    path = run / names.METRICS
    if not path.is_file():  # a pipe would block
        return 0, 0
    try:
        with open(path, "rb") as file:
            for line in file:
                with suppress(ValueError, KeyError, TypeError):
                    values = strict_json(line)
                    step = int(values["step"])
                    failed += "save_failed" in values
    except OSError:
        return 0, 0
    return step, failed


def card_step(run: Path) -> int:
    """The steps of training in a run's model card, which a session writes when it ends; 0 if none has ended."""
    try:
        card = read_bounded(run / names.README, SIZE_LIMIT).decode(errors="replace")
    except (OSError, ValueError):
        return 0
    found = re.search(r"^\| steps \| ([\d,]+) of ", card, re.MULTILINE)
    return int(found[1].replace(",", "")) if found else 0


def newest_run(root: Path) -> Path | None:
    """The run below `root` whose weights were written last; if none has weights, the one that was made last."""
    runs = [path for path in root.iterdir() if is_run(path) and not path.name.startswith(".")] if root.is_dir() else []
    return max(runs, key=_last_written, default=None)


def next_free(path: Path) -> Path:
    """`runs/book` → `runs/book-2`, or the first higher number that is free."""
    path = path if path.name else path.resolve()
    number = 2
    while (candidate := path.with_name(f"{path.name}-{number}")).exists():
        number += 1
    return candidate


def _last_written(run: Path) -> tuple[bool, float]:
    """Sort key of `newest_run`: a run with weights is newer than any without."""
    weights = run / names.MODEL
    return weights.exists(), (weights if weights.exists() else run / names.RUN_CONFIG).stat().st_mtime
