"""`gptcli inspect`: what a run, dataset, tokenizer, text, preset or machine is."""

from __future__ import annotations

from typing import Annotated

import typer

from gptcli.cli import options

INSPECT_EXAMPLES = (
    "gptcli inspect runs/book   ·   gptcli inspect --preset gpt2   ·   gptcli inspect --preset gpt3-175b --lengths"
)


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
    n_layer: options.NLayer = None,
    n_head: options.NHead = None,
    n_embd: options.NEmbd = None,
    block_size: options.BlockSize = None,
    vocab_size: options.UntrainedVocabSize = None,
    settings: options.UntrainedSettings = None,
    batch_size: options.BatchSize = None,
    length: options.Length = None,
    lengths: Annotated[
        bool,
        typer.Option(
            "--lengths",
            help="Show what attention costs a model for 128 to 131,072 tokens.",
            rich_help_panel=options.MODEL_PANEL,
        ),
    ] = False,
    machine: Annotated[bool, typer.Option("--machine", help="Describe this machine.")] = False,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    debug: options.Debug = False,
    json: options.Json = False,
    no_color: options.NoColor = False,
) -> None:
    """Show what something is: parts, shapes, memory, counts."""
    changes = options.shape_settings(inspect, locals(), settings)
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
            settings=changes,
            batch_size=batch_size,
            length=length,
            device=device,
            dtype=options.dtype_or_none(dtype),
            machine=machine,
            quiet=quiet,
            on_progress=display.update,
        )
    if not things and isinstance(report, RunReport):
        output.note(f"Inspecting {report.path}, the newest run.")
    elif report.kind == "presets":
        output.note("There is no run under runs/ yet; these are the presets.")
    show_report(report, output, lengths=lengths)
