"""`gptcli tokenize`: text in, a dataset folder out."""

from __future__ import annotations

from typing import Annotated

import typer

from gptcli.cli import options
from gptcli.cli.flags import stated_settings
from gptcli.errors import UsageError

TOKENIZE_EXAMPLES = (
    "gptcli tokenize book.txt -o data/book   ·   cat *.txt | gptcli tokenize - -o data/all --tokenizer bpe   ·   "
    "gptcli tokenize rows.jsonl --dry-run"
)


def tokenize(
    texts: options.Texts,
    out: Annotated[
        str | None, typer.Option("--out", "-o", metavar="DIR", help="The dataset folder to make (required).")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be read, and the first documents; write nothing.")
    ] = False,
    tokenizer: options.TokenizerKind = None,
    vocab_size: options.VocabSize = None,
    val_fraction: options.ValFraction = None,
    include: options.Include = None,
    exclude: options.Exclude = None,
    format_: options.Format = None,
    text_field: options.TextField = None,
    encoding: options.Encoding = None,
    errors: options.Errors = None,
    newline: options.Newline = None,
    doc_separator: options.DocSeparator = None,
    dedup: options.Dedup = None,
    unknown: options.Unknown = "error",
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray",
            metavar="ADDRESS",
            help="Encode on a Ray cluster: HOST:PORT, auto, or local to start one on this machine.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace another dataset at this place.")] = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    debug: options.Debug = False,
    json: options.Json = False,
    no_color: options.NoColor = False,
) -> None:
    """Turn text into tokens once, for several runs."""
    stated = stated_settings(tokenize, locals())
    import gptcli
    from gptcli.ui.console import Output
    from gptcli.ui.preparing import PreparingDisplay, show_prepared, show_preview

    output = Output(quiet, verbose, json, no_color)
    if out is None and not dry_run:
        raise UsageError("`out` is missing.", "Name the dataset folder with `out = data/book`, or add `dry_run`.")
    with PreparingDisplay(output) as display:
        if out is None or dry_run:
            preview = gptcli.preview(texts, settings=stated, on_progress=display.update)
        else:
            prepared = gptcli.tokenize(
                texts, out, settings=stated, unknown=unknown, force=force, ray=ray, on_progress=display.update
            )
    if dry_run:
        show_preview(output, preview)
    else:
        show_prepared(output, prepared)
