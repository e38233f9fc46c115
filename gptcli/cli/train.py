"""`gptcli train`: text or a dataset folder in, a run folder out."""

from __future__ import annotations

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gptcli.cli.options import (
    MACHINE_PANEL,
    Debug,
    Dtype,
    Family,
    Include,
    Json,
    NoColor,
    Quiet,
    TokenizerKind,
    ValFraction,
    Verbose,
    VocabSize,
)
from gptcli.errors import Interrupted

if TYPE_CHECKING:
    from gptcli.api import Run
    from gptcli.ui.console import Output

TRAIN_EXAMPLES = "gptcli train book.txt   ·   gptcli train src --include '*.py' --preset small --max-time 30m"
MODEL, BUDGET, OPTIMISATION, RHYTHM = "Model", "Budget, whichever ends first", "Optimisation", "Rhythm, in steps"


class Resume(StrEnum):
    """What to do where the run is there already."""

    auto = "auto"
    never = "never"
    must = "must"


def _option(panel: str | None, names: str, metavar: str | None, text: str) -> Any:
    """An option that only `train` has; `names` may be several, such as `--out -o`."""
    return typer.Option(*names.split(), metavar=metavar, help=text, rich_help_panel=panel)


def train(
    data: Annotated[
        list[str], typer.Argument(metavar="DATA...", help="Text files, folders, - (standard input), or one dataset.")
    ],
    out: Annotated[
        Path | None, _option(None, "--out -o", "RUN", "The run folder (default: runs/<name of the data>).")
    ] = None,
    preset: Annotated[
        str | None,
        _option(None, "--preset", "P", "Model and recipe; `gptcli inspect` lists them (default: CPU tiny, GPU small)."),
    ] = None,
    family: Family = None,
    config_files: Annotated[
        list[Path] | None,
        _option(None, "--config -c", "FILE.toml", "A config file, such as a run's gptcli.toml; later ones go over it."),
    ] = None,
    settings: Annotated[
        list[str] | None, _option(None, "--set", "SECTION.KEY=VALUE", "Any field of the config; can be repeated.")
    ] = None,
    init_from: Annotated[
        str | None,
        _option(
            None,
            "--init-from",
            "THING",
            "Start from weights: a run, a Hugging Face folder, or hf://owner/name, with @revision where it matters.",
        ),
    ] = None,
    resume: Annotated[
        Resume, _option(None, "--resume", None, "A run that is there: go on (auto, must), or start another (never).")
    ] = Resume.auto,
    dry_run: Annotated[bool, _option(None, "--dry-run", None, "Show config, sizes and memory; write nothing.")] = False,
    n_layer: Annotated[int | None, _option(MODEL, "--n-layer", "N", "Blocks.")] = None,
    n_head: Annotated[int | None, _option(MODEL, "--n-head", "N", "Attention heads of a block.")] = None,
    n_embd: Annotated[int | None, _option(MODEL, "--n-embd", "N", "Width.")] = None,
    block_size: Annotated[int | None, _option(MODEL, "--block-size", "N", "Context length in tokens.")] = None,
    dropout: Annotated[float | None, _option(MODEL, "--dropout", "P", "Share of activations dropped.")] = None,
    max_steps: Annotated[int | None, _option(BUDGET, "--max-steps", "N", "Updates in all.")] = None,
    epochs: Annotated[float | None, _option(BUDGET, "--epochs", "N", "Passes over the training text.")] = None,
    max_time: Annotated[str | None, _option(BUDGET, "--max-time", "TIME", "Such as 90s, 30m or 1.5h.")] = None,
    patience: Annotated[
        int | None, _option(BUDGET, "--patience", "N", "Evaluations without a better loss before stopping.")
    ] = None,
    batch_size: Annotated[int | None, _option(OPTIMISATION, "--batch-size", "N", "Sequences per update.")] = None,
    micro_batch_size: Annotated[
        str | None,
        _option(
            OPTIMISATION,
            "--micro-batch-size",
            "N",
            "Sequences at once, or auto: what fits. Changes memory, not the result (default: auto, or the run's).",
        ),
    ] = None,
    activation_checkpointing: Annotated[
        bool, _option(OPTIMISATION, "--activation-checkpointing", None, "Compute activations twice: less memory.")
    ] = False,
    lr: Annotated[float | None, _option(OPTIMISATION, "--lr", "RATE", "Peak learning rate.")] = None,
    optimizer: Annotated[str | None, _option(OPTIMISATION, "--optimizer", "NAME", "adamw or muon.")] = None,
    schedule: Annotated[
        str | None, _option(OPTIMISATION, "--schedule", "NAME", "cosine, linear, wsd or constant.")
    ] = None,
    skip_spikes: Annotated[
        float | None,
        _option(OPTIMISATION, "--skip-spikes", "SIGMA", "Skip updates that stand out by SIGMA deviations; 0: none."),
    ] = None,
    compile_: Annotated[
        str | None, _option(OPTIMISATION, "--compile", "MODE", "torch.compile: auto, on or off.")
    ] = None,
    eval_every: Annotated[int | None, _option(RHYTHM, "--eval-every", "N", "Between evaluations.")] = None,
    save_every: Annotated[int | None, _option(RHYTHM, "--save-every", "N", "Between checkpoints.")] = None,
    sample_every: Annotated[int | None, _option(RHYTHM, "--sample-every", "N", "Between samples; 0: none.")] = None,
    log_every: Annotated[int | None, _option(RHYTHM, "--log-every", "N", "Between logged steps.")] = None,
    tokenizer: TokenizerKind = None,
    vocab_size: VocabSize = None,
    val_fraction: ValFraction = None,
    include: Include = None,
    seed: Annotated[int | None, _option(OPTIMISATION, "--seed", "N", "Seed of weights, batches and dropout.")] = None,
    device: Annotated[
        str | None,
        _option(MACHINE_PANEL, "--device", "DEVICE", "auto, cpu, cuda, cuda:N or mps (default: auto, or the run's)."),
    ] = None,
    dtype: Dtype = "auto",
    quiet: Quiet = False,
    verbose: Verbose = False,
    debug: Debug = False,
    as_json: Json = False,
    no_color: NoColor = False,
) -> None:
    """Train a model on text, or resume a run that was stopped."""
    from gptcli import api
    from gptcli.cli.graceful_stop import GracefulStop
    from gptcli.config.values import merge, nest, parse_setting
    from gptcli.runs.events import Event, Planned
    from gptcli.ui.console import Output
    from gptcli.ui.training import TrainingDisplay, show_dry_run

    flags: dict[str, Any] = {
        "model.n_layer": n_layer, "model.n_head": n_head, "model.n_embd": n_embd, "model.block_size": block_size,
        "model.dropout": dropout, "train.init_from": init_from,
        "train.max_steps": max_steps, "train.epochs": epochs, "train.max_time": max_time,
        "train.patience": patience, "train.batch_size": batch_size, "optim.lr": lr, "optim.schedule": schedule,
        "optim.optimizer": optimizer,
        "optim.skip_spikes": skip_spikes, "train.compile": compile_, "train.seed": seed,
        "train.activation_checkpointing": activation_checkpointing or None,
        "train.eval_every": eval_every, "train.save_every": save_every,
        "train.sample_every": sample_every, "train.log_every": log_every,
        "train.micro_batch_size": _number(micro_batch_size), "train.dtype": _unless_auto(dtype),
        "train.device": device, "tokenizer.kind": tokenizer, "tokenizer.vocab_size": vocab_size,
        "data.val_fraction": val_fraction, "data.include": include,
    }  # fmt: skip
    output = Output(quiet, verbose, as_json, no_color)
    request: dict[str, Any] = {
        "data": data, "out": out, "preset": preset, "family": family, "config": config_files or (), "quiet": quiet,
        "settings": merge(nest(flags), *map(parse_setting, settings or [])), "resume": resume.value,
    }  # fmt: skip
    stop = GracefulStop(lambda: output.warn("Saving, then stopping. Press Ctrl-C again to quit now."))
    with stop, TrainingDisplay(output) as display:
        if dry_run:
            show_dry_run(output, api.plan(**request, on_event=display.show))
            return

        def on_event(event: Event) -> None:
            if isinstance(event, Planned):
                stop.arm()
            display.show(event)

        run = api.train(**request, on_event=on_event, should_stop=stop.requested)
    _conclude(run, stop.signum, output, restarts=resume is Resume.never)


def _conclude(run: Run, signum: int, output: Output, *, restarts: bool) -> None:
    """Print the result; raises Interrupted, with the command that resumes, if a signal ended the session."""
    from gptcli.ui.training import summary

    end = run.end
    if output.as_json:
        told = ("tokens", "best_val_loss", "best_step", "val_loss", "seconds", "stopped")
        output.json({"run": str(run.path), "steps": end.step} | {name: getattr(end, name) for name in told})
    if end.stopped == "interrupted":
        saved = "saved" if end.step else "before there was anything to save"
        command = shlex.join(["gptcli", *sys.argv[1:]])
        if restarts:  # the same command would start yet another run
            command += f" --out {shlex.quote(str(run.path))} --resume must"
        raise Interrupted(f"Stopped at step {end.step:,}, {saved}.", f"Resume with: {command}", signum)
    if not output.as_json:
        output.note(summary(end))
        output.note(f"Next: gptcli sample {shlex.quote(str(run.path))}")
        output.result(str(run.path))


def _number(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 19 else text


def _unless_auto(value: str) -> str | None:
    return None if value == "auto" else value
