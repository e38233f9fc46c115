"""`gptcli export`: a trained model as files that other tools open."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gptcli.cli import options
from gptcli.errors import UsageError

if TYPE_CHECKING:
    from gptcli.exports.exported import Exported
    from gptcli.ui.console import Output

EXPORT_EXAMPLES = "gptcli export runs/book --to gguf --type q8_0   ·   gptcli export runs/book --to hf --push me/book"


class Format(StrEnum):
    """Who is to open it."""

    gguf = "gguf"
    ollama = "ollama"
    hf = "hf"


class NumberType(StrEnum):
    """How the matrices are stored."""

    f32 = "f32"
    f16 = "f16"
    bf16 = "bf16"
    q8_0 = "q8_0"
    q4_0 = "q4_0"


def export(
    run: options.Run,
    to: Annotated[
        Format, typer.Option("--to", help="gguf: a file for llama.cpp; ollama: GGUF and Modelfile; hf: a model folder.")
    ],
    type: Annotated[
        NumberType, typer.Option("--type", help="Number format of the matrices; hf has the first three.")
    ] = NumberType.f32,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="PATH", help="What to write (default: RUN's name.gguf, -ollama/ or -hf/, here)."
        ),
    ] = None,
    checkpoint: options.Checkpoint = "best",
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier export that stands there.")] = False,
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
    from gptcli.checkpoints.finding import find_model
    from gptcli.exports.formats import export_model
    from gptcli.exports.upload import push_folder, require_repository_name
    from gptcli.ui.console import Output

    if push is not None and to is not Format.hf:
        raise UsageError("--push uploads a Hugging Face folder.", "Use it with --to hf.")
    if push is not None:
        require_repository_name(push)
    output = Output(quiet, verbose, json, no_color)
    exported = export_model(find_model(run, progress=not quiet), to.value, type.value, out, checkpoint, force=force)
    url = None if push is None else push_folder(exported.path, push)
    _show(exported, url, output)


def _show(exported: Exported, url: str | None, output: Output) -> None:
    if exported.kept_f16:
        kinds = dict.fromkeys(re.sub(r"^blk\.\d+\.|\.weight$", "", name) for name in exported.kept_f16)
        why = f"their rows are no multiple of {exported.type}'s blocks of 32 numbers"
        output.note(f"{len(exported.kept_f16)} matrices stay f16, as {why}: {', '.join(kinds)}.")
    if exported.note:
        output.note(exported.note)
    output.note(f"{exported.bytes:,} bytes. Open it with: {exported.hint}")
    if url is not None:
        output.note(f"Uploaded to {url}")
    if output.as_json:
        facts = {"path": str(exported.path), "bytes": exported.bytes, "type": exported.type}
        output.json(facts | {"kept_f16": exported.kept_f16, "url": url})
    else:
        output.result(str(exported.path))
