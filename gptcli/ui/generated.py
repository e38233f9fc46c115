"""Showing generated text: as it streams, sample after sample, with a closing line; and reading prompts line by line."""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gptcli.config import SamplingConfig
from gptcli.errors import counted
from gptcli.generation.prompt import Prompt
from gptcli.generation.stream import FinishReason, Piece, Sample
from gptcli.signals import Stopped
from gptcli.ui.candidates import show_candidates
from gptcli.ui.columns import fits_side_by_side, heading, side_by_side
from gptcli.ui.console import Output, on_terminal
from gptcli.ui.tokens import token_as_json

SEPARATOR = "---------------"
PROMPT_MARK = "> "
REACTION_SECONDS = 0.5
"""Time in which a person cannot have seen the mark and decided to leave."""
_REASONS: dict[FinishReason, str] = {
    "length": "reached `max_new_tokens`",
    "stop": "reached a stop string",
    "end_of_text": "end of text",
}


def typed_lines() -> Iterator[str]:
    """Lines from standard input until its end, without newlines.

    Bytes that are not UTF-8 become lone surrogates, as they do on the command line.
    """
    for line in sys.stdin.buffer:
        yield line.removesuffix(b"\n").decode("utf-8", errors="surrogateescape")


def is_typed() -> bool:
    """Whether a person types at a terminal and reads there."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def typed_texts() -> Iterator[str]:
    """What is typed at a mark on a terminal until Ctrl-D, with line editing and history. A paste is one text.

    Bytes that are not UTF-8 become replacement characters. Raises KeyboardInterrupt for Ctrl-C, unless it comes so soon
    that it was meant for the text that has just ended.
    """
    from prompt_toolkit import PromptSession

    session: PromptSession[str] = PromptSession()
    while True:
        began = time.monotonic()
        try:
            typed = session.prompt(PROMPT_MARK)
        except EOFError:
            return
        except KeyboardInterrupt as error:
            if isinstance(error, Stopped) or time.monotonic() - began > REACTION_SECONDS:
                raise
            continue
        yield typed.encode(errors="surrogateescape").decode(errors="replace")


Streams = Sequence[tuple[SamplingConfig, Iterable[Piece | Sample]]]
"""The events of one prompt at each temperature, with the settings that gave them."""


def show_samples(streams: Streams, prompt: Prompt, output: Output, *, echo: bool, raw: bool) -> None:
    """Show the samples of a prompt as text or JSON lines, then a note with tokens, speed and seeds.

    Several temperatures stand side by side where the terminal is wide enough, and else one after another.
    """
    for note in prompt.notes:
        output.note(note)
    before, several = prompt.text if echo else "", len(streams) > 1
    in_columns = not (output.as_json or raw) and fits_side_by_side(output, len(streams))
    if in_columns:
        configs = [config for config, _ in streams]
        streams = [(config, _finished(events)) for config, events in streams]
        texts = [[on_terminal(before + one.text, trim=not prompt.text) for one in events] for _, events in streams]
        output.show(side_by_side(configs, texts), "")
    for config, events in streams:
        if several and not output.as_json and (config.logprobs or not in_columns):
            output.show(heading(config))
        if output.as_json:
            samples = show_json(events, output, prompt.text, config)
        elif in_columns:
            samples = _finished(events)
        else:
            samples = show_text(events, config.num_samples, before=before, raw=raw, trim=not prompt.text)
        if config.logprobs and not output.as_json:
            show_candidates(samples, output)
        output.note((f"temperature {config.temperature:g}: " if several else "") + closing_line(samples))


def show_text(
    events: Iterable[Piece | Sample], count: int, *, before: str, raw: bool = False, trim: bool = False
) -> list[Sample]:
    """Print `count` samples one after another, each after the text `before` (the prompt, or ""); returns them.

    The current sample streams; the others wait until it is finished. With `raw` control characters act on a terminal.
    With `trim` a terminal does not show the blank lines at the beginning of a sample.
    """
    waiting: dict[int, str] = defaultdict(str)
    finished: dict[int, Sample] = {}
    writer, turn = _Writer(raw=raw, trim=trim), 0
    writer.write(before)
    try:
        for event in events:
            if isinstance(event, Sample):
                finished[event.index] = event
            elif event.index == turn:
                writer.write(event.text)
            else:
                waiting[event.index] += event.text
            while turn in finished and turn + 1 < count:
                turn += 1
                writer.end_line()
                writer.begin(f"{SEPARATOR}\n")
                writer.write(f"{before}{waiting.pop(turn, '')}")
    except KeyboardInterrupt:
        writer.end_line()  # the shell's prompt comes next
        raise
    writer.end_line()
    return [finished[index] for index in sorted(finished)]


def show_json(events: Iterable[Piece | Sample], output: Output, prompt: str, config: SamplingConfig) -> list[Sample]:
    """Print one line of JSON for each sample, in order; returns them."""
    samples = _finished(events)
    for sample in samples:
        output.json(as_json(sample, prompt, config))
    return samples


def _finished(events: Iterable[Piece | Sample]) -> list[Sample]:
    return sorted((event for event in events if isinstance(event, Sample)), key=lambda sample: sample.index)


def as_json(sample: Sample, prompt: str, config: SamplingConfig) -> dict[str, Any]:
    """One sample for programs; the names are a promise. `logprobs` is there only if it was asked for."""
    values: dict[str, Any] = {
        "prompt": prompt,
        "text": sample.text,
        "tokens": sample.tokens,
        "finish_reason": sample.finish_reason,
        "seed": sample.seed,
        "tokens_per_second": sample.tokens_per_second,
        "first_token_seconds": sample.first_token_seconds,
        "temperature": config.temperature,
    }
    if config.logprobs:
        values["logprobs"] = [token_as_json(token) for token in sample.logprobs]
    return values


def closing_line(samples: Sequence[Sample]) -> str:
    """`200 tokens · first after 12 ms · 1,234 tokens/s · reached --max-new-tokens · seed 42 · window slid 2 times`."""
    tokens, first, last = sum(sample.tokens for sample in samples), samples[0], samples[-1]
    parts = [counted(tokens, "token")]
    if len(samples) > 1:
        parts[0] += f" in {len(samples):,} samples"
    if first.first_token_seconds is not None:
        parts.append(f"first after {_duration(first.first_token_seconds)}")
        # The samples are decoded in one batch, so that their tokens share the time of the longest.
        seconds = max(sample.seconds for sample in samples) - first.first_token_seconds
        if tokens > len(samples) and seconds > 0:
            parts.append(f"{(tokens - len(samples)) / seconds:,.0f} tokens/s")
    reasons = Counter(sample.finish_reason for sample in samples)
    parts += [_REASONS[reason] + (f" ({count})" if len(reasons) > 1 else "") for reason, count in reasons.items()]
    parts.append(f"seed {first.seed}" if len(samples) == 1 else f"seeds {first.seed} to {last.seed}")
    slides = max(sample.slides for sample in samples)
    if slides:
        parts.append("window slid " + ("once" if slides == 1 else f"{slides} times"))
    return " · ".join(parts)


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms" if seconds < 1 else f"{seconds:,.1f} s"


class _Writer:
    """Writes text to standard output at once: unchanged on a pipe or if `raw`, on a terminal as `on_terminal` does.

    What a terminal shows does not depend on how the text is cut into pieces.
    """

    def __init__(self, *, raw: bool, trim: bool) -> None:
        self._safe, self._trim = sys.stdout.isatty() and not raw, trim
        self._line_open, self._trimming = False, trim
        self._held = ""
        """A CR at the end of a piece, whose LF may be the next one."""

    def begin(self, line: str) -> None:
        """Begin another text, below a line."""
        self._print(line)
        self._trimming = self._trim

    def write(self, text: str) -> None:
        if self._safe:
            text = self._held + text
            self._held = "\r" if text.endswith("\r") else ""
            text = on_terminal(text.removesuffix(self._held), trim=self._trimming)
            self._trimming = self._trimming and not text
        self._print(text)

    def end_line(self) -> None:
        self._held = ""
        if self._line_open:
            self._print("\n")

    def _print(self, text: str) -> None:
        if text:
            self._line_open = not text.endswith("\n")
            sys.stdout.write(text)
            sys.stdout.flush()
