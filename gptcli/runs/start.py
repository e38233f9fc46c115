"""Starting from weights that are there: published ones, or another run's.

The model's shape and its tokenizer come from there; the text is tokenized with that tokenizer. The run folder holds the
weights from its first moment on, so that nothing else is needed to go on with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from gptcli.checkpoints import names
from gptcli.checkpoints.model_folder import read_model_config, refuse_pickles, verify_run_files
from gptcli.checkpoints.run_folder import is_run, read_run
from gptcli.checkpoints.tensors import digest, read_tensors
from gptcli.checkpoints.weights import read_weights
from gptcli.config import ModelConfig, RunConfig
from gptcli.config.presets import FINE_TUNING_EVALUATIONS, preset
from gptcli.config.values import Values, flatten
from gptcli.dataset.folder import Dataset
from gptcli.errors import ModelFolderError, UsageError
from gptcli.interop.download import local_model
from gptcli.interop.hub import is_address
from gptcli.interop.huggingface import tensors_from_hf, tensors_to_hf
from gptcli.model.gpt import GPT
from gptcli.model.resize import resized
from gptcli.runs.request import Request
from gptcli.tokenizer.tokenizer import is_path, load_tokenizer

SIZES = ("n_layer", "n_head", "n_embd")
"""What a preset states of a model."""
ARCHITECTURE = tuple(key for key in ModelConfig.model_fields if key not in ("vocab_size", "block_size", "dropout"))
"""What must stay as it is for weights to mean the same."""


@dataclass(frozen=True)
class Start:
    """A model to start from: its folder, and what a run remembers of it."""

    name: str
    """An address on the Hub as it was given, or the folder's name."""
    folder: Path
    """The weights and the tokenizer; of a run that goes on, its own folder."""
    model: ModelConfig
    """The model there."""
    is_new: bool
    """False where a run goes on, which has left its start."""

    def shape(self) -> Values:
        """The layer of the config that the model gives."""
        return {"model": {key: getattr(self.model, key) for key in (*ARCHITECTURE, "block_size")}}

    def rows(self, dataset: Dataset) -> int:
        """Rows of the vocabulary: those of the model, and more where the tokenizer has more ids."""
        return max(self.model.vocab_size, dataset.tokenizer.vocab_size)


def find_start(request: Request, path: Path, *, quiet: bool = False) -> Start | None:
    """What training in the `run_folder` at `path` starts from, if not from random weights; downloaded from the Hub.

    Where a run goes on, only the run is looked at: what it started from may be gone. Raises UsageError for what
    contradicts the model's shape or tokenizer, ModelFolderError, or TokenizerError.
    """
    thing = request.stated("train.init_from")
    if is_run(path):
        stored = read_run(path).config
        if stored.train.init_from is None:
            return None  # if one was stated now, the difference is refused
        start = Start(stored.train.init_from, path, stored.model, is_new=False)
    elif thing is None:
        return None
    else:
        folder = local_model(str(thing), quiet=quiet)
        refuse_pickles(folder)
        hint = "Give a run, a folder in Hugging Face's format, or hf://owner/name with --init-from."
        if not folder.exists():
            raise ModelFolderError(f"There is no '{thing}' to start from.", hint)
        if not folder.is_dir():
            raise ModelFolderError(f"'{thing}' is a file, not a model folder.", hint)
        verify_run_files(folder)
        start = Start(stored_name(str(thing)), folder, read_model_config(folder), is_new=True)
    _refuse_contradictions(request, start)
    return start


def stored_name(thing: str) -> str:
    """What a run remembers of where its weights came from: no path, which would mean nothing elsewhere."""
    return thing if is_address(thing) else Path(thing).resolve().name


def remembered_name(request: Request, stored: RunConfig | None) -> str | None:
    """The name of what a run starts from: the one that was stated, else that of the run which goes on."""
    stated = request.stated("train.init_from")
    return stored_name(str(stated)) if stated is not None else stored.train.init_from if stored else None


def short_rhythm(config: RunConfig, request: Request) -> dict[str, int]:
    """Evaluations and checkpoints as often as a short training needs to stop early, unless the request states them."""
    assert config.train.max_steps
    every = -(-config.train.max_steps // FINE_TUNING_EVALUATIONS)
    return {name: every for name in ("eval_every", "save_every") if not request.states(f"train.{name}")}


def require_its_tokenizer(start: Start, dataset: Dataset) -> None:
    """Raise UsageError for a dataset whose ids mean something else to the model."""
    if load_tokenizer(start.folder).fingerprint != dataset.tokenizer.fingerprint:
        message = f"The dataset '{dataset.path}' has another tokenizer than '{start.name}'."
        raise UsageError(message, "Give the text itself: it is tokenized for the model.")


def starting_weights(start: Start, config: RunConfig) -> dict[str, Tensor]:
    """The weights of a start in float32, in the context and vocabulary of `config`, under Hugging Face's names."""
    return tensors_to_hf(resized(_weights(start), config.model), config.model)


def checked_sha256(start: Start, config: RunConfig) -> str:
    """The digest of a start's weights in float32, the same however they are stored.

    Raises ModelFolderError where they cannot be used, or are not those that the config names.
    """
    found = digest(tensors_to_hf(_weights(start), start.model))
    if config.train.init_sha256 not in (None, found):
        message = f"The weights of '{start.name}' are not those that train.init_sha256 names."
        raise ModelFolderError(message, "Find those, or take train.init_sha256 out of the configuration.")
    return found


def starting_state(run: Path, model: GPT) -> dict[str, Tensor]:
    """The state that a run without a checkpoint starts from, which lies in its folder. Raises ModelFolderError."""
    tensors, metadata = read_tensors(run / names.MODEL)
    if metadata.get("step") != "0":
        message = f"'{run}' has no checkpoint, and no longer the weights that it started from."
        raise ModelFolderError(message, "Start another run with --resume never.")
    return tensors_from_hf(tensors, model.config, f"'{run / names.MODEL}'")


def starting_notes(start: Start, config: RunConfig) -> list[str]:
    """Sentences on where the weights come from, a context that is cut and a vocabulary that grows."""
    notes = [f"Starting from '{start.name}', whose tokenizer it keeps; a learning rate of {config.optim.lr:.2g}."]
    if (context := config.model.block_size) < start.model.block_size:
        notes.append(f"The context is cut from {start.model.block_size:,} to {context:,} tokens.")
    if new := config.model.vocab_size - start.model.vocab_size:
        rows = "1 row, which begins" if new == 1 else f"{new:,} rows, which begin"
        notes.append(f"The vocabulary grows by {rows} as the mean of the others.")
    return notes


def _weights(start: Start) -> dict[str, Tensor]:
    tensors, _, where = read_weights(start.folder, start.model)
    state = tensors_from_hf(tensors, start.model, f"'{where}'")
    return {name: tensor.float().contiguous() for name, tensor in state.items()}


def _refuse_contradictions(request: Request, start: Start) -> None:
    """Raise UsageError where the request says otherwise than the model; a shorter context is no contradiction."""
    request.refuse_family()  # also where a run goes on, which was told its start before
    stated = flatten(request.explicit)
    if request.preset and start.is_new:
        of_preset = preset(request.preset)["model"]
        stated = {f"model.{key}": of_preset[key] for key in SIZES} | stated
    hint = "Leave it out: the shape comes from the weights that training starts from."
    for key in ARCHITECTURE:
        wanted, there = stated.get(f"model.{key}"), getattr(start.model, key)
        if wanted not in (None, there):
            raise UsageError(f"model.{key} = {wanted} contradicts '{start.name}', where it is {there}.", hint)
    context = stated.get("model.block_size")
    if isinstance(context, int) and context > start.model.block_size:
        message = (
            f"model.block_size = {context:,} is more than '{start.name}' has positions, {start.model.block_size:,}."
        )
        raise UsageError(message, "Use that or less.")
    kind = str(stated.get("tokenizer.kind", "auto"))
    if kind == "auto" and "tokenizer.vocab_size" in stated:
        message = f"tokenizer.vocab_size cannot be stated: '{start.name}' has a tokenizer of its own."
        raise UsageError(message, "Leave it out: the model knows only its own ids.")
    if kind == "auto":
        return
    same = is_path(kind) and load_tokenizer(Path(kind)).fingerprint == load_tokenizer(start.folder).fingerprint
    if not same:
        raise UsageError(
            f"tokenizer.kind = {kind} contradicts '{start.name}', which has a tokenizer of its own.",
            "Leave it out: the model knows only its own ids.",
        )
