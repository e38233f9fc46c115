"""From what was asked to a complete config.

The config is complete before anything is built. What the user left open is filled from the data and the machine, or,
where a run goes on, from what that run was started with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch

from gptcli.checkpoints.names import TOKENIZER
from gptcli.checkpoints.run_folder import is_run, read_run
from gptcli.config import CHANGEABLE_ON_RESUME, MAX_COUNT, RunConfig, TokenizerConfig, build_config, nearest_preset
from gptcli.config.presets import fine_tuning
from gptcli.config.values import Values, flatten, merge, nest
from gptcli.dataset.folder import Dataset
from gptcli.errors import CorpusError, OutOfMemoryError, UsageError
from gptcli.interop.huggingface import compatibility_note
from gptcli.machine import free_memory
from gptcli.memory import largest_micro_batch, training_memory
from gptcli.model.devices import choose_dtype
from gptcli.model.gpt import parameter_count
from gptcli.runs.pace import steps_within
from gptcli.runs.request import Request
from gptcli.runs.start import Start, checked_sha256, remembered_name, short_rhythm, starting_notes
from gptcli.tokenizer.tokenizer import is_path
from gptcli.training.batches import training_batches

BUDGET = ("train.max_steps", "train.epochs", "train.max_time")
"""One that is stated takes the place of those that a preset or the recipe of fine-tuning has."""

BY_HEART = 100
"""Passes over a text from which on the plan remarks what comes of so many (docs/log.md)."""


@dataclass(frozen=True, kw_only=True)
class Completed:
    """A complete config, and how it came about."""

    config: RunConfig
    memory: int
    """Bytes that training takes at its peak."""
    notes: list[str]
    """What was chosen, and why: sentences for the user."""


def check_request(request: Request, path: Path, device: torch.device, start: Start | None = None) -> None:
    """Refuse what can be refused before any text is read: unknown keys, impossible values.

    `path` is what `run_folder` gives, `start` what `find_start` does. Of weights to start from that were not found yet
    the shape is not known: then what is asked of the model is left for later.
    """
    stored = read_run(path).config if is_run(path) else None
    preset_name = _preset_name(request, stored, device, start)
    layers = _layers(request, preset_name, stored, start)
    if start is None and remembered_name(request, stored):
        layers = [{section: layer[section] for section in layer if section != "model"} for layer in layers]
    build_config(preset_name, *layers, vocab_size=1)


def complete_config(
    request: Request, dataset: Dataset, device: torch.device, stored: RunConfig | None, start: Start | None = None
) -> Completed:
    """The complete config; `stored` is that of the run which goes on, if one does.

    What the user left open is taken from the stored config, else from the data and the machine.
    """
    preset_name = _preset_name(request, stored, device, start)
    config = build_config(
        preset_name,
        *_layers(request, preset_name, stored, start),
        {"train": {"init_from": remembered_name(request, stored)}},
        vocab_size=start.rows(dataset) if start else dataset.tokenizer.vocab_size,
    )
    config = config.model_copy(update={"tokenizer": _tokenizer(config.tokenizer, request, dataset, start)})
    _require_a_window(config, dataset)
    number_format = choose_dtype(config.train.dtype, device, config.model.n_embd)
    free = free_memory(device)
    config = _with_train(config, dtype=number_format.name)
    config = _with_train(config, micro_batch_size=_micro_batch_size(config, device, number_format.dtype, free))
    memory = _memory(config, device, number_format.dtype)  # before a model is built to see how fast it trains
    config = _with_train(config, max_steps=_max_steps(config, request, dataset, device))
    if start and start.is_new:
        config = _with_train(config, **short_rhythm(config, request), init_sha256=checked_sha256(start, config))
    chose_preset = not (stored or start or request.preset or "preset" in request.explicit)
    notes = [
        *(starting_notes(start, config) if start and start.is_new else []),
        f"Model: {_shape(config)}" + (f", the default on {_a_device(device)}." if chose_preset else "."),
        *([alone] if (alone := compatibility_note(config.model)) else []),
        f"Budget: {_budget(config, dataset)}.",
        f"Numbers: {number_format.name}, {'as the run began' if stored else number_format.reason}.",
        f"Memory: about {memory / 1e9:.2f} GB; {free / 1e9:.1f} GB are free.",
    ]
    return Completed(config=config, memory=memory, notes=notes)


def default_preset(device: torch.device) -> str:
    """The preset for a machine: what trains in minutes there."""
    return "tiny" if device.type == "cpu" else "small"


def epoch_steps(config: RunConfig, dataset: Dataset) -> float:
    """Updates in one pass over the training text."""
    return training_batches(config, dataset).windows_per_epoch / config.train.batch_size


def _preset_name(request: Request, stored: RunConfig | None, device: torch.device, start: Start | None) -> str:
    stated = request.explicit.get("preset") if request.preset is None else request.preset
    if stated is not None:
        return str(stated)
    if stored:
        return stored.preset
    return nearest_preset(start.model) if start else default_preset(device)


def _layers(request: Request, preset_name: str, stored: RunConfig | None, start: Start | None) -> list[Values]:
    """What lies over the preset, each layer stronger than the one before."""
    return [
        merge(fine_tuning(preset_name), start.shape()) if start else {},
        {"train": {"max_steps": None, "epochs": None}} if request.states(*BUDGET) else {},
        _kept(stored, request) if stored else {},
        _file_layer(request),
        request.family_layer(preset_name),
        request.flags,
    ]


def _kept(stored: RunConfig, request: Request) -> Values:
    """What a run keeps where the request is silent: budgets, rhythms, the machine's choices.

    What is open there (None) stays open, whatever a preset or the recipe of fine-tuning has.
    """
    keys = CHANGEABLE_ON_RESUME | {"train.dtype", "train.init_sha256"}
    if request.states("train.epochs"):
        keys -= {"train.max_steps"}
    elif request.states("train.max_steps"):
        keys -= {"train.epochs"}
    sections = {"optim": stored.optim, "train": stored.train}
    return {
        section: {name: value for name, value in values if f"{section}.{name}" in keys}
        for section, values in sections.items()
    }


def _file_layer(request: Request) -> Values:
    """The config file's values; its number of steps does not count where flags set the budget in another way."""
    flags = flatten(request.flags)
    other_budget = flags.keys() & {"train.epochs", "train.max_time"} and "train.max_steps" not in flags
    values = flatten(request.file)
    return nest({key: values[key] for key in values if key != "train.max_steps"}) if other_budget else request.file


def _tokenizer(asked: TokenizerConfig, request: Request, dataset: Dataset, start: Start | None) -> TokenizerConfig:
    """What the run remembers: how its tokenizer was made, or that it stands beside the stored config.

    That is so where it was given: as a file, in a dataset, or by what training starts from.
    """
    if start or request.has_dataset or is_path(asked.kind):
        return TokenizerConfig(kind=TOKENIZER)
    kind = dataset.tokenizer.kind
    return TokenizerConfig(kind=kind, vocab_size=asked.entries if kind == "bpe" else None)


def _require_a_window(config: RunConfig, dataset: Dataset) -> None:
    tokens, context = dataset.train.tokens, config.model.block_size
    if tokens <= context:
        raise CorpusError(
            f"The training text has {tokens:,} tokens, too few for a context of {context:,} and the token after it.",
            f"Use more text, or --block-size {tokens - 1} at most." if tokens > 1 else "Use more text.",
        )
    if dataset.val.tokens < 2:  # one to read and one to guess
        raise CorpusError("The text is too short to hold out some of it.", "Use more text, or --val-fraction 0.5.")


def _micro_batch_size(config: RunConfig, device: torch.device, dtype: torch.dtype, free: int) -> int:
    """The sequences that go through the model at once: as stated, or as many as fit into so many free bytes."""
    train = config.train
    recompute = train.activation_checkpointing
    fitting = largest_micro_batch(config.model, train.batch_size, free, dtype, device.type, recompute=recompute)
    stated = train.micro_batch_size
    if stated is None and fitting is not None:
        return fitting
    size = min(stated or 1, train.batch_size)
    needed = training_memory(config.model, size, dtype, device.type, recompute=recompute).needed
    if device.type == "cpu" and needed > free:
        hint = f"Use --micro-batch-size {fitting}: it gives the same result." if fitting else "Use a smaller model."
        raise OutOfMemoryError(f"Training needs about {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free.", hint)
    return size


def _memory(config: RunConfig, device: torch.device, dtype: torch.dtype) -> int:
    """Bytes that training takes at its peak, this process included."""
    size, recompute = config.train.micro_batch_size, config.train.activation_checkpointing
    assert size, "it was chosen before"
    return training_memory(config.model, size, dtype, device.type, recompute=recompute).total


def _max_steps(config: RunConfig, request: Request, dataset: Dataset, device: torch.device) -> int:
    """The number of updates over which the schedule runs, fixed before the first one."""
    train = config.train
    by_epochs = math.ceil(train.epochs * epoch_steps(config, dataset)) if train.epochs else None
    if by_epochs and not train.max_steps and by_epochs > MAX_COUNT:
        raise UsageError(
            f"{train.epochs:g} epochs are {by_epochs:,} steps; {MAX_COUNT:,} are the most.", "Lower --epochs."
        )
    if by_epochs:
        return max(1, min(by_epochs, train.max_steps or by_epochs))
    if train.max_steps:
        return train.max_steps
    assert train.max_time, "a budget without steps or epochs has a time"
    return min(MAX_COUNT, steps_within(train.max_time, config, dataset, device))


def _with_train(config: RunConfig, **values: object) -> RunConfig:
    return config.model_copy(update={"train": config.train.model_copy(update=values)})


def _shape(config: RunConfig) -> str:
    """The model in words; of one that training started from the preset is only whose recipe is used."""
    model = config.model
    experts = f"{model.n_expert} experts ({model.n_expert_active} for a token), " if model.n_expert else ""
    sizes = (
        f"{model.n_layer} layers, {model.n_head} heads, {model.n_embd:,} wide, {experts}context {model.block_size:,}"
    )
    sizes += f", {parameter_count(model):,} parameters"
    return sizes if config.train.init_from else f"{config.preset} ({sizes})"


def _budget(config: RunConfig, dataset: Dataset) -> str:
    train = config.train
    steps = train.max_steps or 0
    epochs = steps / epoch_steps(config, dataset)
    batch = f"{train.batch_size:,} × {config.model.block_size:,} tokens"
    by_heart = ", so often that it may know it by heart" if epochs > BY_HEART else ""
    return f"{steps:,} step{'s' * (steps > 1)} of {batch}, {epochs:,.1f} times over the text{by_heart}"


def _a_device(device: torch.device) -> str:
    return {"cpu": "a CPU", "cuda": "a CUDA GPU", "mps": "an Apple GPU"}[device.type]
