"""Decoding with CUDA graphs against eager decoding, with a stand-in for the device's graphs.

The stand-in replays a step as a CUDA graph does: on the same memory, and into the same tensor.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from gptcli.config import SamplingConfig
from gptcli.generation import context_window, cuda_graphs
from gptcli.generation.context_window import ContextWindow
from gptcli.generation.cuda_graphs import GraphDecoders, Step
from gptcli.generation.sampler import Sampler
from gptcli.generation.stream import _steps
from gptcli.model.cache import StaticCacheView
from gptcli.model.experts import Experts
from gptcli.model.gpt import GPT
from tests.generation.test_context_window import check_slides
from tests.model.reference import random_model
from tests.model.test_experts import NoHostReads
from tests.model.variants import VARIANTS, variant

EXPERTS = ("mixtral windows", "qwen3_moe", "strange")


class FakeCapture:
    """Counts captures; each replay runs the step again."""

    def __init__(self) -> None:
        self.captures = 0

    def __call__(self, step: Step) -> Step:
        self.captures += 1
        logits = step()

        def replay() -> Tensor:
            return logits.copy_(step())

        return replay


@pytest.fixture
def capture(monkeypatch: pytest.MonkeyPatch) -> FakeCapture:
    """Steps are captured from the second token on, at first for two cached tokens."""
    made = FakeCapture()
    monkeypatch.setattr(context_window, "supports_cuda_graphs", lambda model: True)
    monkeypatch.setattr(cuda_graphs, "cuda_graph_capture", lambda device: made)
    monkeypatch.setattr(context_window, "EAGER_STEPS", 1)
    monkeypatch.setattr(cuda_graphs, "FIRST_VISIBLE", 2)
    return made


@pytest.mark.parametrize("name", VARIANTS)
def test_a_captured_step_is_an_eager_step_past_the_context_too(capture: FakeCapture, name: str) -> None:
    for prefilled in (1, 5, 8, 9):
        assert check_slides(8, prefilled, name=name)
    assert capture.captures > 4


class Traced:
    """Records the operations of a step once, and replays them on the same memory, whatever the numbers are then.

    As with a CUDA graph, nothing may be read on the host.
    """

    def __init__(self) -> None:
        self.captures = 0

    def __call__(self, step: Step) -> Step:
        self.captures += 1
        with torch.inference_mode(mode=False), torch.no_grad(), NoHostReads():
            recorded = make_fx(step)()

        def replay() -> Tensor:
            with torch.inference_mode(mode=False), torch.no_grad():
                logits: Tensor = recorded()
                return logits

        return replay


def check_recorded_experts(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(cuda_graphs, "cuda_graph_capture", lambda device: Traced())
    for prefilled in (1, 5):
        assert check_slides(8, prefilled, name=name)


@pytest.mark.parametrize("name", EXPERTS)
def test_recorded_operations_serve_every_choice_of_experts(
    capture: FakeCapture, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(Experts, "mix_one_by_one", Experts.mix_at_once)
    check_recorded_experts(monkeypatch, name)


def test_control_experts_that_are_chosen_on_the_host(capture: FakeCapture, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="nonzero"):
        check_recorded_experts(monkeypatch, "mixtral")


def test_each_number_of_visible_tokens_is_captured_once(capture: FakeCapture) -> None:
    check_slides(8, 1)
    assert capture.captures == 2  # 4 and 8, over three contexts; the second token came before


@pytest.mark.parametrize("name", ["gpt2", "window"])
def test_control_a_mask_that_hides_nothing(capture: FakeCapture, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    append = StaticCacheView.append

    def all_seen(self: StaticCacheView, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        k, v, seen = append(self, layer, k, v)
        return k, v, torch.ones_like(seen)

    monkeypatch.setattr(StaticCacheView, "append", all_seen)
    with pytest.raises(AssertionError):
        check_slides(8, 1, name=name)


def test_uninitialized_memory_does_no_harm(capture: FakeCapture, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = torch.empty

    def dirty(*shape: object, **options: object) -> Tensor:
        made: Tensor = empty(*shape, **options)  # type: ignore[call-overload]
        return made.fill_(float("nan")) if made.is_floating_point() else made

    monkeypatch.setattr(torch, "empty", dirty)
    check_slides(8, 3)
    assert capture.captures


def test_a_step_that_cannot_be_captured_runs_eagerly(capture: FakeCapture, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 0

    def refuse(step: Step) -> Step:
        nonlocal tries
        tries += 1
        step()
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(cuda_graphs, "cuda_graph_capture", lambda device: refuse)
    check_slides(8, 1)
    assert tries == 1


def test_cpus_use_no_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graphs, "cuda_graph_capture", None)
    check_slides(8, 1)


@pytest.mark.parametrize(("device", "trains"), [("cuda", False), ("cuda", True), ("cpu", False)])
@pytest.mark.parametrize("name", ["gpt2", "mixtral"])
def test_graphs_are_for_models_on_cuda_that_are_not_trained(name: str, device: str, trains: bool) -> None:
    weight = SimpleNamespace(device=torch.device(device), requires_grad=trains)
    model: Any = SimpleNamespace(wte=SimpleNamespace(weight=weight), config=variant(name))
    assert cuda_graphs.supports_cuda_graphs(model) == (device == "cuda" and not trains)


def test_the_memory_that_a_graph_reads_stays_alive(capture: FakeCapture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph keeps none of the memory alive that was there before the capture, such as the slots of the mask."""
    made: list[weakref.ref[StaticCacheView]] = []
    init = StaticCacheView.__init__

    def watched(self: StaticCacheView, *arguments: Any) -> None:
        made.append(weakref.ref(self))
        init(self, *arguments)

    def forgetful(step: Step) -> Step:
        logits = step()
        return lambda: logits

    monkeypatch.setattr(StaticCacheView, "__init__", watched)
    monkeypatch.setattr(cuda_graphs, "cuda_graph_capture", lambda device: forgetful)
    model = random_model(variant("gpt2"))
    window = ContextWindow(model, 1)
    window.prefill(torch.tensor([[1]]))
    for _ in range(8):
        window.append(torch.tensor([[2]]))
    gc.collect()
    assert len(made) == 3
    assert all(step() is not None for step in made)


class LateCopy:
    """Returns the ids of a step while the model computes the next one."""

    def __init__(self) -> None:
        self._ids: list[list[int]] = []

    def start(self, tokens: Tensor) -> None:
        self._ids.append(tokens[:, 0].tolist())

    def wait(self) -> list[int]:
        (ids,) = self._ids
        self._ids.clear()
        return ids


def steps_of(model: GPT, copy: LateCopy | None) -> list[tuple[list[int], int]]:
    config = SamplingConfig(num_samples=3, max_new_tokens=20, seed=5)
    prompt = torch.tensor([[1, 2, 3]])
    sampler = Sampler(config, torch.ones(23, dtype=torch.bool), prompt, prompt.device)
    return [*_steps(ContextWindow(model, 3), sampler, prompt, 20, copy)]


def test_late_copies_change_no_ids_and_no_slides() -> None:
    model = random_model(variant("gpt2", block_size=8))
    late = steps_of(model, LateCopy())
    assert late == steps_of(model, None)
    assert {slides for _, slides in late} == {0, 1, 2, 3, 4}


class Conversation:
    """A loaded model's texts, one after another; `steps` is a running one."""

    def __init__(self, decoders: GraphDecoders | None) -> None:
        self.model, self.decoders = random_model(variant("gpt2", block_size=8)), decoders

    def steps(self, texts: int, seed: int) -> Iterator[tuple[list[int], int]]:
        config = SamplingConfig(num_samples=texts, max_new_tokens=20, seed=seed)
        prompt = torch.tensor([[1, 2, 3]])
        sampler = Sampler(config, torch.ones(23, dtype=torch.bool), prompt, prompt.device)
        return _steps(ContextWindow(self.model, texts, self.decoders), sampler, prompt, 20, None)


def eager(monkeypatch: pytest.MonkeyPatch, texts: int, seed: int) -> list[tuple[list[int], int]]:
    with monkeypatch.context() as patch:
        patch.setattr(context_window, "supports_cuda_graphs", lambda model: False)
        return [*Conversation(None).steps(texts, seed)]


def test_graphs_are_kept_from_text_to_text(capture: FakeCapture, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Conversation(GraphDecoders())
    for texts in (1, 3):
        for seed in (5, 6, 7):
            assert [*kept.steps(texts, seed)] == eager(monkeypatch, texts, seed)
    first = capture.captures
    assert [*kept.steps(1, 8)] == eager(monkeypatch, 1, 8)
    assert capture.captures == first
    assert first < 2 * 4, "two graphs for each number of texts, or three"


def test_texts_in_turn_never_share_a_cache(capture: FakeCapture, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Conversation(GraphDecoders())
    [*kept.steps(2, 1)]
    one, other = zip(*zip(kept.steps(2, 5), kept.steps(2, 6), strict=True), strict=True)
    assert [*one] == eager(monkeypatch, 2, 5)
    assert [*other] == eager(monkeypatch, 2, 6)


def test_a_text_that_is_abandoned_gives_its_decoder_back(capture: FakeCapture) -> None:
    kept = Conversation(GraphDecoders())
    steps = kept.steps(1, 5)
    for _ in range(6):
        next(steps)
    steps.close()  # type: ignore[attr-defined]
    assert kept.decoders is not None
    assert kept.decoders.borrow(1) is not None


def test_infinity_from_an_earlier_text_does_no_harm(capture: FakeCapture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A masked infinity times zero would be NaN."""
    kept = Conversation(GraphDecoders())
    [*kept.steps(1, 1)]
    assert kept.decoders is not None
    (decoder,) = kept.decoders._idle.values()
    for part in decoder.cache.keys + decoder.cache.values:
        part.fill_(float("inf"))
    assert [*kept.steps(1, 5)] == eager(monkeypatch, 1, 5)


def test_the_decoder_that_was_not_used_for_the_longest_time_is_dropped(capture: FakeCapture) -> None:
    kept = Conversation(decoders := GraphDecoders())
    for texts in (1, 2, 3, 4, 1, 5):
        [*kept.steps(texts, 1)]
    assert [*decoders._idle] == [3, 4, 1, 5]
    decoders.clear()
    assert decoders.borrow(1) is None


@pytest.mark.parametrize(
    ("error", "tries"), [(RuntimeError("not permitted"), 1), (torch.OutOfMemoryError("CUDA out of memory"), 3)]
)
def test_a_step_that_cannot_be_captured_is_not_tried_for_every_text(
    capture: FakeCapture, monkeypatch: pytest.MonkeyPatch, error: RuntimeError, tries: int
) -> None:
    """Too little memory is no lasting reason."""
    tried: list[Step] = []

    def refuse(step: Step) -> Step:
        tried.append(step)
        raise error

    monkeypatch.setattr(cuda_graphs, "cuda_graph_capture", lambda device: refuse)
    kept = Conversation(GraphDecoders())
    for seed in (1, 2, 3):
        assert [*kept.steps(1, seed)] == eager(monkeypatch, 1, seed)
    assert len(tried) == tries


class FakeDriver:
    """torch's CUDA graphs and its allocator, as far as a capture uses them; `calls` lists what was called.

    As in torch, `capture_end` leaves the memory pool only if the capture is intact, and `reset` releases it only then.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.pool: Callable[[], object] = lambda: None
        self.breaks = False
        """Whether a step that fails breaks the capture too."""
        self.failed = False
        driver = self

        class Graph:
            ended = False

            def capture_begin(self, pool: tuple[int, int], capture_error_mode: str) -> None:
                driver.calls.append(f"begin {pool}")

            def capture_end(self) -> None:
                if driver.failed and driver.breaks:
                    raise torch.AcceleratorError("CUDA error: operation failed due to a previous error during capture")
                if not self.ended:
                    driver.calls.append("end")
                self.ended = True

            def pool(self) -> tuple[int, int]:
                if not self.ended:
                    raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")
                return 0, 1

            def reset(self) -> None:
                driver.calls.append("release")

            def replay(self) -> None:
                driver.calls.append("replay")

        def leave(device: int, pool: tuple[int, int]) -> None:
            if "end" in driver.calls:
                raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
            driver.calls.append("end")

        stream = SimpleNamespace(
            device=torch.device("cuda", 1), wait_stream=lambda other: None, synchronize=lambda: None
        )

        class Pool:
            id = 0, 1

            def __init__(self) -> None:
                driver.pool = weakref.ref(self)

        monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
        monkeypatch.setattr(torch.cuda, "MemPool", Pool)
        monkeypatch.setattr(cuda_graphs, "_side_stream", lambda device: stream)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
        monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
        monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
        monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", leave)
        monkeypatch.setattr(torch._C, "_cuda_releasePool", lambda device, pool: driver.calls.append("release"))


def test_all_graphs_share_a_memory_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeDriver(monkeypatch)
    capture = cuda_graphs.cuda_graph_capture(torch.device("cuda", 1))
    replays = [capture(lambda: torch.ones(2)), capture(lambda: torch.zeros(2))]
    assert driver.calls == ["begin (0, 1)", "end"] * 2
    assert [replay().tolist() for replay in replays] == [[1, 1], [0, 0]]
    gc.collect()
    assert driver.pool() is not None
    del capture
    gc.collect()
    assert driver.pool() is None


@pytest.mark.parametrize("breaks", [True, False])
def test_a_failed_capture_leaves_and_releases_the_pool_once(monkeypatch: pytest.MonkeyPatch, breaks: bool) -> None:
    driver = FakeDriver(monkeypatch)
    driver.breaks = breaks
    calls = count()

    def step() -> Tensor:
        if next(calls):  # the first one is the warm-up
            driver.failed = True
            raise RuntimeError("operation not permitted when stream is capturing")
        return torch.ones(2)

    with pytest.raises(RuntimeError, match="not permitted"):
        cuda_graphs.cuda_graph_capture(torch.device("cuda", 1))(step)
    assert driver.calls == ["begin (0, 1)", "end", "release"]
