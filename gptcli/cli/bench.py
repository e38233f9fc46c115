"""`gptcli bench`: the speed of training and generating on this machine."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gptcli.cli import options
from gptcli.config.presets import SETTINGS_OF_SPEED
from gptcli.errors import OutOfMemoryError, UsageError

BENCH_EXAMPLES = "gptcli bench   ·   gptcli bench --preset gpt2 --batch-size 4 --length 256 --markdown"


def bench(
    run: options.RunOrNewest = None,
    preset: options.UntrainedPreset = None,
    family: options.Family = None,
    n_layer: options.NLayer = None,
    n_head: options.NHead = None,
    n_embd: options.NEmbd = None,
    block_size: options.BlockSize = None,
    vocab_size: options.UntrainedVocabSize = None,
    settings: Annotated[list[str] | None, options.untrained_settings(*SETTINGS_OF_SPEED)] = None,
    batch_size: options.BatchSize = None,
    length: options.Length = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            metavar="N",
            min=0,
            help="Seed of the random tokens and of a preset's weights (default: as in train).",
        ),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the result as markdown.", rich_help_panel=options.OUTPUT_PANEL)
    ] = False,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    quantize: options.Quantize = "none",
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    debug: options.Debug = False,
    json: options.Json = False,
    no_color: options.NoColor = False,
) -> None:
    """Measure how fast a model trains and generates on this machine.

    Training uses as many sequences as fit, up to the recipe's batch size, and decoding uses one, unless --batch-size is
    given. A model that does not fit into memory is described, then refused. Shares compare the speed with the limits
    of this machine, which are measured too.
    """
    changes = options.shape_settings(bench, locals(), settings)
    from gptcli.cli.threads import spin_where_idle

    spin_where_idle()  # before torch is imported
    import gptcli
    from gptcli.ui.console import Output
    from gptcli.ui.reports import show_report
    from gptcli.ui.speed import show_speed

    if json and markdown:
        raise UsageError("`json` and `markdown` cannot be used together.", "Ask for one at a time.")
    output = Output(quiet, verbose, json, no_color)
    stated: dict[str, Any] = {} if seed is None else {"seed": seed}
    model: dict[str, Any] = {
        "preset": preset, "family": family, "vocab_size": vocab_size, "settings": changes,
        "batch_size": batch_size, "length": length, "device": device, "dtype": options.dtype_or_none(dtype),
    }  # fmt: skip
    try:
        report = gptcli.benchmark(
            run,
            **model,
            **stated,
            quantize=None if quantize == "none" else "int8",
            on_stage=lambda stage: output.note(f"Measuring {stage} …"),
            quiet=quiet,
        )
    except OutOfMemoryError:
        model["settings"] = {key: value for key, value in changes.items() if key not in SETTINGS_OF_SPEED}
        show_report(gptcli.inspect(*([run] if run else []), **model, quiet=quiet), output)
        raise
    show_speed(report, output, markdown=markdown)
