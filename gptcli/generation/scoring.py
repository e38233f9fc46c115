"""Scoring texts with a model: loss, perplexity, bits per byte and per character.

The windows are those of transformers' page on perplexity, so that the same stride gives the same figures: windows of
one context length start every `stride` tokens, and each scores the tokens that no earlier window has scored. With
overlap every token but the first of a text has context; without overlap the first token of each window has none and is
not scored.

Letters: B windows, T tokens of a window, C width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path

import numpy as np
import torch

from gptcli.config import DataConfig
from gptcli.dataset.corpus import scan
from gptcli.dataset.preparing import OnProgress
from gptcli.dataset.sources import find_sources, naming
from gptcli.errors import CorpusError, UsageError
from gptcli.model.gpt import GPT
from gptcli.model.loss import bits_per_unit, perplexity
from gptcli.paths import text_paths
from gptcli.tokenizer.bytelevel import Unknown
from gptcli.tokenizer.tokenizer import Tokenizer

BATCH_TOKENS = 4096
"""Tokens per forward pass, at most."""


@dataclass(frozen=True)
class ScoredWindow:
    """A forward pass over tokens `begin` … `end` - 1, of which those from `first_scored` on are scored."""

    begin: int
    end: int
    first_scored: int


@dataclass(frozen=True)
class Score:
    """The score of one text, or of several together."""

    name: str
    tokens: int
    scored: int
    """Tokens that were predicted from earlier ones and counted."""
    characters: int
    bytes: int
    nats: float
    """Summed cross-entropy of the scored tokens."""

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.nats / self.scored

    @property
    def perplexity(self) -> float:
        """e to the power of the loss; infinite where a float overflows."""
        return perplexity(self.loss)

    @property
    def bits_per_byte(self) -> float:
        """Bits per byte of text, as if unscored tokens had the average loss."""
        return bits_per_unit(self.loss, self.tokens, self.bytes)

    @property
    def bits_per_character(self) -> float:
        """Bits per character of text."""
        return bits_per_unit(self.loss, self.tokens, self.characters)


def strided_windows(tokens: int, context: int, stride: int) -> Iterator[ScoredWindow]:
    """The windows over a text of `tokens` tokens.

    >>> [(w.begin, w.end, w.first_scored) for w in strided_windows(7, 4, 2)]
    [(0, 4, 1), (2, 6, 4), (4, 7, 6)]
    """
    scored_to = 0
    for begin in range(0, tokens, stride):
        end = min(begin + context, tokens)
        yield ScoredWindow(begin, end, max(begin + 1, scored_to))
        scored_to = end
        if end == tokens:
            return


@dataclass(frozen=True)
class Scores:
    """The scores of several texts, each scored by itself."""

    context: int
    """Tokens in a full window."""
    stride: int
    """Tokens from the start of one window to the next."""
    texts: list[Score]
    notes: tuple[str, ...]
    """Sentences about files and characters that were skipped."""

    @property
    def total(self) -> Score:
        """All texts together."""
        scores = self.texts
        return Score(
            name="all",
            tokens=sum(score.tokens for score in scores),
            scored=sum(score.scored for score in scores),
            characters=sum(score.characters for score in scores),
            bytes=sum(score.bytes for score in scores),
            nats=math.fsum(score.nats for score in scores),
        )


def score_texts(
    model: GPT,
    tokenizer: Tokenizer,
    texts: str | Path | Sequence[str | Path],
    include: Sequence[str] | None = None,
    stride: int | None = None,
    *,
    unknown: Unknown = "error",
    on_progress: OnProgress = lambda _stage, _done, _total: None,
) -> Scores:
    """Score text files, or `-` for standard input, each by itself.

    Folders give the files that match the patterns `include`, by default those that `train` reads. `stride` None is half
    a context. `on_progress` is called with "scoring", the bytes scored so far, and all bytes.

    Raises UsageError for a context of one token or a stride beyond the context, CorpusError for files that are not text
    or too short, and TokenizerError for characters that the tokenizer does not know, unless `unknown` is "skip".
    """
    context = model.config.block_size
    if context < 2:
        raise UsageError("With a context of 1 token, no token is predicted from another.", "Use `context = 2` or more.")
    chosen = max(1, context // 2) if stride is None else stride
    if not 1 <= chosen <= context:
        raise UsageError(
            f"`stride` is {chosen:,}, and the context is {context:,} tokens.", f"Use `stride = {context}` at most."
        )
    patterns = DataConfig().include if include is None else include
    with find_sources(text_paths(texts), patterns) as sources:
        corpus = scan(sources, lambda _count: None, skip_unknown=tokenizer if unknown == "skip" else None)
        scores, before = [], 0
        for source in corpus.sources:
            pieces = list(chain.from_iterable(corpus.read(source)))
            size = sum(len(piece.encode()) for piece in pieces)

            def on_share(share: float, before: int = before, size: int = size) -> None:
                on_progress("scoring", before + int(share * size), corpus.bytes)

            with naming(source):
                ids = _encode(tokenizer, pieces)
            if len(ids) < 2:
                raise CorpusError(f"{source.label} is too short: no token is predicted from another.", "Use more text.")
            nats, scored = _score_ids(model, ids, chosen, on_share)
            scores.append(Score(source.name, len(ids), scored, sum(map(len, pieces)), size, nats))
            before += size
    return Scores(context, chosen, scores, corpus.notes)


def _score_ids(model: GPT, ids: np.ndarray, stride: int, on_share: Callable[[float], None]) -> tuple[float, int]:
    """Summed cross-entropy in nats of a text's ids, int64 (N,), and how many of them are scored."""
    windows = list(strided_windows(len(ids), model.config.block_size, stride))
    nats = []
    for batch in _batches(windows):
        nats.append(_nats(model, ids, batch))
        on_share(batch[-1].end / len(ids))
    return math.fsum(nats), sum(window.end - window.first_scored for window in windows)


def _encode(tokenizer: Tokenizer, pieces: list[str]) -> np.ndarray:
    return np.concatenate(
        [part.astype(np.int64) for part in tokenizer.encode_pieces(pieces)] or [np.empty(0, np.int64)]
    )


def _batches(windows: list[ScoredWindow]) -> Iterator[list[ScoredWindow]]:
    """Batches of windows of equal shape, with at most `BATCH_TOKENS` tokens each."""
    for (length, _), alike in groupby(windows, lambda w: (w.end - w.begin, w.first_scored - w.begin)):
        group = list(alike)
        size = max(1, BATCH_TOKENS // length)
        yield from (group[start : start + size] for start in range(0, len(group), size))


@torch.inference_mode()
def _nats(model: GPT, ids: np.ndarray, windows: list[ScoredWindow]) -> float:
    """Summed cross-entropy of windows of equal shape, in nats."""
    device = model.wte.weight.device
    batch = torch.from_numpy(np.stack([ids[w.begin : w.end] for w in windows])).to(device)  # (B, T)
    skipped = windows[0].first_scored - windows[0].begin  # tokens before the first that is scored
    if skipped >= batch.shape[1]:
        return 0.0
    hidden = model.hidden(batch[:, :-1])[:, skipped - 1 :]  # (B, scored, C)
    return model.summed_loss(hidden, batch[:, skipped:]).item()
