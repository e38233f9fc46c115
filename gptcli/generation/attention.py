"""The attention of each head of a model, computed the plain way: whole matrices, no fused kernel, no cache.

Letters: L layers, H heads, G key and value heads, T tokens, D head width, C width.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gptcli.errors import UsageError
from gptcli.generation.logprobs import Candidate, candidate
from gptcli.generation.residual import cut, residual_stream
from gptcli.model.gpt import GPT, Attention, Block
from gptcli.tokenizer.tokenizer import Tokenizer

MOST_OF_IT, SPREAD = 0.5, 0.75
"""Shares from which on a head is described by the token that it attends to, and by its entropy."""


@dataclass(frozen=True)
class HeadFigures:
    """Attention of one head in a few numbers: means over the tokens of a text but the first two."""

    layer: int
    head: int
    previous: float
    """Probability of the token before."""
    first: float
    """Probability of the first token of the text."""
    itself: float
    """Probability of the token itself."""
    entropy: float
    """Entropy in bits: 0 for a single token, log2(n) for n tokens alike."""
    most_entropy: float
    """Entropy in bits of equal attention to all tokens that the mask leaves."""
    distance: float
    """Distance in tokens, weighted by probability."""

    @property
    def looks_at(self) -> str:
        """`previous`, `first` or `itself` where most of the attention goes there; else `everything` or `mixed`."""
        share, name = max((getattr(self, name), name) for name in ("previous", "first", "itself"))
        if share >= MOST_OF_IT:
            return name
        return "everything" if self.entropy >= SPREAD * self.most_entropy else "mixed"


@dataclass(frozen=True, eq=False)
class AttentionMaps:
    """Attention of each layer and head for a text: how much token t (row) takes from token s (column)."""

    tokens: tuple[Candidate, ...]
    """The T tokens of the text, without log-probabilities (NaN)."""
    scores: np.ndarray
    """q · k / √D of every pair, before the mask, (L, H, T, T)."""
    visible: np.ndarray
    """Pairs that the mask of each layer leaves: no later token, none outside the window, bool (L, T, T)."""
    probabilities: np.ndarray
    """Softmax of the scores over the visible tokens, (L, H, T, T); each row sums to 1."""
    notes: tuple[str, ...] = ()
    """A sentence where the text was cut."""

    @property
    def layers(self) -> int:
        return len(self.scores)

    @property
    def heads(self) -> int:
        return int(self.scores.shape[1])

    def position(self, head: str) -> tuple[int, int]:
        """Layer and head of a name such as `0.2`. Raises UsageError for a head that the model does not have."""
        parts = [int(part) if part.isascii() and part.isdigit() else -1 for part in head.split(".")]
        if len(parts) != 2 or not (0 <= parts[0] < self.layers and 0 <= parts[1] < self.heads):
            hint = f"Use a layer and a head, from 0.0 to {self.layers - 1}.{self.heads - 1}."
            raise UsageError(f"`head = {head}` is no head of this model.", hint)
        return parts[0], parts[1]

    def figures(self, layer: int, head: int) -> HeadFigures:
        """The figures of one head."""
        T = len(self.tokens)
        rows = np.arange(min(2, T - 1), T)
        p = self.probabilities[layer, head]  # (T, T)
        bits = np.where(p > 0, -p * np.log2(np.where(p > 0, p, 1)), 0).sum(1)  # (T)
        distance = (p * (np.arange(T)[:, None] - np.arange(T))).sum(1)  # (T)
        return HeadFigures(
            layer=layer,
            head=head,
            previous=float(p[rows, rows - 1].mean()),
            first=float(p[rows, 0].mean()),
            itself=float(p[rows, rows].mean()),
            entropy=float(bits[rows].mean()),
            most_entropy=float(np.log2(self.visible[layer].sum(1))[rows].mean()),
            distance=float(distance[rows].mean()),
        )

    def every_head(self) -> Iterator[HeadFigures]:
        """The figures of all heads, layer by layer."""
        return (self.figures(layer, head) for layer in range(self.layers) for head in range(self.heads))


def attention_maps(model: GPT, tokenizer: Tokenizer, ids: list[int]) -> AttentionMaps:
    """Attention of the first tokens of a text. Raises UsageError for a text of less than two tokens."""
    if len(ids) < 2:
        raise UsageError("Attention needs a text of at least two tokens.", "Give a longer text.")
    ids, notes = cut(model, ids)
    states, rotation = residual_stream(model, ids)
    inputs = zip(model.h, states, strict=False)  # the last state is the last block's output
    scores, visible, probabilities = zip(*(_of_block(block, x, rotation) for block, x in inputs), strict=True)
    return AttentionMaps(
        tokens=tuple(candidate(tokenizer, token, math.nan) for token in ids),
        scores=np.stack(scores),
        visible=np.stack(visible),
        probabilities=np.stack(probabilities),
        notes=notes,
    )


@torch.inference_mode()
def _of_block(block: torch.nn.Module, x: Tensor, rotation: Tensor | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores (H, T, T), visible pairs (T, T) and probabilities (H, T, T) of a block with input (1, T, C)."""
    assert isinstance(block, Block)
    attention = dict(block.named_children())["attn"]  # `bind_submodules` leaves a function under its name
    assert isinstance(attention, Attention)
    q, k, _ = attention.heads(block.ln_1(x) if block.pre else x, rotation)  # (1, H, T, D), (1, G, T, D)
    exact = torch.promote_types(q.dtype, torch.float32)
    q, k = q[0].to(exact), k[0].to(exact).repeat_interleave(attention.n_head // attention.n_kv_head, dim=0)
    scores = q @ k.transpose(1, 2) / math.sqrt(attention.head_dim)  # (H, T, T)
    distance = torch.arange(q.shape[1])[:, None] - torch.arange(q.shape[1])  # (T, T)
    visible = (distance >= 0) & (distance < (attention.window or q.shape[1]))  # (T, T)
    probabilities = scores.masked_fill(~visible.to(scores.device), -math.inf).softmax(-1)  # (H, T, T)
    return scores.cpu().numpy(), visible.numpy(), probabilities.cpu().numpy()
