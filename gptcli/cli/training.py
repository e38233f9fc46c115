"""What `gptcli train` does between its options and its display."""

from __future__ import annotations

import functools
import shlex
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gptcli.checkpoints.names import RUNS_ROOT
from gptcli.checkpoints.run_folder import is_run
from gptcli.cli.options import DATA_ROOT, require_bpe_for_a_size
from gptcli.config import DataConfig, TokenizerConfig, load_config_file, parse_section
from gptcli.config.values import Values, flatten, merge, nest, parse_setting
from gptcli.dataset.folder import is_dataset
from gptcli.dataset.preparing import Prepared, find_or_prepare, name_of, put_back
from gptcli.errors import Interrupted, UsageError
from gptcli.interop.hub import is_address
from gptcli.runs.completion import check_request
from gptcli.runs.events import RunFinished
from gptcli.runs.interrupt import graceful_stop
from gptcli.runs.place import run_device, run_folder
from gptcli.runs.plan import make_plan
from gptcli.runs.request import Request, Resume
from gptcli.runs.session import train
from gptcli.runs.start import Start, find_start
from gptcli.tokenizer.tokenizer import is_path
from gptcli.ui.console import Output
from gptcli.ui.preparing import PreparingDisplay, describe
from gptcli.ui.training import TrainingDisplay, show_dry_run, summary

TEXT_FLAGS = {
    "tokenizer.kind": "--tokenizer",
    "tokenizer.vocab_size": "--vocab-size",
    "data.val_fraction": "--val-fraction",
    "data.include": "--include",
}
"""Flags that a dataset folder leaves nothing to do."""


@dataclass(frozen=True)
class TrainOptions:
    """The options of `gptcli train`, as given."""

    data: list[str]
    out: Path | None
    preset: str | None
    family: str | None
    config_files: list[Path]
    """A later one goes over those before it."""
    flags: dict[str, Any]
    """Dotted config keys and values; None: not given."""
    settings: list[str]
    """`--set` texts."""
    resume: Resume
    dry_run: bool


def run_training(options: TrainOptions, output: Output, command: str) -> None:
    """Prepare the data, plan, train, and print the result; `command` is what the user typed, to continue with."""
    put_back(*options.data)
    request = _request(options)
    _check_data(options, request)
    path = run_folder(request, options.out or RUNS_ROOT / name_of(options.data))
    device, moved = run_device(request, path)
    check_request(request, path, device)  # before anything is downloaded
    start = find_start(request, path, quiet=output.quiet)
    if start:
        check_request(request, path, device, start)
    if moved:
        output.note(moved)
    with tempfile.TemporaryDirectory() as scratch:
        prepared = _prepare(options, request, start, Path(scratch) if options.dry_run else None, output)
        plan = make_plan(request, prepared.dataset, path, device, start)
        if options.dry_run:
            show_dry_run(output, plan, prepared.dataset)
            return
    for note in [*prepared.notes, describe(prepared.dataset), *plan.notes]:
        output.note(note)
    output.detail(
        f"Training on {device}, {torch.get_num_threads()} CPU threads, torch.compile {plan.config.train.compile}."
    )
    on_signal = functools.partial(output.warn, "Stopping: saving first. Once more ends at once.")
    begin = plan.checkpoint.progress.step if plan.checkpoint else 0
    with graceful_stop(on_signal) as stop_signal, TrainingDisplay(output, plan.config, begin) as display:
        for event in train(plan, prepared.dataset, device, stop_signal):
            display.show(event)
    assert isinstance(event, RunFinished)
    if options.resume == "never":  # the same again would start yet another
        command += f" --out {shlex.quote(str(plan.path))} --resume must"
    _conclude(event, plan.path, output, command)


def _request(options: TrainOptions) -> Request:
    """The layers of the config that the user stated."""
    file = merge(*map(_read_config_file, options.config_files))
    flags = merge(nest(options.flags), *(parse_setting(setting) for setting in options.settings))
    has_dataset = any(map(is_dataset, options.data))
    return Request(options.preset, file, flags, options.resume, has_dataset=has_dataset, family=options.family)


def _read_config_file(path: Path) -> Values:
    """The values of a config file; a path in it starts from the file."""
    values = load_config_file(path)
    kind, init_from = (flatten(values).get(key) for key in ("tokenizer.kind", "train.init_from"))
    if isinstance(kind, str) and is_path(kind):
        values = merge(values, {"tokenizer": {"kind": str(path.parent / kind)}})
    if isinstance(init_from, str) and not is_address(init_from):
        values = merge(values, {"train": {"init_from": str(path.parent / init_from)}})
    return values


def _check_data(options: TrainOptions, request: Request) -> None:
    """Raise UsageError for a run in the place of text, and for what would be passed over.

    A config file may say how to read text where there is a dataset, and how large the vocabulary is, as that of each
    run does.
    """
    if runs := [given for given in options.data if is_run(Path(given))]:
        raise UsageError(f"'{runs[0]}' is a run, not text.", "Give the text or dataset that it should learn from.")
    idle = [key for key in flatten(request.flags) if key.startswith(("tokenizer.", "data."))]
    if idle and request.has_dataset:
        given = TEXT_FLAGS[idle[0]] if options.flags.get(idle[0]) is not None else idle[0]
        hint = "Leave it out, or give the text itself."
        raise UsageError(f"{given} says how to read text, but the data is a dataset, which was read already.", hint)
    stated = flatten(request.flags).keys()
    if "model.vocab_size" in stated:
        message = "model.vocab_size cannot be set: the model has a row for each id of its tokenizer."
        raise UsageError(message, "Choose the size of a vocabulary with --vocab-size.")
    layer = request.explicit if "tokenizer.vocab_size" in stated else request.file
    require_bpe_for_a_size(**layer.get("tokenizer", {}))


def _prepare(
    options: TrainOptions, request: Request, start: Start | None, scratch: Path | None, output: Output
) -> Prepared:
    """The dataset of the data that was named: opened, found again or made; with the tokenizer of a start."""
    own = {"kind": str(start.folder.resolve())} if start else {}
    settings = parse_section(TokenizerConfig, merge(request.explicit.get("tokenizer", {}), own))
    data = parse_section(DataConfig, request.explicit.get("data", {}))
    with PreparingDisplay(output) as display:
        return find_or_prepare(options.data, DATA_ROOT, settings, data, scratch=scratch, on_progress=display.update)


def _conclude(end: RunFinished, run: Path, output: Output, command: str) -> None:
    """Print the result; raises Interrupted, with the command that goes on, if a signal ended the session."""
    if output.as_json:
        told = ("tokens", "best_val_loss", "best_step", "val_loss", "seconds", "stopped")
        output.json({"run": str(run), "steps": end.step} | {name: getattr(end, name) for name in told})
    if end.signum:
        saved = "saved" if end.step else "before there was anything to save"
        raise Interrupted(f"Stopped at step {end.step:,}, {saved}.", f"Go on with: {command}", end.signum)
    if not output.as_json:
        output.note(summary(end))
        output.note(f"Next: gptcli sample {shlex.quote(str(run))}")
        output.result(str(run))
