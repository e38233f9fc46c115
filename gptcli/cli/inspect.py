"""`gptcli inspect`: what a run, dataset, tokenizer, text, preset or machine is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gptcli.cli import options
from gptcli.errors import UsageError

if TYPE_CHECKING:
    from gptcli.report.inspection import Report
    from gptcli.ui.console import Output

INSPECT_EXAMPLES = "gptcli inspect runs/book   ·   gptcli inspect --preset gpt2   ·   gptcli inspect runs/book book.txt"


def inspect(
    things: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[THING...]",
            help="A run, model folder, hf://owner/name, dataset, tokenizer, text or folder of runs "
            "(default: the newest run); two runs; a tokenizer and a text.",
        ),
    ] = None,
    preset: options.UntrainedPreset = None,
    family: options.Family = None,
    vocab_size: Annotated[
        int | None,
        typer.Option(
            "--vocab-size",
            metavar="V",
            min=1,
            help="With --preset (default: 65; gpt2: 50257).",
            rich_help_panel=options.MODEL_PANEL,
        ),
    ] = None,
    batch_size: options.BatchSize = None,
    length: options.Length = None,
    machine: Annotated[bool, typer.Option("--machine", help="What this machine has.")] = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    debug: options.Debug = False,
    json: options.Json = False,
    no_color: options.NoColor = False,
) -> None:
    """Show what something is: parts, shapes, memory, counts."""
    from gptcli.checkpoints.finding import find_model
    from gptcli.ui.console import Output
    from gptcli.ui.reports import show_report

    output = Output(quiet, verbose, json, no_color)
    _require_one_subject(things or [], preset, vocab_size, family, machine=machine)
    paths = [find_model(thing, quiet=quiet) for thing in things or []]
    report = _report(paths, preset, family, vocab_size, batch_size, length, output, machine=machine)
    show_report(report, output)


def _report(
    paths: list[Path],
    preset: str | None,
    family: str | None,
    vocab_size: int | None,
    batch_size: int | None,
    length: int | None,
    output: Output,
    *,
    machine: bool,
) -> Report:
    from gptcli.checkpoints.names import RUNS_ROOT
    from gptcli.checkpoints.run_folder import newest_run
    from gptcli.report import inspection
    from gptcli.report.machine import describe_machine

    if machine:
        return describe_machine()
    if preset is not None:
        return inspection.inspect_preset(preset, vocab_size, batch_size, length, family)
    if len(paths) == 2:
        return inspection.inspect_pair(*paths)
    path = paths[0] if paths else newest_run(RUNS_ROOT)
    if path is None:
        output.note(f"There is no run under {RUNS_ROOT}/ yet; these are the presets.")
        return inspection.list_presets()
    if not paths:
        output.note(f"Inspecting {path}, the newest run.")
    return inspection.inspect_path(path, batch_size, length)


def _require_one_subject(
    things: list[str], preset: str | None, vocab_size: int | None, family: str | None, *, machine: bool
) -> None:
    """Raise UsageError for what cannot be asked together."""
    if len(things) > 2:
        raise UsageError(f"{len(things)} things were given.", "Give one, two runs, or a tokenizer and a text.")
    if bool(things) + (preset is not None) + machine > 1:
        raise UsageError("A THING, --preset and --machine cannot be used together.", "Ask for one at a time.")
    if family is not None and preset is None:
        raise UsageError("--family goes with --preset: what is trained has its architecture.", "Leave it out.")
    if vocab_size is not None and preset is None:
        raise UsageError("--vocab-size goes with --preset: what is trained has its vocabulary.", "Leave it out.")
