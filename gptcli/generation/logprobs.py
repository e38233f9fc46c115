"""The probabilities of tokens under a model, beside those of the tokens that it finds most likely.

All are natural logarithms of the model's own probabilities: its softmax over all ids, before temperature and filters.

Letters: B samples, V vocabulary, K alternatives, T steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gptcli.tokenizer.document import END_OF_TEXT
from gptcli.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Candidate:
    """A token at one position, and how likely the model finds it there."""

    id: int
    text: str
    """Its bytes as text: an incomplete character is U+FFFD. `<|endoftext|>` has this name, and no bytes."""
    bytes: bytes
    logprob: float
    """Natural logarithm of its probability; NaN for a token that nothing precedes."""

    @property
    def probability(self) -> float:
        """Between 0 and 1."""
        return math.exp(self.logprob)

    @property
    def bits(self) -> float:
        """Its surprise: the negative binary logarithm of its probability."""
        return 0.0 - self.logprob / math.log(2)


@dataclass(frozen=True)
class TokenLogprob(Candidate):
    """A token of a text, with the most likely tokens at its position."""

    alternatives: tuple[Candidate, ...]
    """The most likely tokens, likeliest first; the token itself may be among them."""


def log_probabilities(logits: Tensor) -> Tensor:
    """Logits (..., V) → natural log-probabilities (..., V), in float32 or float64, in new memory."""
    return logits.log_softmax(dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))


def likeliest(logprobs: Tensor, count: int, vocab_size: int) -> tuple[Tensor, Tensor]:
    """The most likely ids of a tokenizer: (..., V) → log-probabilities and ids (..., K), likeliest first.

    K is `count`, or `vocab_size` if that is less. Rows beyond the tokenizer's `vocab_size` ids are no tokens.
    """
    values, ids = logprobs[..., :vocab_size].topk(min(count, vocab_size), dim=-1)
    return values, ids


def candidate(tokenizer: Tokenizer, token: int, logprob: float) -> Candidate:
    """The candidate of one id."""
    content = tokenizer.token_bytes(token)
    return Candidate(token, _text(tokenizer, token, content), content, logprob)


def token_logprob(
    tokenizer: Tokenizer, token: int, logprob: float, ids: Sequence[int], logprobs: Sequence[float]
) -> TokenLogprob:
    """A token with the alternatives `ids`, whose log-probabilities are `logprobs`."""
    alternatives = tuple(candidate(tokenizer, *other) for other in zip(ids, logprobs, strict=True))
    content = tokenizer.token_bytes(token)
    return TokenLogprob(token, _text(tokenizer, token, content), content, logprob, alternatives)


def _text(tokenizer: Tokenizer, token: int, content: bytes) -> str:
    return END_OF_TEXT if token == tokenizer.end_of_text else content.decode(errors="replace")


class LogprobRecord:
    """What a model found likely at each step of generation.

    The figures stay on the device until a sample ends, so that no step waits for them.
    """

    def __init__(self, tokenizer: Tokenizer, count: int) -> None:
        """`count`: alternatives of each token."""
        self._tokenizer, self._count = tokenizer, count
        self._waiting: list[tuple[Tensor, Tensor]] = []  # of each step: ids and log-probabilities, (B, 1 + K)
        self._ids: list[list[list[int]]] = []  # (T, B, 1 + K), the generated token first
        self._logprobs: list[list[list[float]]] = []  # (T, B, 1 + K)

    @torch.inference_mode()
    def add(self, logprobs: Tensor, tokens: Tensor) -> None:
        """Record a step: log-probabilities (B, V), generated tokens (B, 1)."""
        values, ids = likeliest(logprobs, self._count, self._tokenizer.vocab_size)  # 2 of (B, K)
        chosen = logprobs.gather(1, tokens)  # (B, 1)
        self._waiting.append((torch.cat((tokens, ids), dim=1), torch.cat((chosen, values), dim=1)))

    def of_sample(self, index: int, tokens: int) -> tuple[TokenLogprob, ...]:
        """The first `tokens` tokens of sample number `index`."""
        if self._waiting:
            ids, logprobs = zip(*self._waiting, strict=True)
            self._ids += torch.stack(ids).tolist()
            self._logprobs += torch.stack(logprobs).tolist()
            self._waiting.clear()
        steps = zip(self._ids[:tokens], self._logprobs[:tokens], strict=True)
        rows = ((ids[index], logprobs[index]) for ids, logprobs in steps)
        return tuple(token_logprob(self._tokenizer, ids[0], own[0], ids[1:], own[1:]) for ids, own in rows)
