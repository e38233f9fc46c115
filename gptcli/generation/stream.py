"""The stream of generated text: pieces of each sample as they become certain, and a summary of each at its end.

Letters: B samples, V vocabulary.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gptcli.config import SamplingConfig
from gptcli.generation.context_window import ContextWindow
from gptcli.generation.cuda_graphs import Reader
from gptcli.generation.sampler import Sampler
from gptcli.generation.stops import StopMatcher
from gptcli.model.gpt import GPT
from gptcli.tokenizer.tokenizer import StreamDecoder, Tokenizer

FinishReason = Literal["length", "stop", "end_of_text"]
Clock = Callable[[], float]


@dataclass(frozen=True)
class Piece:
    """Some text that sample number `sample` goes on with."""

    sample: int
    text: str


@dataclass(frozen=True)
class Sample:
    """A sample is complete."""

    sample: int
    text: str
    """All its pieces, without the prompt."""
    tokens: int
    """Tokens generated, those of a stop string included."""
    finish_reason: FinishReason
    seed: int
    first_token_seconds: float | None
    """From the start, prefill included, to the first token; None if there is none."""
    seconds: float
    """From the start to the end."""
    slides: int
    """How often the window dropped its oldest half."""

    @property
    def tokens_per_second(self) -> float | None:
        """Speed after the first token, which waits for the prefill; None below two tokens."""
        if self.first_token_seconds is None or self.tokens < 2 or self.seconds <= self.first_token_seconds:
            return None
        return (self.tokens - 1) / (self.seconds - self.first_token_seconds)


def generate(
    model: GPT,
    tokenizer: Tokenizer,
    prompt: Sequence[int],
    config: SamplingConfig,
    *,
    end_id: int | None = None,
    clock: Clock = time.perf_counter,
) -> Iterator[Piece | Sample]:
    """Continue `prompt`, at least one id, `config.num_samples` times as one batch.

    The model must be in evaluation mode. A sample ends at a stop string, at `end_id` or at its length; when all have
    ended, so does the stream. Raises ModelFolderError for a model that computes no numbers, and OutOfMemoryError.
    """
    started = clock()
    device = model.wte.weight.device
    prompt_ids = torch.tensor([prompt], dtype=torch.long, device=device)  # (1, P)
    rows = [_Row(sample, tokenizer, config, end_id) for sample in range(config.num_samples)]
    window = ContextWindow(model, config.num_samples)
    sampler = Sampler(config, allowed_ids(tokenizer, model.config.vocab_size, end_id), prompt_ids, device)
    first_token: float | None = None
    slides = 0
    reader = Reader(config.num_samples, device) if device.type == "cuda" else None
    for chosen, slides in _steps(window, sampler, prompt_ids, config.max_new_tokens, reader):
        first_token = clock() - started if first_token is None else first_token
        for row, token in zip(rows, chosen, strict=True):
            if row.reason is None:
                yield from row.push(token)
                if row.reason is not None:
                    yield row.finished(first_token, clock() - started, slides)
        if all(row.reason is not None for row in rows):
            return
    for row in rows:
        if row.reason is None:
            yield from row.end_of_length()
            yield row.finished(first_token, clock() - started, slides)


def _steps(
    window: ContextWindow, sampler: Sampler, prompt: Tensor, steps: int, reader: Reader | None
) -> Iterator[tuple[list[int], int]]:
    """The ids of each step, one for every sample, and how often the window had slid when they were chosen.

    With a `reader` the device computes the next step while the caller has the ids of this one, in vain if the text ends
    there.
    """
    if not steps:
        return
    logits = window.prefill(prompt)  # (B, V)
    for step in range(steps):
        tokens, slides = sampler.choose(logits), window.slides  # (B, 1)
        last = step + 1 == steps
        if reader:
            reader.begin(tokens)
            if not last:
                logits = window.append(tokens)
        yield (reader.read() if reader else tokens[:, 0].tolist()), slides
        if not (reader or last):
            logits = window.append(tokens)


def allowed_ids(tokenizer: Tokenizer, rows: int, end_id: int | None) -> Tensor:
    """Which of a model's `rows` ids may be sampled, bool (V,): those that are text, and `end_id`.

    Not among them: rows beyond the tokenizer's vocabulary, partial characters that no text contains, and an
    `<|endoftext|>` that the model was not trained to end with.
    """
    allowed = torch.zeros(rows, dtype=torch.bool)
    allowed[: tokenizer.vocab_size] = torch.from_numpy(tokenizer.emittable)
    if tokenizer.end_of_text is not None:
        allowed[tokenizer.end_of_text] = False
    if end_id is not None:
        allowed[end_id] = True
    return allowed


class _Row:
    """One sample: its decoder, its stop strings, its text so far."""

    def __init__(self, sample: int, tokenizer: Tokenizer, config: SamplingConfig, end_id: int | None) -> None:
        self.reason: FinishReason | None = None
        self._sample, self._seed, self._end_id = sample, config.seed + sample, end_id
        self._decoder = StreamDecoder(tokenizer)
        self._stops = StopMatcher(config.stop)
        self._pieces: list[str] = []
        self._tokens = 0

    def push(self, token: int) -> Iterator[Piece]:
        self._tokens += 1
        if token == self._end_id:
            yield from self._close("end_of_text")
            return
        yield from self._emit(self._stops.push(self._decoder.push(token)))
        if self._stops.stopped:
            self.reason = "stop"

    def end_of_length(self) -> Iterator[Piece]:
        yield from self._close("length")

    def finished(self, first_token: float | None, seconds: float, slides: int) -> Sample:
        assert self.reason is not None
        return Sample(
            sample=self._sample,
            text="".join(self._pieces),
            tokens=self._tokens,
            finish_reason=self.reason,
            seed=self._seed,
            first_token_seconds=first_token,
            seconds=seconds,
            slides=slides,
        )

    def _close(self, reason: FinishReason) -> Iterator[Piece]:
        """Let out what was held back: a cut character, the beginning of a stop string."""
        yield from self._emit(self._stops.push(self._decoder.finish()))
        self.reason = "stop" if self._stops.stopped else reason
        yield from self._emit(self._stops.finish())

    def _emit(self, text: str) -> Iterator[Piece]:
        if text:
            self._pieces.append(text)
            yield Piece(self._sample, text)
