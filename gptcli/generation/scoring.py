"""Scoring texts with a model: loss, perplexity, bits per byte and per character.

The windows are those of transformers' page on perplexity, so that the same stride gives the same figures: windows of
one context length start every `stride` tokens, and each scores the tokens that no earlier window has scored. With
overlap every token but the first of a text has context; without overlap the first token of each window has none and is
not scored.

A text is read twice, piece by piece: once to check and count it, once to score it. Only one batch of windows is in
memory, however long the text is.

Letters: B windows, T tokens of a window, C width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gptcli.config import DataConfig
from gptcli.dataset.corpus import Corpus
from gptcli.dataset.finding import find_sources
from gptcli.dataset.scanning import scan
from gptcli.dataset.sources import OnProgress, Source, naming
from gptcli.errors import CorpusError, UsageError
from gptcli.model.devices import to_device
from gptcli.model.gpt import GPT
from gptcli.model.loss import bits_per_unit, perplexity
from gptcli.paths import text_paths
from gptcli.tokenizer import Unknown
from gptcli.tokenizer.tokenizer import Tokenizer

BATCH_TOKENS = {"cpu": 1 << 12, "cuda": 1 << 14, "mps": 1 << 13}
"""Tokens per forward pass, at most, by device type."""
LOSSES_AT_ONCE = 256
"""Batches whose losses are read from the device together: each time the host waits for it."""
PART_TOKENS = 1 << 16
"""Tokens that are cut into windows at once."""


@dataclass(frozen=True)
class ScoredWindow:
    """A forward pass over tokens, of which those from `first_scored` on are scored."""

    ids: np.ndarray
    """int64 (T,)."""
    first_scored: int
    """Its place in the window; T if none is scored."""
    first_new: int = 0
    """Place of the first token that no earlier window has."""

    @property
    def scored(self) -> int:
        """The number of scored tokens."""
        return len(self.ids) - self.first_scored


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


def strided_windows(parts: Iterable[np.ndarray], context: int, stride: int) -> Iterator[ScoredWindow]:
    """The windows over the ids of a text, which come in parts of any length.

    >>> windows = strided_windows([np.arange(5), np.arange(5, 7)], context=4, stride=2)
    >>> [(w.ids.tolist(), w.first_scored) for w in windows]
    [([0, 1, 2, 3], 1), ([2, 3, 4, 5], 2), ([4, 5, 6], 2)]
    """
    held, first_scored, first_new = np.empty(0, dtype=np.int64), 1, 0  # the tokens from the next window on
    for part in parts:
        for start in range(0, len(part), PART_TOKENS):
            held = np.concatenate((held, part[start : start + PART_TOKENS].astype(np.int64)))
            while len(held) > context:
                yield ScoredWindow(held[:context], first_scored, first_new)
                held, first_scored, first_new = held[stride:], max(1, context - stride), context - stride
    if len(held):
        yield ScoredWindow(held, first_scored, first_new)


OnWindows = Callable[[int, ScoredWindow], None]
"""Called with the number of windows so far and the last of them."""
WindowScorer = Callable[[GPT, Iterator[ScoredWindow], OnWindows], tuple[float, int]]
"""Scores the windows of a text: summed cross-entropy in nats, and the number of scored tokens."""


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
    data: DataConfig,
    stride: int | None = None,
    *,
    unknown: Unknown = "error",
    on_progress: OnProgress = lambda _stage, _done, _total: None,
    scorer: WindowScorer | None = None,
) -> Scores:
    """Score text files, or `-` for standard input, each by itself.

    `data` says which files folders give and how they are read, as for `train`. `stride` None is half a context.
    `on_progress` is called with "scoring", the bytes scored so far, and all bytes. `scorer` is called with the windows
    of each text in place of the sum of their losses.

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
    with find_sources(text_paths(texts), data, on_progress) as found:
        corpus = scan(found, lambda _count: None, skip_unknown=tokenizer if unknown == "skip" else None)
        scores = list[Score]()
        for source in corpus.sources:
            before = sum(score.bytes for score in scores)

            def on_bytes(count: int, before: int = before) -> None:
                on_progress("scoring", before + count, corpus.bytes)

            with naming(source):
                size = _size(tokenizer, corpus, source)
            windows = _windows(tokenizer, corpus, source, size, context, chosen)
            on_windows = _in_bytes(on_bytes, size, chosen)
            nats, scored = (scorer or _score_windows)(model, windows, on_windows)
            scores.append(Score(source.name, size.tokens, scored, size.characters, size.bytes, nats))
    return Scores(context, chosen, scores, corpus.notes)


@dataclass(frozen=True)
class _Size:
    tokens: int
    characters: int
    bytes: int


def _size(tokenizer: Tokenizer, corpus: Corpus, source: Source) -> _Size:
    """The size of a source's text. Raises TokenizerError for a character that the tokenizer does not know."""
    characters = size = 0

    def pieces() -> Iterator[str]:
        nonlocal characters, size
        for piece in chain.from_iterable(corpus.read(source)):
            characters += len(piece)
            size += len(piece.encode())
            yield piece

    tokens = sum(len(part) for part in tokenizer.encode_pieces(pieces()))
    return _Size(tokens, characters, size)


def _windows(
    tokenizer: Tokenizer, corpus: Corpus, source: Source, size: _Size, context: int, stride: int
) -> Iterator[ScoredWindow]:
    """The windows over the text of one source. Raises CorpusError for a text of one token."""
    if size.tokens < 2:
        raise CorpusError(f"{source.label} is too short: no token is predicted from another.", "Use more text.")
    return strided_windows(tokenizer.encode_pieces(chain.from_iterable(corpus.read(source))), context, stride)


def _in_bytes(on_bytes: Callable[[int], None], size: _Size, stride: int) -> OnWindows:
    """A callback for windows that calls `on_bytes` with the bytes scored so far."""

    def on_windows(count: int, last: ScoredWindow) -> None:
        end = (count - 1) * stride + len(last.ids)
        on_bytes(int(end / size.tokens * size.bytes))

    return on_windows


def _score_windows(model: GPT, windows: Iterator[ScoredWindow], on_windows: OnWindows) -> tuple[float, int]:
    """Summed cross-entropy of windows in nats, and how many tokens are scored."""
    weight, nats, scored, passed, batches = model.wte.weight, list[float](), 0, 0, 0
    kept = torch.zeros(LOSSES_AT_ONCE, dtype=torch.promote_types(weight.dtype, torch.float32), device=weight.device)
    for batch in window_batches(windows, BATCH_TOKENS[weight.device.type]):
        kept[batches % LOSSES_AT_ONCE] = _nats(model, batch)
        batches += 1
        if batches % LOSSES_AT_ONCE == 0:
            nats += kept.tolist()
        scored += sum(window.scored for window in batch)
        passed += len(batch)
        on_windows(passed, batch[-1])
    nats += kept[: batches % LOSSES_AT_ONCE].tolist()
    return math.fsum(nats), scored


def window_batches(windows: Iterator[ScoredWindow], tokens: int) -> Iterator[list[ScoredWindow]]:
    """Batches of windows of equal shape, with at most `tokens` tokens each."""
    for (length, _), alike in groupby(windows, lambda window: (len(window.ids), window.first_scored)):
        while batch := list(islice(alike, max(1, tokens // length))):
            yield batch


@torch.inference_mode()
def _nats(model: GPT, windows: list[ScoredWindow]) -> Tensor:
    """Summed cross-entropy () of windows of equal shape, in nats."""
    device, skipped = model.wte.weight.device, windows[0].first_scored
    batch = to_device(torch.from_numpy(np.stack([window.ids for window in windows])), device)  # (B, T)
    if skipped >= batch.shape[1]:
        return torch.zeros((), device=device)
    hidden = model.hidden(batch[:, :-1])[:, skipped - 1 :]  # (B, scored, C)
    return model.summed_loss(hidden, batch[:, skipped:])
