"""`gptcli tokenize`: text in, a dataset folder out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gptcli.cli.options import (
    Debug,
    Include,
    Json,
    NoColor,
    Quiet,
    Texts,
    TokenizerKind,
    ValFraction,
    Verbose,
    VocabSize,
    require_bpe_for_a_size,
)

TOKENIZE_EXAMPLES = (
    "gptcli tokenize book.txt -o data/book   ·   cat *.txt | gptcli tokenize - -o data/all --tokenizer bpe"
)


def tokenize(
    texts: Texts,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="The dataset folder to make.")],
    tokenizer: TokenizerKind = None,
    vocab_size: VocabSize = None,
    val_fraction: ValFraction = None,
    include: Include = None,
    force: Annotated[bool, typer.Option("--force", help="Replace another dataset that stands there.")] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    debug: Debug = False,
    as_json: Json = False,
    no_color: NoColor = False,
) -> None:
    """Turn text into tokens once, for several trainings."""
    from gptcli.config import DataConfig, TokenizerConfig, parse_section
    from gptcli.config.values import nest
    from gptcli.dataset.preparing import prepare
    from gptcli.ui.console import Output
    from gptcli.ui.preparing import PreparingDisplay, show_prepared

    output = Output(quiet, verbose, as_json, no_color)
    require_bpe_for_a_size(tokenizer, vocab_size)
    settings = parse_section(TokenizerConfig, nest({"kind": tokenizer, "vocab_size": vocab_size}))
    data = parse_section(DataConfig, nest({"val_fraction": val_fraction, "include": include}))
    with PreparingDisplay(output) as display:
        prepared = prepare(texts, out, settings, data, force=force, on_progress=display.update)
    show_prepared(output, prepared)
