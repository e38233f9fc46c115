"""`gptcli inspect`: what a run, dataset, tokenizer, text, preset or machine is."""

from __future__ import annotations

from typing import Annotated

import typer

from gptcli.cli import options
from gptcli.config.presets import preset_vocabulary

INSPECT_EXAMPLES = "gptcli inspect runs/book   ·   gptcli inspect --preset gpt2   ·   gptcli inspect runs/book book.txt"


def inspect(
    things: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[THING...]",
            help="A run, model folder, hf://owner/name, dataset, tokenizer, text or folder of runs "
            "(default: the newest run); two runs; a tokenizer and a text; corpora.",
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
            help=f"With --preset (default: {preset_vocabulary('tiny')}; gpt2: {preset_vocabulary('gpt2')}).",
            rich_help_panel=options.MODEL_PANEL,
        ),
    ] = None,
    batch_size: options.BatchSize = None,
    length: options.Length = None,
    machine: Annotated[bool, typer.Option("--machine", help="Describe this machine.")] = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    debug: options.Debug = False,
    json: options.Json = False,
    no_color: options.NoColor = False,
) -> None:
    """Show what something is: parts, shapes, memory, counts."""
    import gptcli
    from gptcli.report.run import RunReport
    from gptcli.ui.console import Output
    from gptcli.ui.preparing import PreparingDisplay
    from gptcli.ui.reports import show_report

    output = Output(quiet, verbose, json, no_color)
    with PreparingDisplay(output) as display:
        report = gptcli.inspect(
            *(things or []),
            preset=preset,
            family=family,
            vocab_size=vocab_size,
            batch_size=batch_size,
            length=length,
            machine=machine,
            quiet=quiet,
            on_progress=display.update,
        )
    if not things and isinstance(report, RunReport):
        output.note(f"Inspecting {report.path}, the newest run.")
    elif report.kind == "presets":
        output.note("There is no run under runs/ yet; these are the presets.")
    show_report(report, output)
