"""`gptcli sample`: generate text with a trained model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from gptcli.cli import options
from gptcli.errors import TokenizerError, UsageError

SAMPLE_EXAMPLES = "gptcli sample -p 'ROMEO:'   ·   gptcli sample runs/book -n 500 -t 0.7 --stop 'The End'"
_CHOICE, _AMOUNT = "Choosing tokens", "How much"


def _choice(*names: str, help: str, metavar: str = "F") -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(*names, help=help, metavar=metavar, rich_help_panel=_CHOICE)
    return option


def sample(
    run: options.RunOrNewest = None,
    prompt: Annotated[str | None, typer.Option("-p", "--prompt", metavar="TEXT", help="The text to continue.")] = None,
    prompt_file: Annotated[
        str | None, typer.Option("-f", "--prompt-file", metavar="FILE", help="Read it from a file; - is stdin.")
    ] = None,
    max_new_tokens: Annotated[
        int | None,
        typer.Option(
            "-n", "--max-new-tokens", metavar="N", help="Tokens to generate (default: 200).", rich_help_panel=_AMOUNT
        ),
    ] = None,
    num_samples: Annotated[
        int | None,
        typer.Option(
            "--num-samples", metavar="N", help="Samples to generate at once (default: 1).", rich_help_panel=_AMOUNT
        ),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option("--stop", metavar="TEXT", help="End before this text; repeatable.", rich_help_panel=_AMOUNT),
    ] = None,
    temperature: Annotated[
        float | None,
        _choice("-t", "--temperature", help="0 takes the likeliest token, 1 samples as learned (default: 0.8)."),
    ] = None,
    top_k: Annotated[
        int | None, _choice("-k", "--top-k", metavar="N", help="Only the N likeliest tokens; 0: all (default: 0).")
    ] = None,
    top_p: Annotated[
        float | None, _choice("--top-p", help="Only the likeliest tokens that make up this probability (default: 1.0).")
    ] = None,
    min_p: Annotated[
        float | None, _choice("--min-p", help="Only tokens this share as likely as the likeliest (default: 0.0).")
    ] = None,
    repetition_penalty: Annotated[
        float | None,
        _choice("--repetition-penalty", help="Above 1, tokens that occurred before are less likely (default: 1.0)."),
    ] = None,
    seed: Annotated[
        int | None,
        _choice("--seed", metavar="N", help="The same seed gives the same text (default: a fresh one)."),
    ] = None,
    no_echo: Annotated[bool, typer.Option("--no-echo", help="Show the new text without the prompt.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Let control characters act on the terminal.")] = False,
    interactive: Annotated[
        bool, typer.Option("-i", "--interactive", help="Continue lines that you type, until Ctrl-D.")
    ] = False,
    context: options.Context = None,
    unknown: options.Unknown = options.UnknownCharacters.error,
    checkpoint: options.Checkpoint = "best",
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    quantize: options.Quantize = options.Quantization.none,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    debug: options.Debug = False,
    json: options.Json = False,
    no_color: options.NoColor = False,
) -> None:
    """Generate text with a trained model."""
    from gptcli.cli.threads import spin_where_idle

    spin_where_idle()  # before torch is imported, which reads the setting once
    from gptcli.generation.loaded_model import load, sampling_config, turns
    from gptcli.ui.console import Output
    from gptcli.ui.generated import show_samples

    output = Output(quiet, verbose, json, no_color)
    amount = {"max_new_tokens": max_new_tokens, "num_samples": num_samples, "stop": stop or None, "seed": seed}
    choice = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    config = sampling_config(**amount, **choice, repetition_penalty=repetition_penalty)
    prompts = _prompts(prompt, prompt_file, interactive)
    how: dict[str, Any] = {"dtype": options.number_format(dtype), "quantize": None if quantize == "none" else "int8"}
    model = load(run, checkpoint=checkpoint, device=device, context=context, progress=not quiet, **how)
    for note in model.notes if run else (f"Sampling from {model.path}, the newest run.", *model.notes):
        output.note(note)
    output.detail(model.describe(config.num_samples))
    for text, own in zip(prompts, turns(config), strict=False):
        try:
            encoded = model.encode(text, unknown=unknown.value)
        except TokenizerError as error:
            if not interactive:
                raise
            output.warn(f"{error.message} {error.hint}".rstrip())
            continue
        echo = not (no_echo or interactive)
        show_samples(model.stream(encoded, own), encoded, output, count=own.num_samples, echo=echo, raw=raw)


def _prompts(prompt: str | None, prompt_file: str | None, interactive: bool) -> Iterable[str]:
    """The prompts: the one that was given, or with `interactive` the lines that are typed."""
    from gptcli.generation.prompt import read_prompt
    from gptcli.ui.generated import typed_lines

    flags = {"--prompt": prompt is not None, "--prompt-file": prompt_file is not None, "--interactive": interactive}
    given = [flag for flag, is_given in flags.items() if is_given]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} cannot be used together.", "Give the text to continue in one way.")
    if interactive:
        return typed_lines()
    return [read_prompt(prompt_file) if prompt_file is not None else prompt or ""]
