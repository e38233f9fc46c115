"""`gptcli train`: text or a dataset folder in, a run folder out."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gptcli.cli import options
from gptcli.cli.flags import FieldsInfo, stated_settings, without_options
from gptcli.cli.launching import COPIES_SECONDS, is_launched, launch
from gptcli.cli.options import MACHINE_PANEL, MODEL_PANEL, setting
from gptcli.config import ResumeMode
from gptcli.errors import Interrupted
from gptcli.runs.launched import follows, has_launcher

if TYPE_CHECKING:
    from gptcli.api import Run
    from gptcli.cli.graceful_stop import GracefulStop
    from gptcli.ui.console import Output

TRAIN_EXAMPLES = "gptcli train book.txt   ·   gptcli train src --include '*.py' --preset small --max-time 30m"
BUDGET, OPTIMIZATION, RHYTHM = "Budget, whichever ends first", "Optimization", "Rhythm, in steps"


def train(
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA...", help=f"{options.TEXTS_HELP}; or one dataset; or parts with weights: a=0.7 b=0.3."
        ),
    ],
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", metavar="RUN", help="The run folder (default: runs/<name of the data>)."),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            "--preset",
            metavar="P",
            help="Model and recipe; `gptcli inspect` lists them (default: chosen for text, machine and time).",
        ),
    ] = None,
    family: options.Family = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE.toml",
            help="A config file, such as a run's gptcli.toml. Later ones override.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        FieldsInfo(("",), metavar="SECTION.KEY=VALUE", help="Any field of the config. Can be repeated."),
    ] = None,
    init_from: Annotated[str | None, setting("train.init_from", "MODEL")] = None,
    resume: Annotated[
        ResumeMode, typer.Option("--resume", help="An existing run: resume it (auto, must), or start another (never).")
    ] = "auto",
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show models to choose from, config, sizes, memory and disk; write nothing."),
    ] = False,
    n_layer: options.NLayer = None,
    n_head: options.NHead = None,
    n_embd: options.NEmbd = None,
    block_size: options.BlockSize = None,
    dropout: Annotated[float | None, setting("model.dropout", "P", panel=MODEL_PANEL)] = None,
    max_steps: Annotated[int | None, setting("train.max_steps", "N", panel=BUDGET)] = None,
    epochs: Annotated[float | None, setting("train.epochs", "N", panel=BUDGET)] = None,
    max_time: Annotated[str | None, setting("train.max_time", "TIME", panel=BUDGET)] = None,
    patience: Annotated[int | None, setting("train.patience", "N", panel=BUDGET)] = None,
    batch_size: Annotated[int | None, setting("train.batch_size", "N", panel=OPTIMIZATION)] = None,
    micro_batch_size: Annotated[str | None, setting("train.micro_batch_size", "N", panel=OPTIMIZATION)] = None,
    activation_checkpointing: Annotated[
        bool, setting("train.activation_checkpointing", None, panel=OPTIMIZATION)
    ] = False,
    lr: Annotated[float | None, setting("optim.lr", "RATE", panel=OPTIMIZATION)] = None,
    optimizer: Annotated[str | None, setting("optim.optimizer", "NAME", panel=OPTIMIZATION)] = None,
    schedule: Annotated[str | None, setting("optim.schedule", "NAME", panel=OPTIMIZATION)] = None,
    skip_spikes: Annotated[float | None, setting("optim.skip_spikes", "SIGMA", panel=OPTIMIZATION)] = None,
    compile_: Annotated[str | None, setting("train.compile", "MODE", panel=OPTIMIZATION)] = None,
    eval_every: Annotated[int | None, setting("train.eval_every", "N", panel=RHYTHM)] = None,
    save_every: Annotated[int | None, setting("train.save_every", "N", panel=RHYTHM)] = None,
    sample_every: Annotated[int | None, setting("train.sample_every", "N", panel=RHYTHM)] = None,
    log_every: Annotated[int | None, setting("train.log_every", "N", panel=RHYTHM)] = None,
    loggers: Annotated[
        list[str] | None, setting("train.loggers", "NAME", panel=options.OUTPUT_PANEL, note="Can be repeated.")
    ] = None,
    log_layers: Annotated[bool, setting("train.log_layers", None, panel=RHYTHM)] = False,
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
    seed: Annotated[int | None, setting("train.seed", "N", panel=OPTIMIZATION)] = None,
    device: Annotated[str | None, setting("train.device", "DEVICE", panel=MACHINE_PANEL)] = None,
    dtype: Annotated[str | None, setting("train.dtype", "DTYPE", panel=MACHINE_PANEL)] = None,
    devices: Annotated[
        str | None,
        typer.Option(
            "--devices",
            metavar="N|all",
            help="Train in N processes on this machine, each on a GPU of its own, or on all GPUs (default: 1).",
            rich_help_panel=MACHINE_PANEL,
        ),
    ] = None,
    parallel: Annotated[str | None, setting("train.parallel", "MODE", panel=MACHINE_PANEL)] = None,
    max_restarts: Annotated[
        int,
        typer.Option(
            "--max-restarts",
            metavar="N",
            min=0,
            help="Start the processes again, up to N times, when one is lost; the run resumes.",
            rich_help_panel=MACHINE_PANEL,
        ),
    ] = 0,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    debug: options.Debug = False,
    json: options.Json = False,
    no_color: options.NoColor = False,
) -> None:
    """Train a model on text, or resume a run that was stopped."""
    if (devices is not None or max_restarts) and not dry_run and not is_launched():
        sys.exit(launch(devices or "1", max_restarts))
    stated = stated_settings(train, locals())
    if (micro_batch_size or "").isdecimal():
        stated["train.micro_batch_size"] = int(micro_batch_size or 0)
    if dtype == "auto":  # a run that resumes keeps its own
        del stated["train.dtype"]
    import gptcli
    from gptcli.cli.graceful_stop import GracefulStop
    from gptcli.runs.events import Event, Planned
    from gptcli.ui.console import Output
    from gptcli.ui.training import TrainingDisplay, show_dry_run

    output = Output(quiet, verbose, json, no_color)
    request: dict[str, Any] = {
        "data": data, "out": out, "preset": preset, "family": family, "config": config or (), "quiet": quiet,
        "settings": options.each_once(stated, settings or []),
        "resume": resume, "unknown": unknown,
    }  # fmt: skip
    display = TrainingDisplay(output)
    announce = (lambda: None) if follows() else display.announce_stop  # rank 0 speaks for all
    stop = GracefulStop(announce, copies_for=COPIES_SECONDS if has_launcher() else 0.0)
    if follows():
        if not dry_run:
            _follow(stop)
        return
    with stop, display:
        if dry_run:
            show_dry_run(output, gptcli.plan(**request, on_event=display.show))
            if devices is not None or has_launcher():
                output.note("This plan is for one process: memory and time of several differ.")
            return

        def on_event(event: Event) -> None:
            if isinstance(event, Planned):
                stop.arm()
            display.show(event)

        run = gptcli.train(**request, on_event=on_event, should_stop=stop.requested)
    _conclude(run, stop.signum, output, restarts=resume == "never")


def _follow(stop: GracefulStop) -> None:
    """Take part in the training of rank 0, which has the request; a stop signal is passed on to it."""
    from gptcli.runs.followers import follow
    from gptcli.runs.team import joined

    with stop:
        stop.arm()
        with joined() as team:
            follow(team)


def _conclude(run: Run, signum: int, output: Output, *, restarts: bool) -> None:
    """Print the result; raises Interrupted, with the command that resumes, if a signal ended the session."""
    from gptcli.ui.training import summary

    end = run.end
    if output.as_json:
        facts = ("tokens", "best_val_loss", "best_bits_per_byte", "best_step", "val_loss", "seconds", "stopped")
        output.json({"run": str(run.path), "steps": end.step} | {name: getattr(end, name) for name in facts})
    if end.stopped == "interrupted":
        saved = "saved" if end.step else "before there was anything to save"
        arguments = sys.argv[1:]
        if restarts:  # the same command would start yet another run
            arguments = [*without_options(arguments, "--resume", "--out", "-o"), "--out", str(run.path)]
        command = shlex.join(["gptcli", *arguments])
        raise Interrupted(f"Stopped at step {end.step:,}, {saved}.", f"Resume with: {command}", signum)
    if not output.as_json:
        output.note(summary(end))
        output.note(f"Next: gptcli sample {shlex.quote(str(run.path))}")
        output.result(str(run.path))
