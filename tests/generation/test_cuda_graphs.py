"""Recorded steps against those that run one operation at a time, with a stand-in for the device's recordings.

The stand-in repeats a step as a CUDA graph does: on the same memory, and into the same tensor.
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


class Recorder:
    """Counts recordings; each repeats its step."""

    def __init__(self) -> None:
        self.recordings = 0

    def __call__(self, step: Step) -> Step:
        self.recordings += 1
        logits = step()

        def replay() -> Tensor:
            return logits.copy_(step())

        return replay


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Every step is recorded from the second token on, at first for two cached tokens."""
    made = Recorder()
    monkeypatch.setattr(context_window, "supports_cuda_graphs", lambda model: True)
    monkeypatch.setattr(context_window, "cuda_graph_capture", lambda device: made)
    monkeypatch.setattr(context_window, "EAGER_STEPS", 1)
    monkeypatch.setattr(cuda_graphs, "FIRST_VISIBLE", 2)
    return made


@pytest.mark.parametrize("name", WITHOUT_EXPERTS)
def test_a_recorded_step_is_a_step_past_the_context_too(recorder: Recorder, name: str) -> None:
    for prefilled in (1, 5, 8, 9):
        assert check_slides(8, prefilled, name=name)
    assert recorder.recordings > 4


def test_each_number_of_visible_tokens_is_recorded_once(recorder: Recorder) -> None:
    check_slides(8, 1)
    assert recorder.recordings == 2  # 4 and 8, over three contexts; the second token came before


@pytest.mark.parametrize("name", ["gpt2", "window"])
def test_control_a_mask_that_hides_nothing(recorder: Recorder, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    append = StaticCacheView.append

    def all_seen(self: StaticCacheView, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        k, v, seen = append(self, layer, k, v)
        return k, v, torch.ones_like(seen)

    monkeypatch.setattr(StaticCacheView, "append", all_seen)
    with pytest.raises(AssertionError):
        check_slides(8, 1, name=name)


def test_memory_that_was_never_written_does_no_harm(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = torch.empty

    def dirty(*shape: object, **options: object) -> Tensor:
        made: Tensor = empty(*shape, **options)  # type: ignore[call-overload]
        return made.fill_(float("nan")) if made.is_floating_point() else made

    monkeypatch.setattr(torch, "empty", dirty)
    check_slides(8, 3)
    assert recorder.recordings


def test_what_cannot_be_recorded_runs_as_it_is(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 0

    def refuse(step: Step) -> Step:
        nonlocal tries
        tries += 1
        step()
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(context_window, "cuda_graph_capture", lambda device: refuse)
    check_slides(8, 1)
    assert tries == 1


def test_experts_and_a_cpu_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context_window, "cuda_graph_capture", None)
    check_slides(8, 1)
    experts = next(name for name in VARIANTS if variant(name).n_expert)
    assert not cuda_graphs.supports_cuda_graphs(random_model(variant(experts)))


def test_what_a_recording_reads_stays_alive(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
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
    written = ContextWindow(model, 1)
    written.prefill(torch.tensor([[1]]))
    for _ in range(8):
        written.append(torch.tensor([[2]]))
    gc.collect()
    assert len(made) == 3
    assert all(step() is not None for step in made)


class SlowReader:
    """Has the ids of a step while the model is at the next one."""

    def __init__(self) -> None:
        self._ids: list[list[int]] = []

    def begin(self, tokens: Tensor) -> None:
        self._ids.append(tokens[:, 0].tolist())

    def read(self) -> list[int]:
        (ids,) = self._ids
        self._ids.clear()
        return ids


def steps_of(model: GPT, reader: SlowReader | None) -> list[tuple[list[int], int]]:
    config = SamplingConfig(num_samples=3, max_new_tokens=20, seed=5)
    prompt = torch.tensor([[1, 2, 3]])
    sampler = Sampler(config, torch.ones(23, dtype=torch.bool), prompt, prompt.device)
    return [*_steps(ContextWindow(model, 3), sampler, prompt, 20, reader)]


def test_reading_late_changes_no_ids_and_no_slides() -> None:
    model = random_model(variant("gpt2", block_size=8))
    late = steps_of(model, SlowReader())
    assert late == steps_of(model, None)
    assert {slides for _, slides in late} == {0, 1, 2, 3, 4}
