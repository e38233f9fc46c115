"""Decoding with CUDA graphs, since a decode step is some hundred small kernels that would wait for the host.

A decode step is captured once as a CUDA graph and replayed with a single call, and the ids of a step are copied to the
host while the next step runs (as in gpt-fast, 2023). A loaded model keeps its graphs from one text to the next
(`GraphDecoders`).

Letters: B sequences, V vocabulary.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

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
KEPT_DECODERS = 4
"""Decoders that a loaded model keeps, one per batch size, each with its key-value cache."""


class CudaGraphDecoder:
    """Decodes one token per call and sequence, with one graph for each range of cached tokens."""

    def __init__(self, model: GPT, cache: KVCache, batch_size: int, capture: Callable[[Step], Step]) -> None:
        device = model.wte.weight.device
        self.cache, self.batch_size = cache, batch_size
        self._model, self._capture = model, capture
        self._ids = torch.zeros(batch_size, 1, dtype=torch.long, device=device)
        self._position = torch.zeros((), dtype=torch.long, device=device)
        self._graphs: dict[int, tuple[Step, StaticCacheView]] = {}  # by visible tokens
        self._clear_from(cache.length)

    def append(self, tokens: Tensor) -> Tensor:
        """Tokens (B, 1) → logits of the next ones (B, V), which the next call overwrites."""
        self._ids.copy_(tokens)
        self._position.fill_(self.cache.length)
        visible = FIRST_VISIBLE
        while visible <= self.cache.length:
            visible *= 2
        visible = min(visible, self.cache.block_size)
        if visible not in self._graphs:
            view = StaticCacheView(self.cache, self._position, visible)
            self._graphs[visible] = self._capture(lambda: self._model(self._ids, view)[:, -1]), view
        replay, _ = self._graphs[visible]
        logits = replay()
        self.cache.advance(1)
        return logits

    @torch.inference_mode()
    def restart(self) -> None:
        """Empty the cache for another text."""
        self.cache.clear()
        self._clear_from(0)

    def _clear_from(self, start: int) -> None:
        """Clear the cache from a position on: a masked NaN or infinity would still reach the result."""
        for part in self.cache.keys + self.cache.values:
            part[:, :, start:] = 0


class GraphDecoders:
    """The decoders of one loaded model between its texts, by batch size.

    Capturing takes longer than many steps, so graphs are kept, with the caches that they read. All of them share one
    memory pool: their steps run one after the other. A text borrows its decoder, so that texts that are generated in
    turn never share a cache.
    """

    def __init__(self) -> None:
        self._idle: dict[int, CudaGraphDecoder] = {}
        self._capture: Callable[[Step], Step] | None = None
        self.usable = True
        """Whether steps can be captured; false after one could not."""

    def borrow(self, batch_size: int) -> CudaGraphDecoder | None:
        """An idle decoder, with an empty cache; None if there is none."""
        decoder = self._idle.pop(batch_size, None)
        if decoder is not None:
            decoder.restart()
        return decoder

    def new(self, model: GPT, cache: KVCache, batch_size: int) -> CudaGraphDecoder:
        """A decoder over a cache in use. Raises RuntimeError where memory for graphs cannot be set aside."""
        self._capture = self._capture or cuda_graph_capture(model.wte.weight.device)
        return CudaGraphDecoder(model, cache, batch_size, self._capture)

    def give_back(self, decoder: CudaGraphDecoder) -> None:
        """Keep a decoder for the next text; the one that was not used for the longest time may be dropped for it."""
        self._idle.pop(decoder.batch_size, None)
        self._idle[decoder.batch_size] = decoder
        if len(self._idle) > KEPT_DECODERS:
            del self._idle[next(iter(self._idle))]

    def clear(self) -> None:
        """Drop all idle decoders, and so release their memory."""
        self._idle.clear()


def supports_cuda_graphs(model: GPT) -> bool:
    """Whether a decode step of the model can be captured as a CUDA graph.

    Not during training, which a failed capture could disturb.
    """
    weight = model.wte.weight
    return weight.device.type == "cuda" and not weight.requires_grad


def cuda_graph_capture(device: torch.device) -> Callable[[Step], Step]:
    """A function that captures a step as a CUDA graph on `device` and returns its replay.

    All graphs use one memory pool, which is released with the last of them and the function. It raises RuntimeError for
    a step that cannot be captured, whose memory is released.
    """
    side = _side_stream(device)
    with torch.cuda.device(device):
        pool = torch.cuda.MemPool()

    def capture(step: Step) -> Step:
        here = torch.cuda.current_stream(device)
        side.wait_stream(here)
        graph = torch.cuda.CUDAGraph()
        handle: Any = pool.id  # of a type that torch keeps to itself; asked for here, so that the pool stays alive
        with torch.cuda.stream(side):  # sets the device too
            step()  # warm-up: libraries allocate workspaces and choose kernels, which cannot happen during a capture
            side.synchronize()
            try:
                graph.capture_begin(pool=handle, capture_error_mode="thread_local")
                logits = step()
                graph.capture_end()
            except BaseException:
                _abandon(graph, side.device.index, handle)
                raise
        here.wait_stream(side)

        def replay() -> Tensor:
            with torch.cuda.device(device):
                graph.replay()
            return logits

        return replay

    return capture


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """The stream of captures on a device. cuBLAS keeps a workspace for each stream that it has ever used."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _abandon(graph: torch.cuda.CUDAGraph, device: int, pool: tuple[int, int]) -> None:
    """End a capture that failed, and release its share of the memory pool.

    Where a step broke the capture, `capture_end` fails before torch's allocator leaves the pool. The allocator would
    then serve later requests from it and return nothing to the device, for as long as the process lives.
    """
    with suppress(RuntimeError):
        graph.capture_end()
    with suppress(RuntimeError):  # it has left the pool already
        torch._C._cuda_endAllocateToPool(device, pool)
    try:
        graph.pool()
    except RuntimeError:  # it never became a graph, whose `reset` would do this
        torch._C._cuda_releasePool(device, pool)
    else:
        graph.reset()


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
