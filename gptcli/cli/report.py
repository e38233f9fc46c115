"""`gptcli report`: a run, or several, as one HTML page."""

from __future__ import annotations

from typing import Annotated

import typer

from gptcli.cli import options

REPORT_EXAMPLES = "gptcli report runs/book --open   ·   gptcli report runs/book runs/other -o both.html"


def report(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN...]", help="Runs, finished or in training (default: the newest run)."),
    ] = None,
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="FILE", help="The page; an earlier one is replaced.")
    ] = "report.html",
    text: Annotated[
        str | None,
        typer.Option(
            "--text", metavar="TEXT", help="Text for attention and logit lens (default: one that the model generates)."
        ),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    debug: options.Debug = False,
    no_color: options.NoColor = False,
) -> None:
    """Make a page about a run, or about several: curves, samples, attention.

    The page is one file that loads nothing from elsewhere. Runs are only read, also while they are trained. Of a single
    run the page shows the model, too: generated texts by surprise, attention, logit lens, embeddings and positions.
    """
    import webbrowser

    import gptcli
    from gptcli.ui.console import Output
    from gptcli.ui.html.page import page_path, write_page
    from gptcli.ui.html.report import report_page

    output = Output(quiet, verbose, no_color=no_color)
    path = page_path(out, "out")
    review = gptcli.review(*(runs or []), text=text, quiet=quiet)
    if not runs:
        output.note(f"Reporting on {review.runs[0].run.path}, the newest run.")
    for note in (note for one in review.runs for note in one.notes):
        output.note(note)
    write_page(path, report_page(review), "out")
    output.result(str(path))
    if open_:
        webbrowser.open(path.resolve().as_uri())
