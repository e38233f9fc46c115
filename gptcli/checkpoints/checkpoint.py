"""Checkpoints: everything that a training needs to continue as if it had never stopped.

A checkpoint is a folder `checkpoints/step-00002000/` that appears complete or not at all:

    model.safetensors       weights, in Hugging Face's names and layout
    optimizer.safetensors   state of the optimizers and of the random generators
    state.json              counters, loss scaler, numbers of threads and ranks
    manifest.json           sizes and sha256 of the above, written last
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field, TypeAdapter, ValidationError

from gptcli.checkpoints import names
from gptcli.checkpoints.model_folder import checkpoint_steps
from gptcli.checkpoints.small_files import listed_files, read_json
from gptcli.checkpoints.tensors import read_tensors, tensor_file
from gptcli.checkpoints.weights import weights_metadata
from gptcli.errors import ModelFolderError, StorageError, clause
from gptcli.storage import MANIFEST_FILE, new_directory, remove_directory, to_json
from gptcli.training.state import TrainerState

Counter = Annotated[int, Field(ge=0, le=2**62)]
Loss = Annotated[float, Field(allow_inf_nan=False)]

FORMAT = 1
MAX_THREADS = 4096
MAX_RANKS = 2**20
RANDOM_PREFIX = "random."


@dataclass
class Progress:
    """The counters of a run."""

    step: Counter = 0
    """Finished updates."""
    tokens: Counter = 0
    """Tokens trained on."""
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Training time over all sessions."""
    val_loss: Loss | None = None
    """The last validation loss, in nats per token."""
    best_val_loss: Loss | None = None
    best_step: Counter | None = None
    evals_since_best: Counter = 0
    metrics_bytes: Counter = 0
    """Length of metrics.jsonl when the checkpoint was written."""
    evaluation_pending: bool = False
    """Whether a stop interrupted the evaluation of this step; a resumed training begins with it."""


_PROGRESS = TypeAdapter(Progress)
_THREADS = TypeAdapter(Annotated[int, Field(ge=1, le=MAX_THREADS)])
_RANKS = TypeAdapter(Annotated[int, Field(ge=1, le=MAX_RANKS)])


@dataclass
class Checkpoint:
    """The content of a checkpoint."""

    progress: Progress
    state: TrainerState
    """Its weights have Hugging Face's names."""


def save_checkpoint(run: Path, checkpoint: Checkpoint, *, replace: bool = False) -> Path:
    """Write a checkpoint into a run folder, where it appears once it was read back; returns its folder.

    Raises StorageError, with nothing half-written.
    """
    folder = names.checkpoint_folder(run, checkpoint.progress.step)
    state = checkpoint.state
    random = {RANDOM_PREFIX + name: tensor for name, tensor in state.random.items()}
    numbers = {
        "format": FORMAT,
        "progress": _plain(checkpoint.progress),
        "scaler": state.scaler,
        "threads": state.threads,
        "compiled": state.compiled,
        "torch": torch.__version__,
        **({"ranks": state.ranks} if state.ranks > 1 else {}),
    }
    metadata = weights_metadata(checkpoint.progress.step)
    with new_directory(folder, replace=replace) as new:
        new.write_verified(names.MODEL, tensor_file(state.model, metadata))
        new.write_verified(names.OPTIMIZER, tensor_file(state.optimizer | random, metadata))
        new.write(names.STATE, to_json(numbers))
    return folder


def _plain(progress: Progress) -> dict[str, Any]:
    """The counters as stored, with `evaluation_pending` only where it is true."""
    return {name: value for name, value in asdict(progress).items() if name != "evaluation_pending" or value}


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint and verify it against its manifest, each file once; raises ModelFolderError."""
    try:
        entries = listed_files(read_json(folder / MANIFEST_FILE), folder)
        expected = {name: entries[name] for name in (names.MODEL, names.OPTIMIZER, names.STATE)}
        model, _ = read_tensors(folder / names.MODEL, expected[names.MODEL])
        tensors, _ = read_tensors(folder / names.OPTIMIZER, expected[names.OPTIMIZER])
        state = read_json(folder / names.STATE, expected[names.STATE])
    except KeyError as error:
        message = f"The checkpoint is damaged: '{folder / MANIFEST_FILE}' does not list {error}."
        raise ModelFolderError(message, "Resume from another one.") from None
    except ModelFolderError as error:
        raise ModelFolderError(f"The checkpoint is damaged: {clause(error.message)}.", error.hint) from None
    if state.get("format") != FORMAT:
        raise ModelFolderError(f"'{folder}' has format {state.get('format')}, and this version reads {FORMAT}.")
    try:
        progress = _PROGRESS.validate_python(state["progress"])
        threads = _THREADS.validate_python(state["threads"])
        scaler = dict(state["scaler"])
        compiled = bool(state.get("compiled", False))  # earlier versions compiled on GPUs only
        ranks = _RANKS.validate_python(state.get("ranks", 1))
    except (KeyError, TypeError, ValueError) as error:  # pydantic's errors are ValueErrors
        entry = ".".join(map(str, error.errors()[0]["loc"])) if isinstance(error, ValidationError) else str(error)
        message = f"'{folder / names.STATE}' cannot be read: its entry {entry} is missing or has a wrong value."
        raise ModelFolderError(message) from None
    if folder.name != names.checkpoint_name(progress.step):
        raise ModelFolderError(f"'{folder}' holds step {progress.step:,}, which is not what its name says.")
    is_random = {name: name.startswith(RANDOM_PREFIX) for name in tensors}
    trainer = TrainerState(
        step=progress.step,
        model=model,
        optimizer={name: tensor for name, tensor in tensors.items() if not is_random[name]},
        random={name.removeprefix(RANDOM_PREFIX): tensor for name, tensor in tensors.items() if is_random[name]},
        scaler=scaler,
        threads=threads,
        compiled=compiled,
        ranks=ranks,
    )
    return Checkpoint(progress, trainer)


def newest_checkpoint(run: Path) -> tuple[Checkpoint | None, dict[int, str]]:
    """The newest sound checkpoint, and for each newer one, by step, a sentence that says why it was skipped."""
    skipped: dict[int, str] = {}
    for step in reversed(checkpoint_steps(run)):
        try:
            return load_checkpoint(names.checkpoint_folder(run, step)), skipped
        except ModelFolderError as error:
            skipped[step] = f"Skipped the checkpoint of step {step:,}: {error.message}"
    return None, skipped


def read_progress(run: Path) -> Progress | None:
    """The counters of the newest checkpoint whose small files can be read; its weights are not verified."""
    for step in reversed(checkpoint_steps(run)):
        try:
            state = read_json(names.checkpoint_folder(run, step) / names.STATE)
            return _PROGRESS.validate_python(state["progress"])
        except (ModelFolderError, KeyError, ValidationError):
            continue
    return None


def discard_checkpoints(run: Path, damaged: Collection[int], newer_than: int) -> None:
    """Delete the `damaged` checkpoints after the step from which training resumes: it will reach their steps again.

    Raises StorageError, with nothing deleted, if there are others after that step: another process wrote them just now.
    """
    newer = [step for step in checkpoint_steps(run) if step > newer_than]
    if not set(newer) <= set(damaged):
        raise StorageError(f"Another process continued '{run}' just now.", "Run the same command again.")
    for step in newer:
        remove_directory(names.checkpoint_folder(run, step))


def prune_checkpoints(run: Path, keep: int) -> None:
    """Delete all but the `keep` newest checkpoints; nothing where `checkpoints` is a link to somewhere else."""
    if (run / names.CHECKPOINTS).is_symlink():
        return
    for step in checkpoint_steps(run)[:-keep]:
        remove_directory(names.checkpoint_folder(run, step))
