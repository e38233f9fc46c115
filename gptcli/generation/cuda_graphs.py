"""Decoding on a CUDA device, where some hundred small operations a token would wait for the host.

A step is recorded as a CUDA graph, which the host then starts with one call, and the ids of a step travel to the host
while the next one runs (as in gpt-fast, 2023).

Letters: B sequences, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gptcli.model.cache import KVCache, StaticCacheView
from gptcli.model.gpt import GPT

Step = Callable[[], Tensor]
"""Computes the same again on the same memory: nothing → logits (B, V), always the same tensor.

A recording does not keep the memory alive that it reads: whoever has one keeps the step itself too.
"""

FIRST_VISIBLE = 64
"""Cached tokens that the first recording attends to; each one after it attends to twice as many."""
EAGER_STEPS = 8
"""A text that is shorter does without, since recording takes longer than a step."""


class CudaGraphDecoder:
    """One token more for every sequence of a cache, by recordings for different numbers of cached tokens."""

    def __init__(self, model: GPT, cache: KVCache, batch_size: int, record: Callable[[Step], Step]) -> None:
        device = model.wte.weight.device
        self._model, self._cache, self._record = model, cache, record
        self._ids = torch.zeros(batch_size, 1, dtype=torch.long, device=device)
        self._position = torch.zeros((), dtype=torch.long, device=device)
        self._steps: dict[int, tuple[Step, StaticCacheView]] = {}  # by visible tokens
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
            step = StaticCacheView(self._cache, self._position, visible)
            self._steps[visible] = self._record(lambda: self._model(self._ids, step)[:, -1]), step
        replay, _ = self._steps[visible]
        logits = replay()
        self._cache.advance(1)
        return logits


def supports_cuda_graphs(model: GPT) -> bool:
    """Whether a step is the same operations every time, of a model that only writes.

    Not with experts, who get other numbers of tokens; nor in training, which a recording that fails could disturb.
    """
    weight = model.wte.weight
    return weight.device.type == "cuda" and model.config.n_expert == 0 and not weight.requires_grad


def cuda_graph_capture(device: torch.device) -> Callable[[Step], Step]:
    """Makes CUDA graphs of steps on `device`, which raises RuntimeError for what cannot be recorded."""
    side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def record(step: Step) -> Step:
        here = torch.cuda.current_stream(device)
        side.wait_stream(here)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(side):  # and on its device
            step()  # libraries take their memory and choose their kernels now, which a recording could not repeat
            side.synchronize()
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                logits = step()
            finally:
                graph.capture_end()
        here.wait_stream(side)

        def replay() -> Tensor:
            with torch.cuda.device(device):
                graph.replay()
            return logits

        return replay

    return record


class Reader:
    """The ids of a step (B, 1) for the host, without making the device wait for it."""

    def __init__(self, batch_size: int, device: torch.device) -> None:
        self._device = device
        self._ids = torch.empty(batch_size, 1, dtype=torch.long, pin_memory=True)
        self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def begin(self, tokens: Tensor) -> None:
        """Send them on their way, before the device gets more to do."""
        self._ids.copy_(tokens, non_blocking=True)
        self._arrived.record(torch.cuda.current_stream(self._device))

    def read(self) -> list[int]:
        """The ids, once they are here."""
        self._arrived.synchronize()
        ids: list[int] = self._ids[:, 0].tolist()
        return ids
