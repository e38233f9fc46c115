"""The logit lens, a prediction after each block of a model; and the tokens that are closest in its embedding.

Letters: L layers, T tokens, C width, V vocabulary, K alternatives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gptcli.errors import UsageError
from gptcli.generation.logprobs import Candidate, candidate, likeliest, log_probabilities
from gptcli.generation.residual import cut, residual_stream
from gptcli.model.gpt import GPT
from gptcli.tokenizer.tokenizer import Tokenizer

ALTERNATIVES = 3
NEIGHBORS = 10


@dataclass(frozen=True)
class Prediction:
    """The prediction of the next token at one position, after one block."""

    likeliest: tuple[Candidate, ...]
    """The most likely tokens, likeliest first."""
    logprob: float
    """Natural log-probability of the token that does come next; NaN after the last one."""


@dataclass(frozen=True)
class LogitLens:
    """The logit lens (nostalgebraist 2020, "interpreting GPT: the logit lens").

    The output head reads the residual stream where it is, as if the model ended there.
    """

    tokens: tuple[Candidate, ...]
    """The T tokens of the text, without log-probabilities (NaN)."""
    layers: tuple[tuple[Prediction, ...], ...]
    """L + 1 rows of T predictions: of the embeddings, and after each block. The last row is the model's own."""
    notes: tuple[str, ...] = ()
    """A sentence where the text was cut."""


@dataclass(frozen=True)
class Neighbor:
    token: Candidate
    similarity: float
    """Cosine between the embeddings, -1 to 1."""


@dataclass(frozen=True)
class Neighbors:
    """The tokens whose embeddings are closest to that of a token, closest first."""

    token: Candidate
    nearest: tuple[Neighbor, ...]


@torch.inference_mode()
def logit_lens(model: GPT, tokenizer: Tokenizer, ids: list[int]) -> LogitLens:
    """The prediction after each block, for the first tokens of a text."""
    ids, notes = cut(model, ids)
    states, _ = residual_stream(model, ids)
    return LogitLens(
        tokens=tuple(candidate(tokenizer, token, math.nan) for token in ids),
        layers=tuple(_predictions(model, tokenizer, state[0], ids[1:]) for state in states),
        notes=notes,
    )


def _predictions(model: GPT, tokenizer: Tokenizer, state: Tensor, following: list[int]) -> tuple[Prediction, ...]:
    """The predictions at each position of (T, C), of whose next tokens T - 1 are known."""
    logprobs = log_probabilities(model.head(model.final_norm(state)))  # (T, V)
    values, ids = likeliest(logprobs, ALTERNATIVES, tokenizer.vocab_size)  # 2 of (T, K)
    known = torch.tensor(following, dtype=torch.long, device=logprobs.device)
    own = [*logprobs[: len(known)].gather(1, known[:, None])[:, 0].tolist(), math.nan]
    rows = zip(ids.tolist(), values.tolist(), own, strict=True)
    return tuple(
        Prediction(tuple(candidate(tokenizer, *one) for one in zip(tokens, figures, strict=True)), logprob)
        for tokens, figures, logprob in rows
    )


@torch.inference_mode()
def neighbors(model: GPT, tokenizer: Tokenizer, ids: list[int]) -> Neighbors:
    """The tokens closest to a token in the embedding. Raises UsageError if `ids` are several tokens.

    Ids that no text has, whose embeddings were never trained, are left out.
    """
    if len(ids) != 1:
        parts = ", ".join(repr(tokenizer.decode([token])) for token in ids[:8]) + (", …" if len(ids) > 8 else "")
        hint = "Give one of them; a word often begins with a space."
        raise UsageError(f"The text has {len(ids):,} tokens, not one: {parts}.", hint)
    [token] = ids
    rows = model.wte.weight[: tokenizer.vocab_size]  # (V, C)
    rows = torch.nn.functional.normalize(rows.to(torch.promote_types(rows.dtype, torch.float32)), dim=1)
    similarity = rows @ rows[token]  # (V)
    left_out = ~torch.as_tensor(tokenizer.emittable, device=similarity.device)
    left_out[token] = True
    similarity = similarity.masked_fill(left_out, -math.inf)
    values, nearest = similarity.topk(min(NEIGHBORS, int((~left_out).sum())))
    found = zip(nearest.tolist(), values.tolist(), strict=True)
    return Neighbors(
        candidate(tokenizer, token, math.nan),
        tuple(Neighbor(candidate(tokenizer, other, math.nan), value) for other, value in found),
    )
