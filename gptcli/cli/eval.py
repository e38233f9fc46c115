"""`gptcli eval`: score texts with a model."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gptcli.cli import options
from gptcli.cli.flags import stated_settings

EVAL_EXAMPLES = "gptcli eval runs/book other.txt   ·   gptcli eval runs/book other.txt --tokens --html page.html"


def eval_(
    run: options.Run,
    texts: options.Texts,
    stride: Annotated[
        int | None,
        typer.Option(
            "--stride",
            metavar="N",
            min=1,
            help="Tokens from one window to the next; fewer give more context (default: half of the context).",
        ),
    ] = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Show each token by its surprise in bits, and the most surprising places.")
    ] = False,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Write the tokens by surprise as an HTML page.")
    ] = None,
    context: options.Context = None,
    include: options.Include = None,
    exclude: options.Exclude = None,
    format_: options.Format = None,
    text_field: options.TextField = None,
    encoding: options.Encoding = None,
    errors: options.Errors = None,
    newline: options.Newline = None,
    unknown: options.Unknown = "error",
    checkpoint: options.Checkpoint = "best",
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    quantize: options.Quantize = "none",
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    debug: options.Debug = False,
    json: options.Json = False,
    no_color: options.NoColor = False,
) -> None:
    """Score texts with a model: loss, perplexity, bits per byte and per character."""
    reading = {key: value for key, value in stated_settings(eval_, locals()).items() if key.startswith("data.")}
    import gptcli
    from gptcli.ui.console import Output
    from gptcli.ui.html.page import page_path, write_page
    from gptcli.ui.html.surprise import surprise_page
    from gptcli.ui.preparing import PreparingDisplay
    from gptcli.ui.scores import show_scores
    from gptcli.ui.surprise import show_surprise

    output = Output(quiet, verbose, json, no_color)
    page = None if html is None else page_path(html, "html")
    how: dict[str, Any] = {"dtype": options.dtype_or_none(dtype) or "float32"}
    how["quantize"] = None if quantize == "none" else "int8"
    model = gptcli.load(run, checkpoint=checkpoint, device=device, context=context, quiet=quiet, **how)
    for note in model.notes:
        output.note(note)
    scoring: dict[str, Any] = {"stride": stride, "settings": reading, "unknown": unknown}
    with PreparingDisplay(output) as display:
        if not (tokens or page):
            scores = model.score(texts, on_progress=display.update, **scoring)
        else:
            surprise = model.surprise(texts, on_progress=display.update, **scoring)
            scores = surprise.scores
    if page:
        write_page(page, surprise_page(surprise, model.path), "html")
        output.note(f"Wrote {page}")
    if tokens:
        show_surprise(surprise, model.path, output)
    else:
        show_scores(scores, model.path, output)
