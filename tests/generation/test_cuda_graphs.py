"""Decoding with CUDA graphs against eager decoding, with a stand-in for the device's graphs.

The stand-in replays a step as a CUDA graph does: on the same memory, and into the same tensor.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor

from gptcli.config import SamplingConfig
from gptcli.generation import context_window, cuda_graphs
from gptcli.generation.context_window import ContextWindow
from gptcli.generation.cuda_graphs import Step
from gptcli.generation.sampler import Sampler
from gptcli.generation.stream import _steps
from gptcli.model.cache import StaticCacheView
from gptcli.model.gpt import GPT
from tests.generation.test_context_window import check_slides
from tests.model.reference import random_model
from tests.model.variants import VARIANTS, variant

WITHOUT_EXPERTS = [name for name in VARIANTS if not variant(name).n_expert]


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
    monkeypatch.setattr(context_window, "cuda_graph_capture", lambda device: made)
    monkeypatch.setattr(context_window, "EAGER_STEPS", 1)
    monkeypatch.setattr(cuda_graphs, "FIRST_VISIBLE", 2)
    return made


@pytest.mark.parametrize("name", WITHOUT_EXPERTS)
def test_a_captured_step_is_an_eager_step_past_the_context_too(capture: FakeCapture, name: str) -> None:
    for prefilled in (1, 5, 8, 9):
        assert check_slides(8, prefilled, name=name)
    assert capture.captures > 4


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

    monkeypatch.setattr(context_window, "cuda_graph_capture", lambda device: refuse)
    check_slides(8, 1)
    assert tries == 1


def test_experts_and_cpus_use_no_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context_window, "cuda_graph_capture", None)
    check_slides(8, 1)
    experts = next(name for name in VARIANTS if variant(name).n_expert)
    assert not cuda_graphs.supports_cuda_graphs(random_model(variant(experts)))


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
    monkeypatch.setattr(context_window, "cuda_graph_capture", lambda device: forgetful)
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
