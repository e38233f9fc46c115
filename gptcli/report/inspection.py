"""`inspect`: finds out what a thing is and describes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gptcli.checkpoints import names
from gptcli.checkpoints.finding import find_model
from gptcli.checkpoints.model_folder import is_pickle, read_model_config, refuse_pickles
from gptcli.checkpoints.run_folder import is_run, newest_run
from gptcli.config import DtypeName, build_config
from gptcli.config.presets import PRESET_ALIASES, PRESETS, SHAPES, preset_vocabulary
from gptcli.dataset.corpora import CORPORA, NamedCorpus, is_corpus
from gptcli.dataset.folder import is_dataset
from gptcli.dataset.remote.addresses import is_text_address
from gptcli.dataset.sources import OnProgress
from gptcli.errors import CorpusError, GptcliError, ModelFolderError, UsageError
from gptcli.interop.hub import model_name
from gptcli.model.cost import parameter_count
from gptcli.paths import hint_for_missing
from gptcli.report.datasets import DatasetList, list_datasets
from gptcli.report.machine import MachineReport, describe_machine
from gptcli.report.model import Basis, ModelReport, describe_model
from gptcli.report.run import Comparison, RunList, RunReport, compare_runs, describe_run, list_runs
from gptcli.report.text import (
    DatasetReport,
    TextReport,
    TokenizerReport,
    TokensReport,
    describe_dataset,
    describe_text,
    describe_tokenizer,
    describe_tokens,
)
from gptcli.report.untrained import Untrained, untrained
from gptcli.tokenizer.tokenizer import holds_tokenizer


@dataclass(frozen=True)
class PresetSummary:
    name: str
    n_layer: int
    n_head: int
    n_embd: int
    block_size: int
    vocab_size: int
    parameters: int
    batch_size: int
    lr: float
    max_steps: int | None


@dataclass(frozen=True)
class PresetList:
    presets: tuple[PresetSummary, ...]
    kind: str = "presets"


@dataclass(frozen=True)
class CorpusList:
    corpora: tuple[NamedCorpus, ...]
    kind: str = "corpora"


Report = (
    ModelReport
    | RunReport
    | RunList
    | Comparison
    | DatasetReport
    | DatasetList
    | TokenizerReport
    | TokensReport
    | TextReport
    | PresetList
    | MachineReport
    | CorpusList
)


def as_json(report: Report) -> dict[str, Any]:
    """The report as JSON values; the figures of a run's model are on the same level as those of the run."""
    values = asdict(report)
    if isinstance(report, RunReport):
        model = values.pop("model")
        return {**values, **{key: value for key, value in model.items() if key not in values}}
    return values


def inspect(
    *things: str | Path,
    preset: str | None = None,
    family: str | None = None,
    vocab_size: int | None = None,
    settings: Mapping[str, Any] | None = None,
    batch_size: int | None = None,
    length: int | None = None,
    device: str = "auto",
    dtype: DtypeName | None = None,
    machine: bool = False,
    quiet: bool = True,
    on_progress: OnProgress | None = None,
) -> Report:
    """Describe a thing, as plain data.

    A thing is a run, model folder, `hf://owner/name`, dataset, tokenizer, text (a file, a folder, an address or the
    name of a corpus), or a folder of runs or datasets; "corpora" is the list of the corpora that have a name,
    "presets" that of the presets. The default is the newest run, or the list of presets where there is no run. Two
    runs are compared; a tokenizer and a text give the tokens of the text. `preset`, with an optional `family` and
    `vocab_size`, describes an untrained model, and `machine` this machine. `settings` by dotted name, such as
    {"model.n_layer": 3}, change the preset or, without one, GPT-2. Memory and FLOPs are for `batch_size` sequences of
    `length` tokens (default: as in training) on `device`, which this machine need not have, with products in `dtype`.
    `on_progress` is called while text is downloaded.

    Raises GptcliError: that of the kind of thing, or UsageError for things that do not go together.

    >>> inspect(preset="gpt2").parameters.total
    124439808
    >>> inspect(preset="gpt3-175b").parameters.total
    174604259328
    """
    _require_one_subject(things, preset, vocab_size, family, settings or {}, machine=machine)
    if machine:
        return describe_machine()
    basis = Basis(batch_size, length, device, dtype)
    if preset is not None or settings:
        return _inspect_untrained(untrained(preset, family, vocab_size, settings or {}), basis)
    if len(things) == 1 and (listed := _LISTS.get(str(things[0]))) and not Path(things[0]).exists():
        return listed()
    if things and _is_text_elsewhere(things[-1]):
        text = str(things[-1])
        return _inspect_elsewhere([find_model(one, quiet=quiet) for one in things[:-1]], text, on_progress)
    paths = [find_model(thing, quiet=quiet) for thing in things]
    if len(paths) == 2:
        return _inspect_pair(*paths)
    path = paths[0] if paths else newest_run(names.RUNS_ROOT)
    if path is None:
        return _presets()
    return _inspect_path(path, basis)


def _presets() -> PresetList:
    return PresetList(tuple(_preset(name) for name in PRESETS))


_LISTS: dict[str, Callable[[], CorpusList | PresetList]] = {
    "corpora": lambda: CorpusList(tuple(CORPORA.values())),
    "presets": _presets,
}
"""Lists by the words that ask for them, where there is no file or folder of that name."""


def _require_one_subject(
    things: Sequence[object],
    preset: str | None,
    vocab_size: int | None,
    family: str | None,
    settings: Mapping[str, Any],
    *,
    machine: bool,
) -> None:
    """Raise UsageError for arguments that do not go together."""
    if len(things) > 2:
        raise UsageError(f"{len(things)} things were given.", "Give one, two runs, or a tokenizer and a text.")
    if bool(things) + (preset is not None) + machine > 1:
        raise UsageError("A thing, `preset` and `machine` cannot be used together.", "Ask for one at a time.")
    if settings and (things or machine):
        subject = "a trained model has its own" if things else "this machine has none"
        raise UsageError(f"`{next(iter(settings))}` changes an untrained model: {subject}.", "Leave it out.")
    if settings:
        return
    if family is not None and preset is None:
        raise UsageError("`family` goes with `preset`: a trained model has its own architecture.", "Leave it out.")
    if vocab_size is not None and preset is None:
        raise UsageError("`vocab_size` goes with `preset`: a trained model has its own vocabulary.", "Leave it out.")


def _inspect_path(path: Path, basis: Basis) -> Report:
    _require_known(path)
    if path.is_file():
        return describe_tokenizer(path) if path.suffix == ".json" else describe_text(str(path))
    if is_run(path):
        return describe_run(path, basis)
    if is_dataset(path):
        return describe_dataset(path)
    if (path / names.CONFIG).exists():
        return describe_model(model_name(path), read_model_config(path), basis, sequences=1)
    if holds_tokenizer(path):
        return describe_tokenizer(path)
    if path.is_dir():
        children = list(path.iterdir())
        if any(map(is_run, children)):
            return list_runs(path)
        if any(map(is_dataset, children)):
            return list_datasets(path)
    try:
        return describe_text(str(path))
    except CorpusError:
        refuse_pickles(path)  # a folder of weights, without text
        raise


def _is_text_elsewhere(thing: str | Path) -> bool:
    """Whether a thing is an address of text, or a corpus of which there is no run either."""
    text = str(thing)
    has_run = (names.RUNS_ROOT / text).is_dir() if text in CORPORA else False
    return isinstance(thing, str) and (is_text_address(text) or (is_corpus(text) and not has_run))


def _inspect_elsewhere(before: Sequence[Path], text: str, on_progress: OnProgress | None) -> Report:
    if not before:
        return describe_text(text, on_progress)
    _require_known(before[0])
    return describe_tokens(before[0], text, on_progress)


def _inspect_pair(one: Path, other: Path) -> Report:
    _require_known(one)
    _require_known(other)
    if is_run(one) and is_run(other):
        return compare_runs(one, other)
    if one.suffix == ".json" or holds_tokenizer(one):
        return describe_tokens(one, str(other))
    raise UsageError(
        f"'{one}' and '{other}' are neither two runs nor a tokenizer and a text.",
        "Give two run folders, or a tokenizer.json (or a run or dataset) and a text file.",
    )


def _inspect_untrained(model: Untrained, basis: Basis) -> ModelReport:
    config = model.config
    return describe_model(
        *(model.name, config.model, basis),
        sequences=config.train.batch_size,
        activation_checkpointing=config.train.activation_checkpointing,
    )


def _preset(name: str) -> PresetSummary:
    config = build_config(name, vocab_size=preset_vocabulary(name))
    model = config.model
    return PresetSummary(
        name=name,
        n_layer=model.n_layer,
        n_head=model.n_head,
        n_embd=model.n_embd,
        block_size=model.block_size,
        vocab_size=model.vocab_size,
        parameters=parameter_count(model),
        batch_size=config.train.batch_size,
        lr=config.optim.lr,
        max_steps=config.train.max_steps,
    )


def _require_known(path: Path) -> None:
    """Raise a GptcliError for a missing path, pickled weights, or a file of weights alone."""
    if is_pickle(path):
        refuse_pickles(path)
    if path.suffix == ".safetensors" and path.is_file():
        raise ModelFolderError(f"'{path}' is the weights of a model alone.", "Give the folder that it belongs to.")
    if not path.exists():
        is_preset = str(path) in (*PRESETS, *PRESET_ALIASES, *SHAPES)
        hint = f"For the preset use `preset = {path}`." if is_preset else hint_for_missing(path)
        raise GptcliError(f"There is no file or folder '{path}'.", hint)
