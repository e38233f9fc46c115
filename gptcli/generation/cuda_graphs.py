"""Decoding with CUDA graphs, since a decode step is some hundred small kernels that would wait for the host.

A decode step is captured once as a CUDA graph and replayed with a single call, and the ids of a step are copied to the
host while the next step runs (as in gpt-fast, 2023).

Letters: B sequences, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gptcli.model.cache import KVCache, StaticCacheView
from gptcli.model.gpt import GPT

Step = Callable[[], Tensor]
"""A decode step with static shapes on static memory: nothing → logits (B, V), always in the same tensor.

A captured graph does not keep the memory alive that it reads: keep the original step alive too.
"""

FIRST_VISIBLE = 64
"""Cached tokens that the first graph attends to; each further graph attends to twice as many."""
EAGER_STEPS = 8
"""Steps before the first capture, which takes longer than a step: a shorter text does not pay for it."""


class CudaGraphDecoder:
    """Decodes one token per call and sequence, with one graph for each range of cached tokens."""

    def __init__(self, model: GPT, cache: KVCache, batch_size: int, capture: Callable[[Step], Step]) -> None:
        device = model.wte.weight.device
        self._model, self._cache, self._capture = model, cache, capture
        self._ids = torch.zeros(batch_size, 1, dtype=torch.long, device=device)
        self._position = torch.zeros((), dtype=torch.long, device=device)
        self._graphs: dict[int, tuple[Step, StaticCacheView]] = {}  # by visible tokens
        for part in cache.keys + cache.values:
            part[:, :, cache.length :] = 0

    def append(self, tokens: Tensor) -> Tensor:
        """Tokens (B, 1) → logits of the next ones (B, V), which the next call overwrites."""
        self._ids.copy_(tokens)
        self._position.fill_(self._cache.length)
        visible = FIRST_VISIBLE
        while visible <= self._cache.length:
            visible *= 2
        visible = min(visible, self._cache.block_size)
        if visible not in self._graphs:
            view = StaticCacheView(self._cache, self._position, visible)
            self._graphs[visible] = self._capture(lambda: self._model(self._ids, view)[:, -1]), view
        replay, _ = self._graphs[visible]
        logits = replay()
        self._cache.advance(1)
        return logits


def supports_cuda_graphs(model: GPT) -> bool:
    """Whether a decode step of the model can be captured as a CUDA graph.

    Not with experts, whose batch sizes change from step to step; nor during training, which a failed capture could
    disturb.
    """
    weight = model.wte.weight
    return weight.device.type == "cuda" and model.config.n_expert == 0 and not weight.requires_grad


def cuda_graph_capture(device: torch.device) -> Callable[[Step], Step]:
    """A function that captures a step as a CUDA graph on `device` and returns its replay.

    It raises RuntimeError for a step that cannot be captured.
    """
    side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def capture(step: Step) -> Step:
        here = torch.cuda.current_stream(device)
        side.wait_stream(here)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(side):  # sets the device too
            step()  # warm-up: libraries allocate workspaces and choose kernels, which cannot happen during a capture
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

    return capture


class AsyncCopy:
    """Copies the ids of a step, (B, 1), to the host while the device computes."""

    def __init__(self, batch_size: int, device: torch.device) -> None:
        self._device = device
        self._ids = torch.empty(batch_size, 1, dtype=torch.long, pin_memory=True)
        self._arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def start(self, tokens: Tensor) -> None:
        """Queue the copy; call it before queueing the next step."""
        self._ids.copy_(tokens, non_blocking=True)
        self._arrived.record(torch.cuda.current_stream(self._device))

    def wait(self) -> list[int]:
        """The ids, B of them, as soon as they have arrived."""
        self._arrived.synchronize()
        ids: list[int] = self._ids[:, 0].tolist()
        return ids
