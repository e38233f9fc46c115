"""`gptcli bench`: how fast a model trains and writes on this machine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from gptcli.cli import options
from gptcli.errors import UsageError

if TYPE_CHECKING:
    from gptcli.bench.target import BenchOptions, BenchTarget
    from gptcli.ui.console import Output

BENCH_EXAMPLES = "gptcli bench   ·   gptcli bench --preset gpt2 --batch-size 4 --length 256 --markdown"


def bench(
    run: options.RunOrNewest = None,
    preset: options.UntrainedPreset = None,
    batch_size: options.BatchSize = None,
    length: options.Length = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", metavar="N", min=0, help="Of the random tokens and of a preset's weights (default: as in train)."
        ),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="The result as markdown.", rich_help_panel=options.OUTPUT_PANEL)
    ] = False,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    quantize: options.Quantize = options.Quantization.none,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    debug: options.Debug = False,
    json: options.Json = False,
    no_color: options.NoColor = False,
) -> None:
    """Measure how fast a model trains and writes here.

    An update is of as many of the recipe's sequences as go through the model at once, and texts are written one at a
    time, unless --batch-size says how many. Shares are of what this machine is measured to reach at most.
    """
    from gptcli.cli.threads import spin_where_idle

    spin_where_idle()  # before torch is imported, as in `sample`, whose speed it changes more than that of updates
    from gptcli.bench.speed import measure_speed
    from gptcli.bench.target import BenchOptions
    from gptcli.model.devices import choose_device
    from gptcli.ui.console import Output
    from gptcli.ui.speed import show_speed

    if run is not None and preset is not None:
        raise UsageError("RUN and --preset cannot be used together.", "Ask for one at a time.")
    if json and markdown:
        raise UsageError("--json and --markdown cannot be used together.", "Ask for one at a time.")
    output = Output(quiet, verbose, json, no_color)
    int8 = quantize is options.Quantization.int8
    wish = BenchOptions(choose_device(device), options.number_format(dtype), batch_size, length, int8=int8)
    wish = wish if seed is None else replace(wish, seed=seed)
    subject = _subject(run, preset, wish, output)
    report = measure_speed(subject, wish.device, lambda stage: output.note(f"Measuring {stage} …"))
    show_speed(report, output, markdown=markdown)


def _subject(run: str | None, preset: str | None, wish: BenchOptions, output: Output) -> BenchTarget:
    """The preset or the model folder that was named, or else the newest run."""
    from gptcli.bench.target import folder_subject, preset_subject
    from gptcli.checkpoints.finding import find_model

    if preset is not None:
        return preset_subject(preset, wish)
    path = find_model(run, quiet=output.quiet)
    if run is None:
        output.note(f"Measuring {path}, the newest run.")
    return folder_subject(path, wish)
