"""`gptcli export`: a trained model as files that other tools open."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, cast

import typer

from gptcli.cli import options
from gptcli.errors import size

if TYPE_CHECKING:
    from gptcli.exports.export import Exported, Format
    from gptcli.interop.gguf import GgufType
    from gptcli.ui.console import Output

EXPORT_EXAMPLES = "gptcli export runs/book --to gguf --type q8_0   ·   gptcli export runs/book --to hf --push me/book"


def export(
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="gguf|ollama|hf",
            help="gguf: a file for llama.cpp; ollama: GGUF and Modelfile; hf: a model folder.",
        ),
    ],
    run: options.RunOrNewest = None,
    type: Annotated[
        str,
        typer.Option(
            "--type", metavar="f32|f16|bf16|q8_0|q4_0", help="Storage type of the matrices; hf has the first three."
        ),
    ] = "f32",
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            metavar="PATH",
            help="File or folder to write (default: RUN's name with .gguf, -ollama or -hf, in this folder).",
        ),
    ] = None,
    checkpoint: options.Checkpoint = "best",
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier export.")] = False,
    push: Annotated[
        str | None,
        typer.Option("--push", metavar="OWNER/NAME", help="With hf: upload the folder too (new ones are private)."),
    ] = None,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    debug: options.Debug = False,
    json: options.Json = False,
    no_color: options.NoColor = False,
) -> None:
    """Write a model in the format of another tool."""
    import gptcli
    from gptcli.ui.console import Output

    exported = gptcli.export(
        run,
        cast("Format", to),
        type=cast("GgufType", type),
        out=out,
        checkpoint=checkpoint,
        force=force,
        push=push,
        quiet=quiet,
    )
    output = Output(quiet, verbose, json, no_color)
    if run is None:
        output.note(f"Exported {exported.model}, the newest run.")
    _show(exported, output)


def _show(exported: Exported, output: Output) -> None:
    if exported.kept_f16:
        kinds = dict.fromkeys(re.sub(r"^blk\.\d+\.|\.weight$", "", name) for name in exported.kept_f16)
        reason = f"because their rows do not divide into {exported.type} blocks of 32 numbers"
        output.note(f"{len(exported.kept_f16)} matrices stay f16, {reason}: {', '.join(kinds)}.")
    for note in exported.notes:
        output.note(note)
    output.note(f"{size(exported.bytes)}. Open it with: {exported.hint}")
    if exported.url is not None:
        output.note(f"Uploaded to {exported.url}")
    if output.as_json:
        facts = {"path": str(exported.path), "bytes": exported.bytes, "type": exported.type}
        output.json(facts | {"kept_f16": exported.kept_f16, "url": exported.url})
    else:
        output.result(str(exported.path))
