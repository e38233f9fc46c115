"""What a model's shape tells, against a real model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from gptcli.config import ModelConfig
from gptcli.model import gpt
from gptcli.model.gpt import GPT
from gptcli.report.inspection import inspect_preset, list_presets
from gptcli.report.model import activations, flops, parameters

CONFIG = ModelConfig(vocab_size=11, n_layer=2, n_head=3, n_embd=12, block_size=16)
BATCH_SIZE, LENGTH = 2, 7


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("nano", 94_176),
        ("tiny", 818_048),
        ("mini", 2_731_200),
        ("small", 10_770_816),
        ("medium", 25_515_520),
        ("gpt2", 124_439_808),
        ("gpt2-small", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
    ],
)
def test_parameters_of_presets(name: str, total: int) -> None:
    report = inspect_preset(name, None, None, None)
    assert report.parameters.total == total
    assert sum(part.count for part in report.parameters.parts) == total
    assert sum(part.share for part in report.parameters.parts) == pytest.approx(1)


def test_presets_are_listed_with_the_same_counts() -> None:
    listed = {preset.name: preset.parameters for preset in list_presets().presets}
    assert listed["tiny"] == 818_048
    assert listed["gpt2"] == 124_439_808


def test_parts_are_the_tensors_of_the_model() -> None:
    found: dict[str, list[tuple[int, ...]]] = {}
    for name, parameter in GPT(CONFIG).named_parameters():
        found.setdefault(name.replace("h.0.", "h.*.").replace("h.1.", "h.*."), []).append(tuple(parameter.shape))
    assert {part.name: [part.shape] * part.copies for part in parameters(CONFIG).parts} == found


def test_activations_are_those_of_a_real_forward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, tuple[int, ...]] = {}
    real_attend = gpt.attend

    def watched_attend(q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
        out = real_attend(q, k, v, dropout)
        assert q.shape == k.shape == v.shape
        seen["h.*.attn q, k, v"] = tuple(q.shape)
        seen["h.*.attn weights"] = tuple((q @ k.mT).shape)
        seen["h.*.attn heads"] = tuple(out.shape)
        return out

    def watch(name: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Tensor) -> None:
            seen[name.replace("h.0", "h.*", 1).replace("h.1", "h.*", 1)] = tuple(output.shape)

        return hook

    monkeypatch.setattr(gpt, "attend", watched_attend)
    model = GPT(CONFIG)
    for name, module in model.named_modules():
        if name:
            module.register_forward_hook(watch(name))
    ids = torch.zeros(BATCH_SIZE, LENGTH, dtype=torch.long)
    seen["ids"] = tuple(ids.shape)
    seen["wpe"] = tuple(model.wpe.weight[:LENGTH].shape)  # its rows are sliced, not looked up
    seen["logits"] = tuple(model(ids).shape)

    reported = {stage.name: stage.shape for stage in activations(CONFIG, BATCH_SIZE, LENGTH)}
    outputs_of_containers = {"h.*.attn", "h.*.mlp"}  # the same as of their last layers
    assert reported == {name: shape for name, shape in seen.items() if name not in outputs_of_containers}


def test_flops_are_those_of_the_matrix_products() -> None:
    """The formula also counts two operations for each bias and norm weight, which no matrix product has."""
    model = GPT(CONFIG)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):  # it knows no fused kernel of CPUs
        model(torch.zeros(BATCH_SIZE, LENGTH, dtype=torch.long))
    vectors = sum(parameter.numel() for parameter in model.parameters() if parameter.dim() == 1)
    told = flops(CONFIG, LENGTH)
    assert counter.get_total_flops() == BATCH_SIZE * LENGTH * (told.forward_per_token - 2 * vectors)
    assert told.training_per_token == 3 * told.forward_per_token


def test_flops_of_gpt2_are_those_of_nanogpt() -> None:
    """nanoGPT's estimate_mfu for GPT-2 at 1,024 tokens: 6 · 123,653,376 + 12 · 12 · 12 · 64 · 1024."""
    assert inspect_preset("gpt2", None, None, None).flops.training_per_token == 855_166_464


def test_memory_grows_with_the_batch() -> None:
    one, many = (inspect_preset("nano", None, size, None).memory for size in (1, 8))
    assert many.training.activations == 8 * one.training.activations
    assert many.sampling.cache == 8 * one.sampling.cache == 8 * 128 * one.cache_per_token
