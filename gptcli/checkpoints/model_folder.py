"""Reading a model folder: a run folder, one of its checkpoints, or a Hugging Face folder of a known kind."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from gptcli.checkpoints import names
from gptcli.checkpoints.small_files import read_json, verified_files
from gptcli.checkpoints.weights import has_weights, read_weights, stored_loss, stored_step
from gptcli.config import ModelConfig
from gptcli.dataset.folder import is_dataset
from gptcli.errors import ModelFolderError, TokenizerError, UsageError
from gptcli.interop.huggingface import config_from_hf
from gptcli.storage import MANIFEST_FILE, disk_errors
from gptcli.tokenizer.tokenizer import Tokenizer, load_tokenizer

PICKLED = (".pt", ".pth", ".bin", ".pkl", ".ckpt")
_PICKLE_STARTS = (*(bytes([0x80, protocol]) for protocol in range(2, 6)), b"PK\x03\x04")
"""First bytes of a pickle of protocol 2 to 5, and of the zip archive in which torch puts one."""
_SHOWN_RUNS = 10


@dataclass(frozen=True)
class StoredModel:
    """A model as its folder stores it."""

    config: ModelConfig
    tensors: dict[str, Tensor]
    """Weights under Hugging Face's names, in the dtype of the file."""
    file: Path
    """The weights file, for errors."""
    tokenizer: Tokenizer
    start_id: int
    """The token that an empty prompt starts from (`bos_token_id`)."""
    end_id: int | None
    """The token that ends a text, if the model was trained with one (`eos_token_id`)."""
    step: int | None
    """Training step of the weights, if known."""
    val_loss: float | None
    """Validation loss of the weights in nats per token, if known."""
    notes: tuple[str, ...]
    """Sentences for the user, such as which weights were read in place of missing ones."""


def read_model_config(folder: Path) -> ModelConfig:
    """The model config in a folder's `config.json`; raises ModelFolderError."""
    refuse_pickles(folder)
    if not (folder / names.CONFIG).exists():
        raise _no_model(folder)
    return config_from_hf(read_json(folder / names.CONFIG), f"'{folder / names.CONFIG}'")


def _no_model(folder: Path) -> ModelFolderError:
    """The error for a path that is not a model folder; it names what was found instead."""
    if not folder.exists():
        known = [run.name for run in _runs_in(names.RUNS_ROOT)]
        shown = ", ".join(known[:_SHOWN_RUNS]) + (" …" if len(known) > _SHOWN_RUNS else "")
        hint = f"Runs in {names.RUNS_ROOT}/: {shown}" if known else "Train a model first: gptcli train book.txt"
        return ModelFolderError(f"There is no '{folder}'.", hint)
    if not folder.is_dir():
        hint = "Give a run folder; gptcli train makes one from a text."
        return ModelFolderError(f"'{folder}' is a file, not a model folder.", hint)
    if is_dataset(folder):
        hint = f"Train a model on it: gptcli train {shlex.quote(str(folder))}"
        return ModelFolderError(f"'{folder}' is a dataset, not a model.", hint)
    if runs := _runs_in(folder):
        return ModelFolderError(f"'{folder}' is a folder of runs.", f"Name one of them, such as '{runs[0]}'.")
    message = f"'{folder}' is not a model folder: it has no {names.CONFIG}."
    return ModelFolderError(message, "Give a run folder, or a folder in Hugging Face's format.")


def _runs_in(folder: Path) -> list[Path]:
    children = folder.iterdir() if folder.is_dir() else ()
    return sorted(child for child in children if (child / names.RUN_CONFIG).is_file())


def read_model(folder: Path, checkpoint: str = "best") -> StoredModel:
    """Read a model: its `best` weights, those of the `last` checkpoint, or of the checkpoint of a step.

    A run that was not evaluated yet has no best weights: its last checkpoint is read, with a note. Raises
    ModelFolderError, TokenizerError, or UsageError for an impossible `checkpoint`.
    """
    config = read_model_config(folder)
    verify_run_files(folder)
    general = read_json(folder / names.CONFIG) | read_json(folder / names.GENERATION_CONFIG, missing_ok=True)
    tokenizer = load_tokenizer(folder)
    if tokenizer.vocab_size > config.vocab_size:
        rows, ids = f"{config.vocab_size:,}", f"{tokenizer.vocab_size:,}"
        raise TokenizerError(
            f"The tokenizer in '{folder}' has {ids} ids, but the model has only {rows} rows.",
            "Train it on some text first, which adds the rows: `gptcli train TEXT --init-from FOLDER`.",
        )
    source, notes = _weights_folder(folder, checkpoint)
    tensors, metadata, file = read_weights(source, config)
    start, end = (_row(general.get(key), config) for key in ("bos_token_id", "eos_token_id"))
    return StoredModel(
        config=config,
        tensors=tensors,
        file=file,
        tokenizer=tokenizer,
        start_id=start or 0,
        end_id=end,
        step=stored_step(metadata),
        val_loss=stored_loss(metadata),
        notes=notes,
    )


def _row(value: object, config: ModelConfig) -> int | None:
    """A token id within the model's vocabulary, the first one of a list; published folders may hold larger ids."""
    tokens = value if isinstance(value, list) else [value]
    return next((token for token in tokens if isinstance(token, int) and 0 <= token < config.vocab_size), None)


def _weights_folder(folder: Path, checkpoint: str) -> tuple[Path, tuple[str, ...]]:
    """The folder of the weights that `checkpoint` names, and notes for the user; raises as `read_model` does."""
    if checkpoint not in ("best", "last") and not checkpoint.isdecimal():
        raise UsageError(f"There is no checkpoint '{checkpoint}'.", "Use best, last or the step of a checkpoint.")
    steps, has_best = checkpoint_steps(folder), has_weights(folder)
    if checkpoint == "best" and has_best:
        return folder, ()
    was_evaluated = names.MODEL in read_json(folder / MANIFEST_FILE, missing_ok=True).get("files", {})
    if checkpoint == "best" and steps and was_evaluated:
        hint = "Restore it from a copy, or use `checkpoint = last`."
        raise ModelFolderError(f"The best weights, '{folder / names.MODEL}', are missing.", hint)
    found = steps[-1:] if checkpoint in ("best", "last") else [step for step in steps if str(step) == checkpoint]
    if found:
        note = f"'{folder}' was not evaluated yet: using the weights of its last checkpoint, of step {found[0]:,}."
        return names.checkpoint_folder(folder, found[0]), (note,) if checkpoint == "best" else ()
    there = [*(["best"] if has_best else []), *(["last"] if steps else []), *map(str, steps)]
    if there:
        raise ModelFolderError(f"'{folder}' has no checkpoint '{checkpoint}'.", f"Choose one of: {', '.join(there)}.")
    if (folder / names.CHECKPOINTS).is_dir():  # a run, which has this folder from its start
        hint = (
            "Resume its training: run its `gptcli train` command again; "
            "if the loss became NaN or infinite, add a lower `optim.lr` and `resume = never`."
        )
        raise ModelFolderError(f"The run '{folder}' has no weights yet: it has no checkpoint.", hint)
    raise ModelFolderError(f"'{folder / names.MODEL}' is missing.", "Restore the folder from its source.")


def checkpoint_steps(folder: Path) -> list[int]:
    """Steps of the checkpoints in a run folder, ascending."""
    root = folder / names.CHECKPOINTS
    found = [names.checkpoint_step(path.name) for path in root.iterdir()] if root.is_dir() else []
    return sorted(step for step in found if step is not None)


def verify_run_files(folder: Path) -> None:
    """Compare the small files of a run's model with its manifest; other folders have none. Raises ModelFolderError."""
    manifest = read_json(folder / MANIFEST_FILE, missing_ok=True)
    if "files" in manifest:
        verified_files(folder, manifest)


def refuse_pickles(path: Path) -> None:
    """Raise ModelFolderError for a pickled model: a file, or a folder with nothing but pickled weights."""
    if is_pickle(path) or (path.is_dir() and not has_weights(path) and any(map(is_pickle, path.iterdir()))):
        raise ModelFolderError(
            f"'{path}' holds pickled weights, which gptcli does not open: reading a pickle can run any code.",
            "Convert them to safetensors with a tool that you trust, on a machine where that is safe.",
        )


def is_pickle(path: Path) -> bool:
    """Whether a file holds pickled weights, by its suffix and its first bytes; folders may have any name."""
    if path.suffix not in PICKLED or not path.is_file():
        return False
    with disk_errors(path, "Reading"), open(path, "rb") as file:
        return file.read(4).startswith(_PICKLE_STARTS)
