"""`gptcli sample`: generate text with a trained model."""

from __future__ import annotations

import os.path
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gptcli.cli import options
from gptcli.cli.flags import stated_settings
from gptcli.cli.options import setting
from gptcli.errors import GptcliError, TokenizerError, UsageError

if TYPE_CHECKING:
    from gptcli.config import SamplingConfig

SAMPLE_EXAMPLES = "gptcli sample -p 'ROMEO:'   ·   gptcli sample runs/book -n 500 -t 0.2 -t 0.8 --stop 'The End'"
CHOICE, AMOUNT = "Choosing tokens", "How much"


def sample(
    run: options.RunOrNewest = None,
    prompt: Annotated[str | None, typer.Option("-p", "--prompt", metavar="TEXT", help="The text to continue.")] = None,
    prompt_file: Annotated[
        str | None, typer.Option("-f", "--prompt-file", metavar="FILE", help="Read it from a file; - is stdin.")
    ] = None,
    max_new_tokens: Annotated[int | None, setting("sampling.max_new_tokens", "N", "-n", panel=AMOUNT)] = None,
    num_samples: Annotated[int | None, setting("sampling.num_samples", "N", panel=AMOUNT)] = None,
    stop: Annotated[list[str] | None, setting("sampling.stop", "TEXT", panel=AMOUNT)] = None,
    temperature: Annotated[
        list[float] | None,
        setting("sampling.temperature", "F", "-t", panel=CHOICE, note="Give it several times to compare the texts."),
    ] = None,
    top_k: Annotated[int | None, setting("sampling.top_k", "N", "-k", panel=CHOICE)] = None,
    top_p: Annotated[float | None, setting("sampling.top_p", "F", panel=CHOICE)] = None,
    min_p: Annotated[float | None, setting("sampling.min_p", "F", panel=CHOICE)] = None,
    repetition_penalty: Annotated[float | None, setting("sampling.repetition_penalty", "F", panel=CHOICE)] = None,
    seed: Annotated[int | None, setting("sampling.seed", "N", panel=CHOICE, default="a fresh one")] = None,
    logprobs: Annotated[
        int | None,
        setting("sampling.logprobs", "N", "--top", panel=options.OUTPUT_PANEL, note="With --json natural logarithms."),
    ] = None,
    no_echo: Annotated[bool, typer.Option("--no-echo", help="Show the new text without the prompt.")] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="On a terminal: let control characters act, keep leading blank lines.")
    ] = False,
    interactive: Annotated[
        bool,
        typer.Option(
            "-i",
            "--interactive",
            help="Continue what you type, until Ctrl-D; /help shows commands, unknown characters are skipped.",
        ),
    ] = False,
    context: options.Context = None,
    unknown: options.Unknown = "error",
    checkpoint: options.Checkpoint = "best",
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    quantize: options.Quantize = "none",
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    debug: options.Debug = False,
    json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON object a line, one for each sample.", rich_help_panel=options.OUTPUT_PANEL
        ),
    ] = False,
    no_color: options.NoColor = False,
) -> None:
    """Generate text with a trained model."""
    from gptcli.cli.threads import spin_where_idle

    stated = stated_settings(sample, locals())
    spin_where_idle()  # before torch is imported, which reads the setting once
    import gptcli
    from gptcli.generation.loaded_model import turns
    from gptcli.ui.console import Output
    from gptcli.ui.generated import is_typed, show_samples

    output = Output(quiet, verbose, json, no_color)
    given = {key.removeprefix("sampling."): value for key, value in stated.items() if key.startswith("sampling.")}
    configs = _configs(given)
    prompts = _prompts(prompt, prompt_file, interactive)
    how: dict[str, Any] = {"dtype": options.dtype_or_none(dtype), "quantize": None if quantize == "none" else "int8"}
    with _meant_as_prompt(run if prompt is None else None):
        model = gptcli.load(run, checkpoint=checkpoint, device=device, context=context, quiet=quiet, **how)
    for note in model.notes if run else (f"Sampling from {model.path}, the newest run.", *model.notes):
        output.note(note)
    output.detail(model.describe(configs[0].num_samples))
    if interactive and is_typed() and not json:
        from gptcli.cli.chat import Chat

        Chat(model, configs, output, raw=raw).run()
        return
    for text, *own in zip(prompts, *map(turns, configs), strict=False):
        try:
            encoded = model.encode(text, unknown=unknown)
        except TokenizerError as error:
            if not interactive:
                raise
            output.warn(f"{error.message} {error.hint}".rstrip())
            continue
        echo = not (no_echo or interactive)
        streams = [(config, model.stream(encoded, config)) for config in own]
        show_samples(streams, encoded, output, echo=echo, raw=raw)


def _configs(given: dict[str, Any]) -> list[SamplingConfig]:
    """The settings for each temperature, all with the same seed. Raises ConfigError, or UsageError for a repetition."""
    from gptcli.generation.loaded_model import sampling_config

    temperatures = given.get("temperature") or [None]
    for temperature in temperatures:
        if temperatures.count(temperature) > 1:
            message = f"`temperature` is given twice as {temperature:g}."
            raise UsageError(message, "Give different temperatures to compare them.")
    first = sampling_config(**given | {"temperature": temperatures[0]})
    again = given | {"seed": first.seed}
    return [first, *(sampling_config(**again | {"temperature": other}) for other in temperatures[1:])]


@contextmanager
def _meant_as_prompt(run: str | None) -> Iterator[None]:
    """Add the option for a prompt to the error about a run with spaces that does not exist."""
    try:
        yield
    except GptcliError as error:
        if run is not None and " " in run.strip() and not os.path.exists(run):
            error.hint = f"To continue this text, use --prompt {shlex.quote(run)}"
        raise


def _prompts(prompt: str | None, prompt_file: str | None, interactive: bool) -> Iterable[str]:
    """The prompts: the one that was given, or with `interactive` the lines that are typed."""
    from gptcli.generation.prompt import read_prompt
    from gptcli.ui.generated import is_typed, typed_lines, typed_texts

    flags = {"--prompt": prompt is not None, "--prompt-file": prompt_file is not None, "--interactive": interactive}
    given = [flag for flag, is_given in flags.items() if is_given]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} cannot be used together.", "Give the text to continue in one way.")
    if interactive:
        return typed_texts() if is_typed() else typed_lines()
    return [read_prompt(prompt_file) if prompt_file is not None else prompt or ""]
