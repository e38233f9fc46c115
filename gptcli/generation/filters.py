"""From logits to a token: the sampling filters of transformers, in its order and with its meaning.

    repetition penalty → temperature → top-k → top-p → min-p → softmax → draw

Each is a pure function over the rows of a batch. A removed token has the logit -inf.

Letters: B sequences, V vocabulary, K candidates: V, or the k of top-k.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import accumulate

import torch
from torch import Tensor

SAFE_TEMPERATURE = 1e-3
"""From this temperature on, logits divided by it stay far below the largest float32."""
FEW = 256
"""Candidates of all rows up to which plain Python draws faster than torch, whose calls cost more."""
NUCLEUS = 1024
"""Likeliest tokens that top-p tries on a CPU before it sorts the whole vocabulary."""


def penalize_repetition(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Make seen tokens less likely: logits (B, V), seen bool (B, V) → (B, V). Keskar et al. 2019 (CTRL).

    A positive logit is divided by the penalty and a negative one multiplied by it, so that a penalty of 1 changes
    nothing and a larger one always makes a token less likely.
    """
    return torch.where(seen, torch.where(logits < 0, logits * penalty, logits / penalty), logits)


def top_k_candidates(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k most likely tokens: logits (B, V) → their logits (B, K) and ids (B, K), in the order of the vocabulary.

    Later filters then work on K numbers per row instead of V. Exactly k tokens stay, also where the last ones tie.
    """
    ids = logits.topk(k, dim=-1, sorted=False).indices.sort(dim=-1).values  # (B, K)
    return logits.gather(-1, ids), ids


def apply_temperature(logits: Tensor, temperature: float) -> Tensor:
    """Sharpen (below 1) or flatten (above 1) the distribution: (B, K) → (B, K), for a temperature above 0.

    Where a quotient could overflow, the largest logit is first shifted to 0, which changes no probability. A
    temperature outside the range of the dtype is clamped to it.
    """
    if temperature < SAFE_TEMPERATURE:
        logits = logits - logits.amax(dim=-1, keepdim=True)
    limits = torch.finfo(logits.dtype)
    return logits / min(max(temperature, limits.tiny), limits.max)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Keep the fewest most likely tokens whose probabilities reach p: (B, K) → (B, K). Holtzman et al. 2019.

    >>> keep_top_p(torch.tensor([[0.5, 0.3, 0.2]]).log(), 0.6).exp()
    tensor([[0.5000, 0.3000, 0.0000]])
    """
    likeliest, ids = _likeliest(logits.softmax(dim=-1), p)  # 2 of (B, up to K)
    remove = likeliest.cumsum(dim=-1) - likeliest >= p  # (B, up to K), those after p is reached
    remove[..., 0] = False
    remove = torch.ones_like(logits, dtype=torch.bool).scatter_(-1, ids, remove)  # (B, K)
    return logits.masked_fill(remove, float("-inf"))


def _likeliest(probabilities: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """Enough of the most likely tokens to reach p, likeliest first: (B, K) → probabilities and ids (B, up to K).

    A CPU takes 20 times as long to sort a vocabulary of 50,000 as to find its likeliest thousand, which are nearly
    always enough. A GPU sorts faster than the host could wait for the answer whether they are.
    """
    if probabilities.device.type == "cpu" and probabilities.shape[-1] > NUCLEUS:
        likeliest, ids = probabilities.topk(NUCLEUS, dim=-1)  # 2 of (B, NUCLEUS)
        if likeliest.sum(dim=-1).min() >= p:
            return likeliest, ids
    return probabilities.sort(dim=-1, descending=True)


def keep_min_p(logits: Tensor, p: float) -> Tensor:
    """Keep tokens at least p times as likely as the most likely one: (B, K) → (B, K), p > 0. Nguyen et al. 2024.

    >>> keep_min_p(torch.tensor([[0.5, 0.3, 0.2]]).log(), 0.5).exp()
    tensor([[0.5000, 0.3000, 0.0000]])
    """
    threshold = logits.amax(dim=-1, keepdim=True) + math.log(p)  # (B, 1)
    return logits.masked_fill(logits < threshold, float("-inf"))


def draw(logits: Tensor, uniform: Tensor) -> Tensor:
    """Draw one candidate per row: logits (B, K), uniform numbers in [0, 1) (B, 1) → positions (B, 1).

    The inverse of the cumulative distribution in float64: the first candidate whose cumulative probability exceeds the
    uniform number. A draw depends only on the logits and the number of its own row.
    """
    if logits.device.type == "cpu" and logits.numel() <= FEW:
        return _draw_from_few(logits, uniform)
    cumulative = logits.softmax(dim=-1, dtype=torch.float64).cumsum(dim=-1)  # (B, K)
    position = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True)  # (B, 1)
    return position.clamp_(max=logits.shape[-1] - 1)  # NaN sorts last: a broken model must not index past the end


def _draw_from_few(logits: Tensor, uniform: Tensor) -> Tensor:
    """`draw` in plain Python, which is faster than torch for a few numbers."""
    positions = []
    for row, (number,) in zip(logits.tolist(), uniform.tolist(), strict=True):
        largest = max(row)
        cumulative = list(accumulate([math.exp(value - largest) for value in row]))
        positions.append([min(bisect_right(cumulative, number * cumulative[-1]), len(row) - 1)])
    return torch.tensor(positions)  # (B, 1)
