"""Opening a trained model: a run folder, one of its checkpoints, or a Hugging Face folder of a known kind."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from gptcli.checkpoints import names
from gptcli.checkpoints.small_files import RESTORE, read_json
from gptcli.checkpoints.weights import has_weights, read_weights, stored_loss, stored_step
from gptcli.config import ModelConfig
from gptcli.dataset.folder import is_dataset
from gptcli.errors import ModelFolderError, TokenizerError, UsageError, reason_of
from gptcli.interop.huggingface import config_from_hf, tensors_from_hf
from gptcli.model.gpt import GPT, gpt_on_meta
from gptcli.storage import MANIFEST_FILE, FileEntry, mismatch
from gptcli.tokenizer.tokenizer import Tokenizer, load_tokenizer
from gptcli.untrusted import is_plain_name

PICKLED = (".pt", ".pth", ".bin", ".pkl", ".ckpt")


@dataclass(frozen=True)
class LoadedModel:
    """A trained model, ready to use, and what its folder says about it."""

    path: Path
    model: GPT
    tokenizer: Tokenizer
    start_id: int
    """The token that an empty prompt starts from (`bos_token_id`)."""
    end_id: int | None = None
    """The token that ends a text, if the model was trained with one (`eos_token_id`)."""
    step: int | None = None
    """Training step of the weights, if known."""
    val_loss: float | None = None
    """Validation loss of the weights in nats per token, if known."""


def read_model_config(folder: Path) -> ModelConfig:
    """The model's shape by its `config.json`; raises ModelFolderError."""
    refuse_pickles(folder)
    if not (folder / names.CONFIG).exists():
        raise _no_model(folder)
    return config_from_hf(read_json(folder / names.CONFIG), f"'{folder / names.CONFIG}'")


def _no_model(folder: Path) -> ModelFolderError:
    """What stands in the place of a model instead."""
    if not folder.exists():
        return ModelFolderError(f"There is no '{folder}'.", "Train a model first: gptcli train book.txt")
    if not folder.is_dir():
        hint = "Give a run folder; gptcli train makes one from a text."
        return ModelFolderError(f"'{folder}' is a file, not a model folder.", hint)
    if is_dataset(folder):
        hint = f"Train a model on it: gptcli train {shlex.quote(str(folder))}"
        return ModelFolderError(f"'{folder}' is a dataset, not a model.", hint)
    if runs := sorted(child for child in folder.iterdir() if (child / names.RUN_CONFIG).is_file()):
        return ModelFolderError(f"'{folder}' is a folder of runs.", f"Name one of them, such as '{runs[0]}'.")
    message = f"'{folder}' is no model folder: it has no {names.CONFIG}."
    return ModelFolderError(message, "Give a run folder, or a folder in Hugging Face's format.")


def open_model(folder: Path, checkpoint: str = "best") -> LoadedModel:
    """The model in a folder, with `best` weights, those of the `last` checkpoint, or of the checkpoint of a step.

    The model is on the CPU in float32, in evaluation mode. Raises ModelFolderError or TokenizerError.
    """
    config = read_model_config(folder)
    verify_run_files(folder)
    general = read_json(folder / names.CONFIG) | read_json(folder / names.GENERATION_CONFIG, missing_ok=True)
    tokenizer = load_tokenizer(folder)
    if tokenizer.vocab_size > config.vocab_size:
        rows, ids = f"{config.vocab_size:,}", f"{tokenizer.vocab_size:,}"
        raise TokenizerError(
            f"The tokenizer in '{folder}' has {ids} ids, but the model only {rows} rows.",
            "Train it on some text first: gptcli train TEXT --init-from FOLDER adds the rows.",
        )
    tensors, metadata, weights = _read_checkpoint(folder, checkpoint, config)
    start, end = (_row(general.get(key), config) for key in ("bos_token_id", "eos_token_id"))
    return LoadedModel(
        path=folder,
        model=build_model(config, tensors, weights),
        tokenizer=tokenizer,
        start_id=start or 0,
        end_id=end,
        step=stored_step(metadata),
        val_loss=stored_loss(metadata),
    )


def _row(value: object, config: ModelConfig) -> int | None:
    """A token id that the model has a row for, of a list the first one; published folders may hold ids beyond."""
    tokens = value if isinstance(value, list) else [value]
    return next((token for token in tokens if isinstance(token, int) and 0 <= token < config.vocab_size), None)


def build_model(config: ModelConfig, tensors: dict[str, Tensor], where: Path) -> GPT:
    """A model in evaluation mode with the given Hugging Face tensors as its weights, in float32."""
    model = gpt_on_meta(config)
    state = tensors_from_hf(tensors, config, f"'{where}'")
    model.load_state_dict({name: tensor.float().contiguous() for name, tensor in state.items()}, assign=True)
    model.fill_positions()
    return model.requires_grad_(False).eval()


def _read_checkpoint(
    folder: Path, checkpoint: str, config: ModelConfig
) -> tuple[dict[str, Tensor], dict[str, str], Path]:
    """The weights that `best`, `last` or a step number names, as `read_weights` gives them; raises ModelFolderError."""
    if checkpoint not in ("best", "last") and not checkpoint.isdecimal():
        raise UsageError(
            f"There is no checkpoint called '{checkpoint}'.", "Use best, last or the step of a checkpoint."
        )
    steps = checkpoint_steps(folder)
    if checkpoint == "best":
        if not has_weights(folder):
            raise _no_best_weights(folder, steps)
        return read_weights(folder, config)
    if checkpoint == "last" and steps:
        return read_weights(names.checkpoint_folder(folder, steps[-1]), config)
    if found := [step for step in steps if str(step) == checkpoint]:
        return read_weights(names.checkpoint_folder(folder, found[0]), config)
    there = [*(["best"] if has_weights(folder) else []), *(["last"] if steps else []), *map(str, steps)]
    hint = f"Choose one of: {', '.join(there)}." if there else "It keeps no checkpoint."
    raise ModelFolderError(f"'{folder}' has no checkpoint '{checkpoint}'.", hint)


def _no_best_weights(folder: Path, steps: list[int]) -> ModelFolderError:
    missing = f"'{folder / names.MODEL}' is not there"
    if not (folder / names.CHECKPOINTS).is_dir():  # no run, which has that from its first moment on
        return ModelFolderError(f"{missing}.", "Restore the folder from its source.")
    hint = "Use --checkpoint last, or go on with the training." if steps else "Go on with the training."
    return ModelFolderError(f"{missing}: nothing was evaluated yet, or it is lost.", hint)


def checkpoint_steps(folder: Path) -> list[int]:
    """Steps of the checkpoints in a run folder, ascending."""
    root = folder / names.CHECKPOINTS
    found = [names.checkpoint_step(path.name) for path in root.iterdir()] if root.is_dir() else []
    return sorted(step for step in found if step is not None)


def verify_run_files(folder: Path) -> None:
    """Check the small files of a run folder against its manifest; other folders have none. Raises ModelFolderError.

    The weights verify themselves when they are read.
    """
    manifest = read_json(folder / MANIFEST_FILE, missing_ok=True)
    if "files" in manifest and (problem := damage(folder, manifest, leaving_out=names.MODEL)):
        raise ModelFolderError(f"The run folder is damaged: {problem}.", RESTORE)


_FILES = TypeAdapter(dict[str, FileEntry])


def damage(folder: Path, manifest: dict[str, Any], *, leaving_out: str = "") -> str:
    """What is wrong with a folder against its manifest, in words; "" if nothing is."""
    try:
        files = _FILES.validate_python(manifest.get("files"))
        if strange := [name for name in files if not is_plain_name(name)]:
            return f"'{folder / MANIFEST_FILE}' names '{strange[0][:100]}', which is no file beside it"
        checked = {name: entry for name, entry in files.items() if name != leaving_out}
        return mismatch(folder, checked) if checked else f"'{folder / MANIFEST_FILE}' lists no files"
    except ValidationError:
        return f"'{folder / MANIFEST_FILE}' has no list of files"
    except OSError as error:
        return f"'{error.filename or folder}' cannot be read ({reason_of(error)})"


def refuse_pickles(path: Path) -> None:
    """Raise ModelFolderError for a pickled model: a file, or a folder with nothing but pickled weights."""
    if is_pickle(path) or (path.is_dir() and not has_weights(path) and any(map(is_pickle, path.iterdir()))):
        raise ModelFolderError(
            f"'{path}' holds pickled weights, which are not opened: reading a pickle can run any code.",
            "Convert them to safetensors with a tool that you trust, in a place where that is safe.",
        )


def is_pickle(path: Path) -> bool:
    """Whether a file is named as pickled weights are; a folder may have any name."""
    return path.suffix in PICKLED and path.is_file()
