"""Decoding on a CUDA device, where some hundred small operations a token would wait for the host.

A step is recorded as a CUDA graph, which the host then starts with one call, and the ids of a step travel to the host
while the next one runs (as in gpt-fast, 2023).

Letters: B sequences, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gptcli.model.cache import CacheStep, KVCache
from gptcli.model.gpt import GPT

Step = Callable[[], Tensor]
"""Computes the same again on the same memory: nothing → logits (B, V), always the same tensor."""

FIRST_VISIBLE = 64
"""Cached tokens that the first recording attends to; each one after it attends to twice as many."""
TOKENS_BEFORE = 8
"""Recording takes about as long as so many steps; a shorter text does without."""


class RecordedSteps:
    """One token more for every sequence of a cache, by recordings for different numbers of cached tokens."""

    def __init__(self, model: GPT, cache: KVCache, batch_size: int, record: Callable[[Step], Step]) -> None:
        device = model.wte.weight.device
        self._model, self._cache, self._record = model, cache, record
        self._ids = torch.zeros(batch_size, 1, dtype=torch.long, device=device)
        self._position = torch.zeros((), dtype=torch.long, device=device)
        self._steps: dict[int, Step] = {}
        for part in cache.keys + cache.values:
            part[:, :, cache.length :] = 0

    def append(self, tokens: Tensor) -> Tensor:
        """Tokens (B, 1) → logits of what follows (B, V), which the next step overwrites."""
        self._ids.copy_(tokens)
        self._position.fill_(self._cache.length)
        visible = FIRST_VISIBLE
        while visible <= self._cache.length:
            visible *= 2
        visible = min(visible, self._cache.block_size)
        if visible not in self._steps:
            step = CacheStep(self._cache, self._position, visible)
            self._steps[visible] = self._record(lambda: self._model(self._ids, step)[:, -1])
        logits = self._steps[visible]()
        self._cache.advance(1)
        return logits


def can_record(model: GPT) -> bool:
    """Whether a step is the same operations every time: not with experts, who get other numbers of tokens."""
    return model.wte.weight.device.type == "cuda" and model.config.n_expert == 0


def record_graph(step: Step) -> Step:
    """A CUDA graph of `step`; raises RuntimeError for what cannot be recorded."""
    here, side = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(here)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(side):
        step()  # libraries take their memory and choose their kernels now, which a recording could not repeat
        side.synchronize()
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            logits = step()
        finally:
            graph.capture_end()
    here.wait_stream(side)

    def replay() -> Tensor:
        graph.replay()
        return logits

    return replay


class Reader:
    """The ids of a step (B, 1) for the host, without making the device wait for it."""

    def __init__(self, batch_size: int) -> None:
        self._ids = torch.empty(batch_size, 1, dtype=torch.long, pin_memory=True)
        self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def begin(self, tokens: Tensor) -> None:
        """Send them on their way, before the device gets more to do."""
        self._ids.copy_(tokens, non_blocking=True)
        self._arrived.record()

    def read(self) -> list[int]:
        """The ids, once they are here."""
        self._arrived.synchronize()
        ids: list[int] = self._ids[:, 0].tolist()
        return ids
