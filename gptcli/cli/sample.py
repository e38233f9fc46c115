"""`gptcli sample`: text from a trained model."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from gptcli.cli import options
from gptcli.cli.model import model_path
from gptcli.errors import TokenizerError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from gptcli.checkpoints.model_folder import LoadedModel
    from gptcli.config import SamplingConfig
    from gptcli.ui.console import Output

SAMPLE_EXAMPLES = "gptcli sample -p 'ROMEO:'   ·   gptcli sample runs/book -n 500 -t 0.7 --stop 'The End'"
FRESH_SEEDS = 1_000_000
"""Seeds that are drawn where none is given: few enough digits to be typed again."""
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
            "-n", "--max-new-tokens", metavar="N", help="Tokens to write (default: 200).", rich_help_panel=_AMOUNT
        ),
    ] = None,
    num_samples: Annotated[
        int | None,
        typer.Option(
            "--num-samples", metavar="N", help="Texts to write, side by side (default: 1).", rich_help_panel=_AMOUNT
        ),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option("--stop", metavar="TEXT", help="End before this text; repeatable.", rich_help_panel=_AMOUNT),
    ] = None,
    temperature: Annotated[
        float | None,
        _choice("-t", "--temperature", help="0 always takes the likeliest, 1 draws as learned (default: 0.8)."),
    ] = None,
    top_k: Annotated[
        int | None, _choice("-k", "--top-k", metavar="N", help="Only the N likeliest tokens; 0: all (default: 0).")
    ] = None,
    top_p: Annotated[
        float | None, _choice("--top-p", help="Only the likeliest tokens that make up this share (default: 1.0).")
    ] = None,
    min_p: Annotated[
        float | None, _choice("--min-p", help="Only tokens this share as likely as the likeliest (default: 0.0).")
    ] = None,
    repetition_penalty: Annotated[
        float | None,
        _choice("--repetition-penalty", help="Above 1, tokens that came already are less likely (default: 1.0)."),
    ] = None,
    seed: Annotated[
        int | None,
        _choice("--seed", metavar="N", help="The same seed gives the same text (default: a fresh one, told)."),
    ] = None,
    no_echo: Annotated[bool, typer.Option("--no-echo", help="Leave the prompt out of the output.")] = False,
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
    """Write text with a trained model."""
    from gptcli.cli.threads import spin_where_idle

    spin_where_idle()  # before torch is imported, which reads it once
    from gptcli.config import SamplingConfig, parse_section
    from gptcli.ui.console import Output

    settings = {
        "max_new_tokens": max_new_tokens,
        "num_samples": num_samples,
        "stop": tuple(stop) if stop else None,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "seed": secrets.randbelow(FRESH_SEEDS) if seed is None else seed,
    }
    config = parse_section(SamplingConfig, {name: value for name, value in settings.items() if value is not None})
    output = Output(quiet, verbose, json, no_color)
    texts = _texts(prompt, prompt_file, interactive)
    path = model_path(run, "Sampling from", output)
    folder = _load(path, checkpoint, device, dtype, quantize, context, config.num_samples, output)
    if interactive:
        _converse(folder, texts, config, unknown, output, raw=raw)
    else:
        for text in texts:
            _continue(folder, text, config, unknown, output, echo=not no_echo, raw=raw)


def _converse(
    folder: LoadedModel,
    lines: Iterable[str],
    config: SamplingConfig,
    unknown: options.UnknownCharacters,
    output: Output,
    *,
    raw: bool,
) -> None:
    """Continue line after line, each with seeds of its own. A line that cannot be encoded ends nothing."""
    for turn, line in enumerate(lines):
        own = config.model_copy(update={"seed": config.seed + turn * config.num_samples})
        try:
            _continue(folder, line, own, unknown, output, echo=False, raw=raw)
        except TokenizerError as error:
            output.warn(f"{error.message} {error.hint}".rstrip())


def _texts(prompt: str | None, prompt_file: str | None, interactive: bool) -> Iterable[str]:
    """The prompts: the one that was given, or with `interactive` the lines that are typed."""
    from gptcli.generation.prompt import read_prompt, require_unicode
    from gptcli.ui.lines import typed_lines

    given = [flag for flag, is_set in _given(prompt, prompt_file, interactive) if is_set]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} cannot be used together.", "Give the text to continue in one way.")
    if interactive:
        return (require_unicode(line, "The line") for line in typed_lines())
    if prompt_file is not None:
        return [read_prompt(prompt_file)]
    return [require_unicode(prompt or "", "--prompt")]


def _given(prompt: str | None, prompt_file: str | None, interactive: bool) -> Iterable[tuple[str, bool]]:
    return (
        ("--prompt", prompt is not None),
        ("--prompt-file", prompt_file is not None),
        ("--interactive", interactive),
    )


def _load(
    path: Path,
    checkpoint: str,
    device: str,
    dtype: str,
    quantize: options.Quantization,
    context: int | None,
    num_samples: int,
    output: Output,
) -> LoadedModel:
    """The model, where and how it runs, with memory for so many samples."""
    import torch

    from gptcli.generation.context_window import require_memory
    from gptcli.generation.load import decoding_threads, load_for_sampling
    from gptcli.machine import free_memory

    int8 = quantize is options.Quantization.int8
    folder = load_for_sampling(path, checkpoint, device, options.number_format(dtype), context=context, int8=int8)
    require_memory(folder.model, num_samples, free_memory(folder.model.wte.weight.device))
    torch.set_num_threads(decoding_threads(folder.model, num_samples))
    step = "" if folder.step is None else f", step {folder.step:,}"
    weight = folder.model.wte.weight
    rounded = ", 8-bit weights" if int8 else ""
    threads = torch.get_num_threads()
    output.detail(f"{folder.path}{step}: {weight.dtype}{rounded} on {weight.device}, {threads} CPU threads.")
    return folder


def _continue(
    folder: LoadedModel,
    text: str,
    config: SamplingConfig,
    unknown: options.UnknownCharacters,
    output: Output,
    *,
    echo: bool,
    raw: bool,
) -> None:
    """Continue one prompt and show the result."""
    from gptcli.generation.context_window import window_start
    from gptcli.generation.prompt import prompt_ids
    from gptcli.generation.stream import generate
    from gptcli.ui.generated import closing_line, show_json, show_text

    ids = prompt_ids(folder, text, unknown.value)
    strangers = folder.tokenizer.unknown_characters(text)
    if strangers:
        output.note(f"Left out of the prompt, as the model does not know them: {' '.join(strangers)}")
        text = folder.tokenizer.known_part(text)
    context = folder.model.config.block_size
    if unseen := window_start(len(ids), context):
        seen = f"the model sees the last {len(ids) - unseen:,}, as a full context loses its oldest half"
        output.note(f"The prompt has {len(ids):,} tokens, more than the context of {context:,}: {seen}.")
    events = generate(folder.model, folder.tokenizer, ids, config, end_id=folder.end_id)
    if output.as_json:
        samples = show_json(events, output, prompt=text)
    else:
        samples = show_text(events, config.num_samples, before=text if echo else "", raw=raw)
    output.note(closing_line(samples))
