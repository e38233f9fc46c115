"""The surprise of each token of a text: what `score_texts` sums, token by token, and the places where it is largest.

Letters: B windows, T tokens of a window, S scored tokens of a window, N tokens of a text, C width, V vocabulary,
K alternatives.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gptcli.config import DataConfig
from gptcli.dataset.sources import OnProgress
from gptcli.generation.logprobs import TokenLogprob, likeliest, log_probabilities, token_logprob
from gptcli.generation.scoring import (
    BATCH_TOKENS,
    OnWindows,
    Score,
    ScoredWindow,
    Scores,
    score_texts,
    window_batches,
)
from gptcli.model.devices import to_device
from gptcli.model.gpt import GPT
from gptcli.tokenizer import Unknown
from gptcli.tokenizer.tokenizer import Tokenizer

ALTERNATIVES = 5
"""Most likely tokens that are kept for each token of a text."""
LOGITS_AT_ONCE = 1 << 22
"""Logits of a large vocabulary that are in memory at once."""
NEARBY = 8
"""A place is not listed if a more surprising one is at most this many tokens away."""
EXCERPT_TOKENS, EXCERPT_CHARACTERS = 24, 24
"""Longest excerpt on each side of a place."""


@dataclass(frozen=True)
class Place:
    """A token that surprises the model, with the text around it."""

    index: int
    """Its number in the text, from 0."""
    line: int
    """Its line in the text, from 1."""
    token: TokenLogprob
    before: str
    """The end of the text before it, of the same line."""
    after: str
    """The beginning of the text after it, up to the end of the line."""


@dataclass(frozen=True, eq=False)
class TokenArrays:
    """The tokens of a text, or of a part of it, as arrays."""

    ids: np.ndarray
    """int32 (N,)."""
    logprobs: np.ndarray
    """Natural log-probabilities, float32 or float64 (N,); NaN for tokens that nothing precedes in their window."""
    alternative_ids: np.ndarray
    """The most likely ids at each position, int32 (N, K), likeliest first."""
    alternative_logprobs: np.ndarray
    """Their log-probabilities, float32 or float64 (N, K); NaN where `logprobs` is."""


@dataclass(frozen=True, eq=False)
class TextSurprise:
    """A text, token by token, with the probabilities that the model gave to each: a sequence of `TokenLogprob`."""

    score: Score
    """The score of the text; its `nats` are exactly the sum over the tokens."""
    tokenizer: Tokenizer
    arrays: TokenArrays

    def __len__(self) -> int:
        return len(self.arrays.ids)

    def __getitem__(self, index: int) -> TokenLogprob:
        """Token number `index`; a token that nothing precedes has no alternatives."""
        arrays, logprob = self.arrays, float(self.arrays.logprobs[index])
        known = slice(0) if math.isnan(logprob) else slice(None)
        ids, logprobs = arrays.alternative_ids[index, known], arrays.alternative_logprobs[index, known]
        return token_logprob(self.tokenizer, int(arrays.ids[index]), logprob, ids.tolist(), logprobs.tolist())

    def __iter__(self) -> Iterator[TokenLogprob]:
        return (self[index] for index in range(len(self)))

    def places(self, count: int = 10) -> list[Place]:
        """The most surprising tokens, at most `count`, and none beside a more surprising one (`NEARBY`)."""
        ids, logprobs, vocab_size = self.arrays.ids, self.arrays.logprobs, self.tokenizer.vocab_size
        newlines = np.array([self.tokenizer.token_bytes(token).count(b"\n") for token in range(vocab_size)])[ids]
        lines = 1 + np.cumsum(newlines) - newlines  # (N,), where each token begins
        chosen: list[int] = []
        for index in np.argsort(logprobs, kind="stable").tolist():  # NaN comes last
            if len(chosen) == count or math.isnan(logprobs[index]):
                break
            if all(abs(index - other) > NEARBY for other in chosen):
                chosen.append(index)
        return [self._place(index, int(lines[index])) for index in chosen]

    def _place(self, index: int, line: int) -> Place:
        token = self[index]
        before = self._text(max(0, index - EXCERPT_TOKENS), index).rpartition("\n")[2]
        after = self._text(index + 1, index + 1 + EXCERPT_TOKENS).partition("\n")[0]
        after = "" if "\n" in token.text else after[:EXCERPT_CHARACTERS]  # what follows is another line
        return Place(index, line, token, before[-EXCERPT_CHARACTERS:], after)

    def _text(self, start: int, stop: int) -> str:
        """The text of some tokens, without parts of characters at its ends."""
        return self.tokenizer.decode(self.arrays.ids[start:stop].tolist()).strip("\N{REPLACEMENT CHARACTER}")


@dataclass(frozen=True)
class Surprise:
    """The surprise of several texts, each by itself."""

    scores: Scores
    """The scores of the same texts, as `score_texts` gives them."""
    texts: list[TextSurprise]


def surprise_of_texts(
    model: GPT,
    tokenizer: Tokenizer,
    texts: str | Path | Sequence[str | Path],
    data: DataConfig,
    stride: int | None = None,
    *,
    unknown: Unknown = "error",
    on_progress: OnProgress = lambda _stage, _done, _total: None,
) -> Surprise:
    """Score texts token by token, in the windows of `score_texts`, whose arguments and errors it shares.

    It keeps some 50 bytes for each token.
    """
    found: list[TokenArrays] = []

    def scorer(model: GPT, windows: Iterator[ScoredWindow], on_windows: OnWindows) -> tuple[float, int]:
        arrays = _token_arrays(model, tokenizer.vocab_size, windows, on_windows)
        scored = arrays.logprobs[~np.isnan(arrays.logprobs)]
        found.append(arrays)
        return -math.fsum(scored.tolist()), len(scored)

    scores = score_texts(model, tokenizer, texts, data, stride, unknown=unknown, on_progress=on_progress, scorer=scorer)
    both = zip(scores.texts, found, strict=True)
    return Surprise(scores, [TextSurprise(score, tokenizer, arrays) for score, arrays in both])


def _token_arrays(model: GPT, vocab_size: int, windows: Iterator[ScoredWindow], on_windows: OnWindows) -> TokenArrays:
    """All tokens of a text."""
    parts: list[TokenArrays] = []
    passed = 0
    for batch in window_batches(windows, BATCH_TOKENS[model.wte.weight.device.type]):
        figures = _figures(model, vocab_size, batch)
        parts += (
            _new_tokens(window, *figure) for window, figure in zip(batch, zip(*figures, strict=True), strict=True)
        )
        passed += len(batch)
        on_windows(passed, batch[-1])
    columns = zip(*(vars(part).values() for part in parts), strict=True)
    return TokenArrays(*(np.concatenate(column) for column in columns))


def _new_tokens(window: ScoredWindow, own: np.ndarray, ids: np.ndarray, logprobs: np.ndarray) -> TokenArrays:
    """The tokens that no earlier window has, from the figures of the scored ones: (S,), (S, K), (S, K)."""
    unscored = ((window.first_scored - window.first_new, 0),)
    return TokenArrays(
        window.ids[window.first_new :].astype(np.int32),
        np.pad(own, unscored, constant_values=np.nan),
        np.pad(ids, (*unscored, (0, 0))),
        np.pad(logprobs, (*unscored, (0, 0)), constant_values=np.nan),
    )


@torch.inference_mode()
def _figures(model: GPT, vocab_size: int, windows: list[ScoredWindow]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of windows of equal shape: log-probabilities of the scored tokens (B, S), alternatives and theirs (B, S, K)."""
    device, skipped = model.wte.weight.device, windows[0].first_scored
    batch = to_device(torch.from_numpy(np.stack([window.ids for window in windows])), device)  # (B, T)
    targets = batch[:, skipped:].flatten()  # (B·S,)
    hidden = model.hidden(batch[:, :-1])[:, skipped - 1 :] if len(targets) else model.wte(batch)[:, :0]  # (B, S, C)
    own, ids, logprobs = [], [], []
    rows = max(1, LOGITS_AT_ONCE // model.config.vocab_size)
    for states, answers in zip(torch.split(hidden.flatten(0, 1), rows), torch.split(targets, rows), strict=True):
        every = log_probabilities(model.head(states))  # (n, V)
        values, likely = likeliest(every, ALTERNATIVES, vocab_size)  # 2 of (n, K)
        own.append(every.gather(1, answers[:, None])[:, 0])
        ids.append(likely.int())
        logprobs.append(values)
    B = len(windows)
    return _rows(own, B), _rows(ids, B), _rows(logprobs, B)


def _rows(parts: list[Tensor], windows: int) -> np.ndarray:
    """Parts (n, ...) of the figures of all windows → (B, S, ...) on the host."""
    whole = torch.cat(parts)
    found: np.ndarray = whole.reshape(windows, len(whole) // windows, *whole.shape[1:]).cpu().numpy()
    return found
