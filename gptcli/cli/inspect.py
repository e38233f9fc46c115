"""`gptcli inspect`: what a run, dataset, tokenizer, text, preset or machine is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gptcli.cli import options

if TYPE_CHECKING:
    from gptcli.ui.console import Output

INSIDE_PANEL = "Inside a run"
INSPECT_EXAMPLES = (
    "gptcli inspect runs/book   ·   gptcli inspect runs/book --attention 'Once upon'   ·   "
    "gptcli inspect --preset gpt3-175b --lengths"
)


def inspect(
    things: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[THING...]",
            help="A run, model folder, hf://owner/name, dataset, tokenizer, text or folder of runs "
            "(default: the newest run); two runs; a tokenizer and a text; corpora; presets.",
        ),
    ] = None,
    preset: options.UntrainedPreset = None,
    family: options.Family = None,
    n_layer: options.NLayer = None,
    n_head: options.NHead = None,
    n_embd: options.NEmbd = None,
    block_size: options.BlockSize = None,
    vocab_size: options.UntrainedVocabSize = None,
    settings: Annotated[list[str] | None, options.untrained_settings()] = None,
    batch_size: options.BatchSize = None,
    length: options.Length = None,
    lengths: Annotated[
        bool,
        typer.Option(
            "--lengths",
            help="Show what attention costs a model for 128 to 131,072 tokens.",
            rich_help_panel=options.MODEL_PANEL,
        ),
    ] = False,
    attention: Annotated[
        str | None,
        typer.Option(
            "--attention",
            metavar="TEXT",
            help="What each head of a run looks at in a text.",
            rich_help_panel=INSIDE_PANEL,
        ),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(
            "--head",
            metavar="L.H",
            help="With --attention: one head in full, such as 0.2, head 2 of layer 0.",
            rich_help_panel=INSIDE_PANEL,
        ),
    ] = None,
    lens: Annotated[
        str | None,
        typer.Option(
            "--lens",
            metavar="TEXT",
            help="The next token that a run would predict after each of its blocks (logit lens).",
            rich_help_panel=INSIDE_PANEL,
        ),
    ] = None,
    neighbors: Annotated[
        str | None,
        typer.Option(
            "--neighbors",
            metavar="TOKEN",
            help="The tokens closest to one in the embedding.",
            rich_help_panel=INSIDE_PANEL,
        ),
    ] = None,
    machine: Annotated[bool, typer.Option("--machine", help="Describe this machine.")] = False,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    debug: options.Debug = False,
    json: options.Json = False,
    no_color: options.NoColor = False,
) -> None:
    """Show what something is: parts, shapes, memory, counts."""
    changes = options.shape_settings(inspect, locals(), settings)
    import gptcli
    from gptcli.report.run import RunReport
    from gptcli.ui.console import Output
    from gptcli.ui.preparing import PreparingDisplay
    from gptcli.ui.reports import show_report

    output = Output(quiet, verbose, json, no_color)
    asked = {"attention": attention, "head": head, "lens": lens, "neighbors": neighbors}
    if inside := {name: text for name, text in asked.items() if text is not None}:
        others = {"preset": preset, "family": family, "vocab_size": vocab_size, "batch_size": batch_size}
        others |= {"length": length, "lengths": lengths or None, "machine": machine or None}
        others |= {name: text for name, text in (("device", device), ("dtype", dtype)) if text != "auto"}
        _look_inside(things or [], inside, others | changes, output)
        return
    with PreparingDisplay(output) as display:
        report = gptcli.inspect(
            *(things or []),
            preset=preset,
            family=family,
            vocab_size=vocab_size,
            settings=changes,
            batch_size=batch_size,
            length=length,
            device=device,
            dtype=options.dtype_or_none(dtype),
            machine=machine,
            quiet=quiet,
            on_progress=display.update,
        )
    if not things and isinstance(report, RunReport):
        output.note(f"Inspecting {report.path}, the newest run.")
    elif report.kind == "presets" and not things:
        output.note("There is no run under runs/ yet; these are the presets.")
    show_report(report, output, lengths=lengths)


def _look_inside(things: list[str], asked: dict[str, str], others: dict[str, Any], output: Output) -> None:
    """Show one of `--attention`, `--lens` and `--neighbors`, which load the model."""
    import gptcli
    from gptcli.errors import UsageError
    from gptcli.ui.attention import show_attention
    from gptcli.ui.lens import show_lens, show_neighbors

    head = asked.pop("head", None)
    if head is not None and "attention" not in asked:
        raise UsageError("`head` goes with `attention`.", "Give a text with `attention`, or leave `head` out.")
    for name, value in others.items():
        if value is not None:
            raise UsageError(f"`{name}` does not go with `{next(iter(asked))}`.", f"Leave out `{name}`.")
    if len(asked) > 1 or len(things) > 1:
        raise UsageError("One look inside one run at a time.", "Give one run, and `attention`, `lens` or `neighbors`.")
    model = gptcli.load(*things, device="cpu", dtype="float32", quiet=output.quiet)
    for note in ([] if things else [f"Inspecting {model.path}, the newest run."]) + [*model.notes]:
        output.note(note)
    [(what, text)] = asked.items()
    if what == "attention":
        maps = model.attention(text)
        show_attention(maps, None if head is None else maps.position(head), output)
    elif what == "lens":
        show_lens(model.lens(text), output)
    else:
        show_neighbors(model.neighbors(text), output)
