"""Choosing the next token of each sequence in a batch, each with its own stream of random numbers.

Letters: B sequences, V vocabulary, P prompt tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor

from gptcli.config import SamplingConfig
from gptcli.generation import filters

DRAWS_AHEAD = 256
"""Random numbers drawn at once for each sequence, which saves a generator call per step."""


class Sampler:
    """Chooses tokens for `config.num_samples` sequences by the config's filters; sequence i has the seed `seed + i`.

    `allowed`, bool (V,), marks the ids that may be chosen. No step waits for the device.
    """

    def __init__(self, config: SamplingConfig, allowed: Tensor, prompt: Tensor, device: torch.device) -> None:
        """`prompt` (1, P): its tokens count as seen for the repetition penalty."""
        self._config = config
        self._ceiling = torch.where(allowed, math.inf, -math.inf).to(device)  # (V)
        B = config.num_samples
        self._streams = [torch.Generator().manual_seed(config.seed + row) for row in range(B)]
        self._uniform = torch.empty(B, 0, dtype=torch.float64)  # (B, DRAWS_AHEAD)
        self._next = 0
        self._device = device
        self._seen: Tensor | None = None
        if config.repetition_penalty != 1:
            seen = torch.zeros(B, allowed.numel(), dtype=torch.bool, device=device)  # (B, V)
            self._seen = seen.scatter_(1, prompt.to(device).expand(B, -1), True)

    @torch.inference_mode()
    def choose(self, logits: Tensor) -> Tensor:
        """Choose the next tokens: logits (B, V) → (B, 1). The logits are overwritten."""
        if logits.dtype in (torch.bfloat16, torch.float16):
            logits = logits.float()
        logits = torch.minimum(logits, self._ceiling, out=logits)  # (B, V)
        if self._seen is not None:
            logits = filters.penalize_repetition(logits, self._seen, self._config.repetition_penalty)  # (B, V)
        greedy = self._config.temperature == 0
        with nullcontext() if greedy else _any_algorithm():
            tokens = logits.argmax(dim=-1, keepdim=True) if greedy else self._drawn(logits)  # (B, 1)
        if self._seen is not None:
            self._seen.scatter_(1, tokens, True)
        return tokens

    def _drawn(self, logits: Tensor) -> Tensor:
        config, ids = self._config, None
        if logits.device.type == "mps":
            logits = logits.cpu()  # Apple's GPUs have no float64
        if 0 < config.top_k < logits.shape[-1]:
            # Before the temperature, which keeps the order: the same result for less work.
            logits, ids = filters.top_k_candidates(logits, config.top_k)  # 2 of (B, K)
        logits = filters.apply_temperature(logits, config.temperature)  # (B, K)
        if config.top_p < 1:
            logits = filters.keep_top_p(logits, config.top_p)
        if config.min_p > 0:
            logits = filters.keep_min_p(logits, config.min_p)
        position = filters.draw(logits, self._uniforms())  # (B, 1)
        tokens = position if ids is None else ids.gather(1, position)  # (B, 1)
        return tokens if tokens.device == self._device else tokens.to(self._device)

    def _uniforms(self) -> Tensor:
        """The next random number of each sequence, (B, 1)."""
        if self._next == self._uniform.shape[1]:
            drawn = [torch.rand(DRAWS_AHEAD, generator=stream, dtype=torch.float64) for stream in self._streams]
            self._uniform = torch.stack(drawn)  # (B, DRAWS_AHEAD)
            if self._device.type == "cuda":  # not to MPS, which has no float64
                self._uniform = self._uniform.to(self._device)
            self._next = 0
        self._next += 1
        return self._uniform[:, self._next - 1 : self._next]


@contextmanager
def _any_algorithm() -> Iterator[None]:
    """A context for CUDA's cumulative sum, which is not deterministic.

    Training with `train.deterministic` lets torch refuse such operations, in the whole process.
    """
    was_strict = torch.are_deterministic_algorithms_enabled()
    if was_strict:
        torch.use_deterministic_algorithms(False)
    try:
        yield
    finally:
        if was_strict:
            torch.use_deterministic_algorithms(True)
