"""How well a model predicts texts: loss, perplexity, bits per byte and per character.

The windows are those of transformers' page on perplexity, so that the figures are the same for the same stride: windows
of one context length begin every `stride` tokens, and each scores the tokens that no earlier window has scored. With
overlap every token but the first of a text has context; without, the first token of each window has none and is left
out.

Letters: B windows, T tokens of a window, C width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import torch

from gptcli.checkpoints.model_folder import LoadedModel
from gptcli.dataset.corpus import scan
from gptcli.dataset.plain_text import read_text
from gptcli.dataset.preparing import OnProgress
from gptcli.dataset.sources import Source, find_texts, naming
from gptcli.errors import CorpusError, UsageError
from gptcli.model.gpt import GPT
from gptcli.model.loss import bits_per_unit, perplexity
from gptcli.tokenizer.tokenizer import Tokenizer

BATCH_TOKENS = 4096
"""Tokens that go through the model at once."""


@dataclass(frozen=True)
class ScoredWindow:
    """Tokens `begin` … `end` - 1 go through the model; those from `first_scored` on are scored."""

    begin: int
    end: int
    first_scored: int


@dataclass(frozen=True)
class Score:
    """The result for one text, or for several together."""

    name: str
    tokens: int
    scored: int
    """Tokens that were predicted and counted."""
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
        """e to the loss; infinite where that exceeds a float."""
        return perplexity(self.loss)

    @property
    def bits_per_byte(self) -> float:
        """Bits per byte of text: each token stands for the same number of bytes, scored or not."""
        return bits_per_unit(self.loss, self.tokens, self.bytes)

    @property
    def bits_per_character(self) -> float:
        """Bits per character of text."""
        return bits_per_unit(self.loss, self.tokens, self.characters)


def strided_windows(tokens: int, context: int, stride: int) -> Iterator[ScoredWindow]:
    """The windows over a text.

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
    """The result of `score_texts`."""

    run: Path
    context: int
    stride: int
    texts: list[Score]
    notes: tuple[str, ...]
    """What was passed over or left out, in sentences."""

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
    folder: LoadedModel,
    texts: Sequence[str],
    include: Sequence[str],
    stride: int | None,
    *,
    skip_unknown: bool,
    on_progress: OnProgress = lambda _stage, _done, _total: None,
) -> Scores:
    """Score texts, each by itself; `stride` None is half a context. `on_progress` learns of the bytes that are scored.

    Raises UsageError for a context of one token or a stride beyond the context, CorpusError for what is no text or too
    short, and TokenizerError for characters that the model does not know, unless they are skipped.
    """
    context = folder.model.config.block_size
    if context < 2:
        raise UsageError("With a context of 1 no token is predicted from another.", "Use a context of 2 or more.")
    chosen = max(1, context // 2) if stride is None else stride
    if chosen > context:
        raise UsageError(
            f"A stride of {chosen:,} leaves tokens out: the context is {context:,}.", f"Use --stride {context} at most."
        )
    with find_texts(texts, include) as files:
        look = scan(files, lambda _count: None)
        scores, before = [], 0
        notes = list(look.notes)
        for text in look.documents:

            def on_share(share: float, before: int = before, size: int = text.bytes) -> None:
                on_progress("scoring", before + int(share * size), look.bytes)

            scores.append(score_text(folder, text.source, chosen, skip_unknown=skip_unknown, on_share=on_share))
            before += text.bytes
            if left_out := text.characters - scores[-1].characters:
                told = f"{left_out:,} of {text.characters:,} characters left out, which the tokenizer does not know"
                notes.append(f"{text.source.label}: {told}.")
    return Scores(folder.path, context, chosen, scores, tuple(notes))


def score_text(
    folder: LoadedModel, file: Source, stride: int, *, skip_unknown: bool, on_share: Callable[[float], None]
) -> Score:
    """Score one text by itself, and tell `on_share` how much of it is done; raises as `score_texts` does."""
    pieces = list(read_text(file, lambda _count: None))
    if skip_unknown:
        pieces = list(map(folder.tokenizer.known_part, pieces))
    with naming(file):
        ids = _encode(folder.tokenizer, pieces)
    if len(ids) < 2:
        raise CorpusError(f"{file.label} is too short: there is no token to predict from another.", "Use more text.")
    windows = list(strided_windows(len(ids), folder.model.config.block_size, stride))
    nats = []
    for batch in _batches(windows):
        nats.append(_nats(folder.model, ids, batch))
        on_share(batch[-1].end / len(ids))
    return Score(
        name=file.name,
        tokens=len(ids),
        scored=sum(window.end - window.first_scored for window in windows),
        characters=sum(map(len, pieces)),
        bytes=sum(len(piece.encode()) for piece in pieces),
        nats=math.fsum(nats),
    )


def figures(score: Score) -> dict[str, float | int | str]:
    """The score for programs."""
    return {
        "name": score.name,
        "tokens": score.tokens,
        "scored": score.scored,
        "characters": score.characters,
        "bytes": score.bytes,
        "loss": score.loss,
        "perplexity": score.perplexity,
        "bits_per_byte": score.bits_per_byte,
        "bits_per_character": score.bits_per_character,
    }


def _encode(tokenizer: Tokenizer, pieces: list[str]) -> np.ndarray:
    return np.concatenate(
        [part.astype(np.int64) for part in tokenizer.encode_pieces(pieces)] or [np.empty(0, np.int64)]
    )


def _batches(windows: list[ScoredWindow]) -> Iterator[list[ScoredWindow]]:
    """Windows of equal shape together, at most `BATCH_TOKENS` tokens in each batch."""
    for (length, _), alike in groupby(windows, lambda w: (w.end - w.begin, w.first_scored - w.begin)):
        group = list(alike)
        size = max(1, BATCH_TOKENS // length)
        yield from (group[start : start + size] for start in range(0, len(group), size))


@torch.inference_mode()
def _nats(model: GPT, ids: np.ndarray, windows: list[ScoredWindow]) -> float:
    """Summed cross-entropy of windows of equal shape."""
    device = model.wte.weight.device
    batch = torch.from_numpy(np.stack([ids[w.begin : w.end] for w in windows])).to(device)  # (B, T)
    skipped = windows[0].first_scored - windows[0].begin  # tokens before the first that is scored
    if skipped >= batch.shape[1]:
        return 0.0
    hidden = model.hidden(batch[:, :-1])[:, skipped - 1 :]  # (B, scored, C)
    return model.summed_loss(hidden, batch[:, skipped:]).item()
