"""`gptcli tokenize`: text in, a dataset folder out."""

from __future__ import annotations

from typing import Annotated

import typer

from gptcli.cli import options

TOKENIZE_EXAMPLES = (
    "gptcli tokenize book.txt -o data/book   ·   cat *.txt | gptcli tokenize - -o data/all --tokenizer bpe"
)


def tokenize(
    texts: options.Texts,
    out: Annotated[str, typer.Option("--out", "-o", metavar="DIR", help="The dataset folder to make.")],
    tokenizer: options.TokenizerKind = None,
    vocab_size: options.VocabSize = None,
    val_fraction: options.ValFraction = None,
    include: options.Include = None,
    unknown: options.Unknown = options.UnknownCharacters.error,
    force: Annotated[bool, typer.Option("--force", help="Replace another dataset at this place.")] = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    debug: options.Debug = False,
    as_json: options.Json = False,
    no_color: options.NoColor = False,
) -> None:
    """Turn text into tokens once, for several runs."""
    import gptcli
    from gptcli.ui.console import Output
    from gptcli.ui.preparing import PreparingDisplay, show_prepared

    output = Output(quiet, verbose, as_json, no_color)
    with PreparingDisplay(output) as display:
        prepared = gptcli.tokenize(
            texts,
            out,
            tokenizer=tokenizer or "auto",
            vocab_size=vocab_size,
            val_fraction=val_fraction,
            include=include,
            unknown=unknown.value,
            force=force,
            on_progress=display.update,
        )
    show_prepared(output, prepared)
