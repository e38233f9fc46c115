"""Norms by layer are those of an ordinary forward and backward pass."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from gptcli.generation.norms import layer_norms
from gptcli.generation.placement import bind_submodules
from tests.model.reference import random_model
from tests.model.variants import VARIANTS, variant

IDS = [3, 1, 4, 1, 5, 9, 2, 6]


@pytest.mark.parametrize("name", VARIANTS)
def test_norms_are_those_of_a_training_pass(name: str) -> None:
    model = random_model(variant(name)).requires_grad_(True)
    states: list[Tensor] = []

    def keep(_module: object, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if not states:
            states.append(inputs[0])
        states.append(output)
        for state in (inputs[0], output):
            state.retain_grad()

    for block in model.h:
        block.register_forward_hook(keep)
    found = layer_norms(model, IDS)
    assert all(parameter.grad is None for parameter in model.parameters())
    states.clear()
    logits = model(torch.tensor([IDS[:-1]]))
    F.cross_entropy(logits[0], torch.tensor(IDS[1:])).backward()
    assert found.activations == pytest.approx([state.square().mean().sqrt().item() for state in states], rel=1e-12)
    assert found.gradients == pytest.approx([state.grad.norm().item() for state in states if state.grad is not None])
    assert len(found.gradients) == model.config.n_layer + 1


def test_a_model_that_is_placed_for_inference() -> None:
    model = random_model(variant("qwen3"))
    expected = layer_norms(model, IDS)
    assert layer_norms(bind_submodules(model), IDS) == expected


def test_a_long_text_is_cut() -> None:
    model = random_model(variant("gpt2"))
    assert layer_norms(model, IDS * 9) == layer_norms(model, (IDS * 2)[:12])
