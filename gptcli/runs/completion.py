"""Completing the config: open fields are filled once, from the data and the machine, before anything is built."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from gptcli.checkpoints.checkpoint import Progress
from gptcli.checkpoints.names import TOKENIZER
from gptcli.config import MAX_COUNT, RunConfig, TokenizerConfig, with_train
from gptcli.dataset.folder import Dataset
from gptcli.dataset.mixing import naming_part
from gptcli.dataset.mixture import Mixture
from gptcli.errors import CorpusError, GptcliError, OutOfMemoryError, UsageError, counted, duration, size
from gptcli.interop.huggingface import compatibility_note
from gptcli.model.cost import inner_parameters, parameter_count
from gptcli.model.devices import DtypeChoice
from gptcli.runs.choosing import Choice, choose_model, is_open
from gptcli.runs.decision import Decision, FineTune, NewRun, Resume, run_config
from gptcli.runs.expected import LAW
from gptcli.runs.fitting import SHAPE, Fitted, fit_to_machine, way_to_fit
from gptcli.runs.ngrams import characters_per_token
from gptcli.runs.pace import Pace, may_compile, measure_pace, seconds_of, steps_within
from gptcli.runs.pretrained import notes_on, verified_sha256
from gptcli.runs.request import Request
from gptcli.runs.rhythm import epoch_steps, with_rhythm
from gptcli.runs.team import ALONE_TEAM, Team
from gptcli.tokenizer.tokenizer import is_path
from gptcli.training.runtime import trains_in_tf32

LARGEST_EXTENSION = 1.25
"""Limit for the number of updates, as a multiple of the planned one."""
TOO_SMALL = (
    "This text is too small to learn much from: the model will mostly memorize it. Add text, or start from a "
    "pretrained model with `train.init_from`."
)


@dataclass(frozen=True, kw_only=True)
class Completed:
    """A complete config, and how it came about."""

    config: RunConfig
    memory: int
    """Peak memory of training in bytes."""
    seconds: float | None
    """Estimated time of a new training; None where it was not measured."""
    notes: list[str]
    """Choices that were made, and why: sentences for the user."""
    refusal: GptcliError | None
    """The reason why the training cannot run on this machine; None if it can."""
    steps_limit: int | None = None
    """Limit for the number of updates where it follows the speed of the machine; None where it is fixed."""
    measured_compiled: bool = False
    """Whether that time is of a compiled training."""
    choice: Choice | None = None
    """The models that could be trained, where the program chose one."""


def complete(
    request: Request,
    decision: Decision,
    dataset: Dataset,
    device: torch.device,
    team: Team = ALONE_TEAM,
    *,
    measures: bool = True,
) -> Completed:
    """The complete config of a training. The pace of a new one is measured, which takes a second or two, if `measures`.

    Raises ConfigError or UsageError for settings that cannot be, CorpusError for a text that is too short, DeviceError
    for a dtype that the device cannot train in, and what the weights of a pretrained model raise.
    """
    pretrained = decision.pretrained
    rows = dataset.tokenizer.vocab_size
    choice = None
    if measures and isinstance(decision, NewRun) and is_open(request):
        choice = choose_model(request, decision, dataset, device, team)
        decision = replace(decision, chosen=choice.best.chosen) if choice else decision
    config = run_config(request, decision, device, pretrained.vocab_size(dataset.tokenizer) if pretrained else rows)
    is_given = pretrained is not None or request.has_dataset or is_path(config.tokenizer.kind)
    config = config.model_copy(update={"tokenizer": _tokenizer(config.tokenizer, dataset, is_given=is_given)})
    _require_a_window(config, dataset)
    _require_a_sequence_each(config, team)
    fitted = fit_to_machine(config, device, team)
    config = fitted.config
    refusal = None if fitted.fits else _too_large(request, decision, fitted, device, team)
    is_timed = config.train.max_steps is None and config.train.epochs is None
    pace = choice.best.pace if choice else None
    if pace is None and refusal is None and (is_timed or (measures and not isinstance(decision, Resume))):
        compiles = is_timed and may_compile(device, config.train.max_time or 0)
        pace = measure_pace(config, dataset, device, compiles=compiles, team=team)
    done = decision.progress if isinstance(decision, Resume) and decision.states_another_time(request) else Progress()
    max_steps = choice.best.steps if choice else _max_steps(config, dataset, pace, refusal, done)
    config = with_train(config, max_steps=max_steps)
    config = with_rhythm(config, pace.step if pace else None)
    if isinstance(decision, FineTune):
        config = with_train(config, init_sha256=verified_sha256(decision.pretrained, config))
    seconds = seconds_of(config.train.max_steps or 0, config, dataset, pace) if pace else None
    return Completed(
        config=config,
        memory=fitted.memory.total,
        seconds=seconds,
        notes=[
            *(notes_on(decision.pretrained, config) if isinstance(decision, FineTune) else []),
            f"Model: {_shape(config)}{_default_note(request, decision, device)}.",
            *([alone] if (alone := compatibility_note(config.model)) else []),
            f"Budget: {_budget(config, dataset, seconds)}.",
            *([TOO_SMALL] if choice and choice.only_memorizes else []),
            f"Dtype: {fitted.dtype.name}, {_dtype_reason(config, decision, fitted.dtype, device)}.",
            f"Memory: about {size(fitted.memory.total)}{_each(team, fitted.config)}; {size(fitted.free)} are free.",
        ],
        refusal=refusal,
        steps_limit=_steps_limit(request, config, choice, pace),
        measured_compiled=pace is not None and pace.compiling > 0,
        choice=choice,
    )


def _tokenizer(asked: TokenizerConfig, dataset: Dataset, *, is_given: bool) -> TokenizerConfig:
    """The tokenizer section to store: how the tokenizer was made or, if it was given, its copy in the run folder."""
    if is_given:
        return TokenizerConfig(kind=TOKENIZER)
    kind = dataset.tokenizer.kind
    return TokenizerConfig(kind=kind, vocab_size=asked.entries if kind == "bpe" else None)


def _require_a_window(config: RunConfig, dataset: Dataset) -> None:
    if isinstance(dataset, Mixture):
        for part in dataset.parts:
            with naming_part(part.name):
                _require_a_window(config, part.dataset)
        return
    tokens, context = dataset.train.tokens, config.model.block_size
    if tokens <= context:
        raise CorpusError(
            f"The training text has {tokens:,} tokens, too few for a context window of {context:,} and the next token.",
            f"Use more text, or `model.block_size = {tokens - 1}` at most." if tokens > 1 else "Use more text.",
        )
    if dataset.val.tokens < 2:  # one to read and one to predict
        hint = "Use more text, or `data.val_fraction = 0.5`."
        raise CorpusError("The text is too short to hold out some of it for validation.", hint)


def _require_a_sequence_each(config: RunConfig, team: Team) -> None:
    ranks, sequences = team.ranks.size, config.train.batch_size
    if sequences < ranks:
        message = f"{ranks} processes cannot share {counted(sequences, 'sequence')} per update."
        raise UsageError(message, f"Use `train.batch_size = {ranks}` or more, or fewer processes.")


def _too_large(
    request: Request, decision: Decision, fitted: Fitted, device: torch.device, team: Team
) -> OutOfMemoryError:
    message = f"Training needs about {size(fitted.memory.total)} of memory, and {size(fitted.free)} are free."
    can_choose = isinstance(decision, NewRun) and not any(map(request.states, SHAPE))
    dtype = fitted.dtype.dtype
    way = way_to_fit(fitted.config, fitted.free, dtype, device.type, team.ranks, can_choose=can_choose)
    return OutOfMemoryError(message, way)


def _max_steps(
    config: RunConfig, dataset: Dataset, pace: Pace | None, refusal: GptcliError | None, done: Progress
) -> int:
    """The number of updates that the schedule runs over. Those that fit into a stated time come after the `done` ones.

    It is chosen before the first update, and again where a resumed run gets another time.
    """
    train = config.train
    by_epochs = math.ceil(train.epochs * epoch_steps(config, dataset)) if train.epochs else None
    if by_epochs and not train.max_steps and by_epochs > MAX_COUNT:
        message = f"{train.epochs:g} epochs are {by_epochs:,} steps; {MAX_COUNT:,} are the most."
        raise UsageError(message, "Lower `train.epochs`.")
    if by_epochs:
        return max(1, min(by_epochs, train.max_steps or by_epochs))
    if train.max_steps:
        return train.max_steps
    assert train.max_time, "a budget without steps or epochs has a time"
    if refusal:  # the pace cannot be measured
        raise refusal
    assert pace, "a training that is not refused has a pace"
    left = train.max_time - done.seconds
    more = steps_within(left, config, dataset, pace) if left > 0 else 1
    return min(MAX_COUNT, done.step + more)


def _steps_limit(request: Request, config: RunConfig, choice: Choice | None, pace: Pace | None) -> int | None:
    """The limit for the number of updates where only a time is stated, in this session too; else None.

    A number that the time has limited may grow; where the model would memorize its text, or the reason is no longer
    known, it may not.
    """
    train = config.train
    assert train.max_steps, "the number of steps comes first"
    if "max_time" not in request.budget or "max_steps" in request.budget or train.epochs:
        return None
    limited_by_time = choice.best.fills_time if choice else pace is not None
    return min(MAX_COUNT, int(LARGEST_EXTENSION * train.max_steps)) if limited_by_time else train.max_steps


def _each(team: Team, config: RunConfig) -> str:
    if team.ranks.size == 1:
        return ""
    sharded = ", which share the weights (fsdp)" if config.train.parallel == "fsdp" else ""
    return f" in each of {team.ranks.size} processes{sharded}"


def _shape(config: RunConfig) -> str:
    """The model in words; a fine-tuned model has only the recipe of its preset, not the shape."""
    model = config.model
    experts = f"{counted(model.n_expert, 'expert')} ({model.n_expert_active} per token), " if model.n_expert else ""
    sizes = f"{counted(model.n_layer, 'layer')}, {counted(model.n_head, 'head')}, {model.n_embd:,} wide, {experts}"
    sizes += f"context {model.block_size:,}, {parameter_count(model):,} parameters"
    return sizes if config.train.init_from else f"{config.preset} ({sizes})"


def _default_note(request: Request, decision: Decision, device: torch.device) -> str:
    if not isinstance(decision, NewRun) or request.preset or "preset" in request.explicit:
        return ""
    if decision.chosen:
        return ", chosen for this text, this machine and this time"
    kind = {"cpu": "a CPU", "cuda": "a CUDA GPU", "mps": "an Apple GPU"}[device.type]
    return f", the default on {kind}"


def _dtype_reason(config: RunConfig, decision: Decision, dtype: DtypeChoice, device: torch.device) -> str:
    tf32 = dtype.name == "float32" and trains_in_tf32(device, deterministic=config.train.deterministic)
    reason = "as the run began" if isinstance(decision, Resume) else dtype.reason
    return reason + (", with products in TF32" if tf32 else "")


def _budget(config: RunConfig, dataset: Dataset, seconds: float | None) -> str:
    train = config.train
    steps = train.max_steps or 0
    passes = _passes(config, dataset, steps)
    epochs = max(passes.values())
    times = ", ".join(f"{count:,.1f} times over {name}" for name, count in passes.items())
    batch = f"{train.batch_size:,} × {config.model.block_size:,} tokens"
    inner = inner_parameters(config.model)
    characters = characters_per_token(dataset) * dataset.train.tokens
    harmless = LAW.harmless_passes(inner, characters, config.model.dropout)
    memorizing = ", so often that the model may memorize it" if epochs > harmless else ""
    takes = f"; about {duration(seconds)} on this machine" if seconds else ""
    return f"{counted(steps, 'step')} of {batch}, {times}{memorizing}{takes}"


def _passes(config: RunConfig, dataset: Dataset, steps: int) -> dict[str, float]:
    """How many times training goes over the text, or over each part of a mixture by name."""
    if not isinstance(dataset, Mixture):
        return {"the text": steps / epoch_steps(config, dataset)}
    return {part.name: part.weight * steps / epoch_steps(config, part.dataset) for part in dataset.parts}
