"""`gptcli eval`: how well a model predicts texts."""

from __future__ import annotations

from typing import Annotated

import typer

from gptcli.cli import options

EVAL_EXAMPLES = "gptcli eval runs/book other.txt   ·   gptcli eval runs/book texts/ --stride 64 --json"


def eval_(
    run: options.Run,
    texts: options.Texts,
    stride: Annotated[
        int | None,
        typer.Option(
            "--stride",
            metavar="N",
            min=1,
            help="Tokens from window to window; less gives more context (default: half of it).",
        ),
    ] = None,
    context: options.Context = None,
    include: options.Include = None,
    unknown: options.Unknown = options.UnknownCharacters.error,
    checkpoint: options.Checkpoint = "best",
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    quantize: options.Quantize = options.Quantization.none,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    debug: options.Debug = False,
    json: options.Json = False,
    no_color: options.NoColor = False,
) -> None:
    """Score texts with a model: loss, perplexity, bits per byte and per character."""
    from gptcli.config import DataConfig, parse_section
    from gptcli.config.values import nest
    from gptcli.generation.load import load_for_sampling
    from gptcli.interop.download import local_model
    from gptcli.report.scores import score_texts
    from gptcli.ui.console import Output
    from gptcli.ui.preparing import PreparingDisplay
    from gptcli.ui.scores import show_scores

    output = Output(quiet, verbose, json, no_color)
    data = parse_section(DataConfig, nest({"include": include}))
    int8 = quantize is options.Quantization.int8
    number_format = options.number_format(dtype) or "float32"
    path = local_model(run, quiet=quiet)
    folder = load_for_sampling(path, checkpoint, device, number_format, context=context, int8=int8)
    skip_unknown = unknown is options.UnknownCharacters.skip
    with PreparingDisplay(output) as display:
        scores = score_texts(folder, texts, data.include, stride, skip_unknown=skip_unknown, on_progress=display.update)
    show_scores(scores, output)
