"""Pretrained models that a training starts from: published ones, or those of other runs.

The architecture and the tokenizer come from there, and the text is tokenized with that tokenizer. The run folder holds
a copy of the weights from its first moment on, so that resuming needs nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from gptcli.checkpoints import names
from gptcli.checkpoints.finding import find_model
from gptcli.checkpoints.model_folder import read_model_config, refuse_pickles, verify_run_files
from gptcli.checkpoints.run_folder import StoredRun
from gptcli.checkpoints.tensors import digest, read_tensors
from gptcli.checkpoints.weights import read_weights
from gptcli.config import ModelConfig, RunConfig
from gptcli.config.presets import preset
from gptcli.config.values import Values, flatten
from gptcli.dataset.folder import Dataset
from gptcli.errors import ModelFolderError, UsageError, counted
from gptcli.interop.hub import is_address
from gptcli.interop.huggingface import tensors_from_hf, tensors_to_hf
from gptcli.model.resize import resized
from gptcli.runs.request import Request
from gptcli.tokenizer.tokenizer import Tokenizer, is_path, load_tokenizer, parse_tokenizer

SIZES = ("n_layer", "n_head", "n_embd")
"""The part of an architecture that a preset states."""
ARCHITECTURE = tuple(key for key in ModelConfig.model_fields if key not in ("vocab_size", "block_size", "dropout"))
"""Fields that must not change for weights to keep their meaning."""


@dataclass(frozen=True)
class Pretrained:
    """A model to start from, with what a run remembers of it."""

    name: str
    """Its address on the Hub, or the name of its folder."""
    folder: Path
    config: ModelConfig
    tokenizer: Tokenizer

    def layer(self) -> Values:
        """The layer of a run's config that the model decides."""
        return {"model": self.config.model_dump(include={*ARCHITECTURE, "block_size"})}

    def vocab_size(self, tokenizer: Tokenizer) -> int:
        """Rows of the run's vocabulary: those of the model, and more where `tokenizer` has more ids."""
        return max(self.config.vocab_size, tokenizer.vocab_size)


def find_pretrained(thing: str, *, quiet: bool = False) -> Pretrained:
    """Find the model at a path or `hf://` address; it is downloaded from the Hub unless it is in the cache.

    Raises ModelFolderError, TokenizerError, or UsageError for an impossible address.
    """
    folder = find_model(thing, quiet=quiet)
    refuse_pickles(folder)
    hint = "Give a run, a folder in Hugging Face's format, or hf://owner/name with `train.init_from`."
    if not folder.exists():
        raise ModelFolderError(f"There is no '{thing}' to start from.", hint)
    if not folder.is_dir():
        raise ModelFolderError(f"'{thing}' is a file, not a model folder.", hint)
    verify_run_files(folder)
    return Pretrained(stored_name(thing), folder, read_model_config(folder), load_tokenizer(folder))


def pretrained_of(run: StoredRun) -> Pretrained:
    """The model that a stored run started from, as the run's own folder keeps it."""
    assert run.config.train.init_from, "the run started from random weights"
    tokenizer = parse_tokenizer(run.tokenizer_json, run.path / names.TOKENIZER)
    return Pretrained(run.config.train.init_from, run.path, run.config.model, tokenizer)


def stored_name(thing: str) -> str:
    """The name under which a run remembers a model: no path, which would mean nothing elsewhere."""
    return thing if is_address(thing) else Path(thing).resolve().name


def require_its_tokenizer(pretrained: Pretrained, dataset: Dataset) -> None:
    """Raise UsageError for a dataset of another tokenizer, whose ids mean something else to the model."""
    if pretrained.tokenizer.fingerprint != dataset.tokenizer.fingerprint:
        message = f"The dataset '{dataset.path}' has another tokenizer than '{pretrained.name}'."
        raise UsageError(message, "Give the text itself: it is tokenized for the model.")


def initial_weights(pretrained: Pretrained, config: RunConfig) -> dict[str, Tensor]:
    """The weights in float32, in the context window and vocabulary of `config`, under Hugging Face's names."""
    return tensors_to_hf(resized(_weights(pretrained), config.model), config.model)


def verified_sha256(pretrained: Pretrained, config: RunConfig) -> str:
    """The digest of the weights in float32, the same however they are stored.

    Raises ModelFolderError where they cannot be used, or are not the ones that the config names.
    """
    found = digest(tensors_to_hf(_weights(pretrained), pretrained.config))
    if config.train.init_sha256 not in (None, found):
        message = f"The weights of '{pretrained.name}' are not those that `train.init_sha256` names."
        raise ModelFolderError(message, "Find those weights, or remove `train.init_sha256` from the configuration.")
    return found


def stored_initial_state(run: StoredRun) -> dict[str, Tensor]:
    """The state from which a run without a checkpoint starts, read from its folder. Raises ModelFolderError."""
    path = run.path / names.MODEL
    tensors, metadata = read_tensors(path)
    if metadata.get("step") != "0":
        message = f"'{run.path}' has no checkpoint, and its initial weights were replaced by later ones."
        raise ModelFolderError(message, "Start another run with `resume = never`.")
    return tensors_from_hf(tensors, run.config.model, f"'{path}'")


def notes_on(pretrained: Pretrained, config: RunConfig) -> list[str]:
    """Sentences on the origin of the weights, a shortened context window, and a vocabulary that grows."""
    notes = [f"Starting from '{pretrained.name}' with its tokenizer; learning rate {config.optim.lr:.2g}."]
    if (context := config.model.block_size) < pretrained.config.block_size:
        notes.append(f"The context window is shortened from {pretrained.config.block_size:,} to {context:,} tokens.")
    if new := config.model.vocab_size - pretrained.config.vocab_size:
        notes.append(f"The vocabulary grows by {counted(new, 'row')}, initialized with the mean of the others.")
    return notes


def refuse_contradictions(request: Request, pretrained: Pretrained, *, is_new: bool) -> None:
    """Raise UsageError where the request contradicts the model; a shorter context window is allowed."""
    request.refuse_family()
    stated = flatten(request.explicit)
    if request.preset and is_new:
        of_preset = preset(request.preset)["model"]
        stated = {f"model.{key}": of_preset[key] for key in SIZES} | stated
    hint = "Leave it out: the architecture comes from the pretrained weights."
    for key in ARCHITECTURE:
        wanted, there = stated.get(f"model.{key}"), getattr(pretrained.config, key)
        if wanted not in (None, there):
            message = f"`model.{key} = {wanted}` contradicts '{pretrained.name}', where it is {there}."
            raise UsageError(message, hint)
    context, positions = stated.get("model.block_size"), pretrained.config.block_size
    if isinstance(context, int) and context > positions:
        message = f"`model.block_size = {context}` is more than the {positions:,} positions of '{pretrained.name}'."
        raise UsageError(message, f"Use {positions} at most.")
    _refuse_another_tokenizer(stated, pretrained)


def _refuse_another_tokenizer(stated: Values, pretrained: Pretrained) -> None:
    hint = "Leave it out: the model knows only the ids of its own tokenizer."
    kind = str(stated.get("tokenizer.kind", "auto"))
    if kind == "auto":
        if "tokenizer.vocab_size" in stated:
            message = f"`tokenizer.vocab_size` cannot be set: '{pretrained.name}' has a tokenizer of its own."
            raise UsageError(message, hint)
    elif not (is_path(kind) and load_tokenizer(Path(kind)).fingerprint == pretrained.tokenizer.fingerprint):
        message = f"`tokenizer.kind = {kind}` contradicts '{pretrained.name}', which has a tokenizer of its own."
        raise UsageError(message, hint)


def _weights(pretrained: Pretrained) -> dict[str, Tensor]:
    tensors, _, where = read_weights(pretrained.folder, pretrained.config)
    state = tensors_from_hf(tensors, pretrained.config, f"'{where}'")
    return {name: tensor.float().contiguous() for name, tensor in state.items()}
