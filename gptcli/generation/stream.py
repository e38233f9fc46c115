"""The stream of generated text: pieces of each sample as soon as they are certain, and the finished samples.

Letters: B samples, V vocabulary.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from gptcli.config import SamplingConfig
from gptcli.generation.context_window import ContextWindow
from gptcli.generation.cuda_graphs import AsyncCopy, GraphDecoders
from gptcli.generation.logprobs import LogprobRecord, TokenLogprob, log_probabilities
from gptcli.generation.sampler import Sampler
from gptcli.generation.stops import StopMatcher
from gptcli.model.gpt import GPT
from gptcli.tokenizer.tokenizer import StreamDecoder, Tokenizer

FinishReason = Literal["length", "stop", "end_of_text"]


@dataclass(frozen=True)
class Piece:
    """The next piece of text of sample number `index`."""

    index: int
    text: str


@dataclass(frozen=True)
class Sample:
    """A finished sample."""

    index: int
    text: str
    """All of its pieces joined, without the prompt."""
    tokens: int
    """Number of generated tokens, including those of a stop string."""
    finish_reason: FinishReason
    seed: int
    first_token_seconds: float | None
    """From the start, including prefill, to the first token; None without tokens."""
    seconds: float
    """From the start to the end."""
    slides: int
    """How often the context window dropped its oldest half."""
    logprobs: tuple[TokenLogprob, ...] = ()
    """The generated tokens with their log-probabilities, if `SamplingConfig.logprobs` asks for them; else empty."""

    @property
    def tokens_per_second(self) -> float | None:
        """Decoding speed, measured from the first token on, without prefill; None below two tokens."""
        if self.first_token_seconds is None or self.tokens < 2 or self.seconds <= self.first_token_seconds:
            return None
        return (self.tokens - 1) / (self.seconds - self.first_token_seconds)


def stream_samples(
    model: GPT,
    tokenizer: Tokenizer,
    prompt: Sequence[int],
    config: SamplingConfig,
    *,
    end_id: int | None = None,
    decoders: GraphDecoders | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Piece | Sample]:
    """Continue `prompt`, a list of at least one id, `config.num_samples` times in one batch.

    The model must be in evaluation mode. A sample ends at a stop string, at `end_id` or after `config.max_new_tokens`
    tokens. `decoders` keeps CUDA graphs of the model from call to call. Raises ModelFolderError if the logits are not
    finite, and OutOfMemoryError.
    """
    started = clock()
    device = model.wte.weight.device
    prompt_ids = torch.tensor([prompt], dtype=torch.long, device=device)  # (1, P)
    rows = [_Row(index, tokenizer, config, end_id) for index in range(config.num_samples)]
    window = ContextWindow(model, config.num_samples, decoders)
    sampler = Sampler(config, allowed_ids(tokenizer, model.config.vocab_size, end_id), prompt_ids, device)
    first_token: float | None = None
    slides = 0
    copy = AsyncCopy(config.num_samples, device) if device.type == "cuda" else None
    record = LogprobRecord(tokenizer, config.logprobs) if config.logprobs else None
    for chosen, slides in _steps(window, sampler, prompt_ids, config.max_new_tokens, copy, record):
        first_token = clock() - started if first_token is None else first_token
        for row, token in zip(rows, chosen, strict=True):
            if row.reason is None:
                yield from row.push(token)
                if row.reason is not None:
                    yield row.finished(first_token, clock() - started, slides, record)
        if all(row.reason is not None for row in rows):
            return
    for row in rows:
        if row.reason is None:
            yield from row.close("length")
            yield row.finished(first_token, clock() - started, slides, record)


def _steps(
    window: ContextWindow,
    sampler: Sampler,
    prompt: Tensor,
    steps: int,
    copy: AsyncCopy | None,
    record: LogprobRecord | None = None,
) -> Iterator[tuple[list[int], int]]:
    """The ids of each step, one per sample, and how often the window had slid when they were chosen.

    With `copy` the device computes the next step while the ids of this one are copied; if the text ends there, that
    step is wasted. The window is closed at the end.
    """
    with closing(window):
        if not steps:
            return
        logits = window.prefill(prompt)  # (B, V)
        for step in range(steps):
            logprobs = log_probabilities(logits) if record else None  # (B, V), before the sampler changes the logits
            tokens, slides = sampler.choose(logits), window.slides  # (B, 1)
            if record and logprobs is not None:
                record.add(logprobs, tokens)
            last = step + 1 == steps
            if copy:
                copy.start(tokens)
                if not last:
                    logits = window.append(tokens)
            yield (copy.wait() if copy else tokens[:, 0].tolist()), slides
            if not (copy or last):
                logits = window.append(tokens)


def allowed_ids(tokenizer: Tokenizer, rows: int, end_id: int | None) -> Tensor:
    """A mask of the ids that may be sampled, bool (V,) for V = `rows`: those that are text, and `end_id`.

    It excludes rows beyond the tokenizer's vocabulary, partial characters that no text contains, and `<|endoftext|>`
    unless the model was trained to end texts with it.
    """
    allowed = torch.zeros(rows, dtype=torch.bool)
    allowed[: tokenizer.vocab_size] = torch.from_numpy(tokenizer.emittable)
    if tokenizer.end_of_text is not None:
        allowed[tokenizer.end_of_text] = False
    if end_id is not None:
        allowed[end_id] = True
    return allowed


class _Row:
    """The state of one sample: its decoder, its stop strings, its text so far."""

    def __init__(self, index: int, tokenizer: Tokenizer, config: SamplingConfig, end_id: int | None) -> None:
        self.reason: FinishReason | None = None
        self._index, self._seed, self._end_id = index, config.seed + index, end_id
        self._decoder = StreamDecoder(tokenizer)
        self._stops = StopMatcher(config.stop)
        self._pieces: list[str] = []
        self._tokens = 0

    def push(self, token: int) -> Iterator[Piece]:
        self._tokens += 1
        if token == self._end_id:
            yield from self.close("end_of_text")
            return
        yield from self._emit(self._stops.push(self._decoder.push(token)))
        if self._stops.stopped:
            self.reason = "stop"

    def finished(self, first_token: float | None, seconds: float, slides: int, record: LogprobRecord | None) -> Sample:
        assert self.reason is not None
        return Sample(
            index=self._index,
            text="".join(self._pieces),
            tokens=self._tokens,
            finish_reason=self.reason,
            seed=self._seed,
            first_token_seconds=first_token,
            seconds=seconds,
            slides=slides,
            logprobs=record.of_sample(self._index, self._tokens) if record else (),
        )

    def close(self, reason: FinishReason) -> Iterator[Piece]:
        """End the sample and emit the text that was held back: a cut character, the beginning of a stop string."""
        yield from self._emit(self._stops.push(self._decoder.finish()))
        self.reason = "stop" if self._stops.stopped else reason
        yield from self._emit(self._stops.finish())

    def _emit(self, text: str) -> Iterator[Piece]:
        if text:
            self._pieces.append(text)
            yield Piece(self._index, text)
