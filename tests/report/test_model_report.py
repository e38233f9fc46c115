"""The report on a model's shape against a real model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from gptcli.errors import UsageError
from gptcli.model import gpt
from gptcli.model.cost import forward_flops, training_flops
from gptcli.model.gpt import GPT
from gptcli.report.inspection import inspect
from gptcli.report.model import activations, parameters
from tests.model.variants import variant

BATCH_SIZE, LENGTH = 2, 7


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("nano", 86_496),
        ("tiny", 747_008),
        ("mini", 2_448_384),
        ("small", 9_762_816),
        ("medium", 23_242_752),
        ("gpt2", 124_439_808),
        ("gpt2-small", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
    ],
)
def test_parameters_of_presets(name: str, total: int) -> None:
    report = inspect(preset=name)
    assert report.parameters.total == total
    assert sum(part.count for part in report.parameters.parts) == total
    assert sum(part.share for part in report.parameters.parts) == pytest.approx(1)


@pytest.mark.parametrize(
    ("name", "total"),
    [("nano", 94_176), ("tiny", 818_048), ("mini", 2_731_200), ("small", 10_770_816), ("medium", 25_515_520)],
)
def test_parameters_of_presets_as_gpt2(name: str, total: int) -> None:
    assert inspect(preset=name, family="gpt2").parameters.total == total


def test_the_presets_of_gpt2_are_gpt2() -> None:
    with pytest.raises(UsageError, match="is GPT-2"):
        inspect(preset="gpt2-small", family="modern")


def test_presets_are_listed_with_the_same_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    listed = {preset.name: preset.parameters for preset in inspect().presets}
    assert listed["tiny"] == 747_008
    assert listed["gpt2"] == 124_439_808


KINDS = ("gpt2", "llama untied", "qwen3", "mixtral", "sinusoidal", "no positions", "strange")


@pytest.mark.parametrize("kind", KINDS)
def test_parts_are_the_tensors_of_the_model(kind: str) -> None:
    found: dict[str, list[tuple[int, ...]]] = {}
    for name, parameter in GPT(variant(kind)).named_parameters():
        found.setdefault(re.sub(r"(^h|experts)\.\d", r"\1.*", name), []).append(tuple(parameter.shape))
    assert {part.name: [part.shape] * part.copies for part in parameters(variant(kind)).parts} == found


@pytest.mark.parametrize("kind", KINDS)
def test_activations_are_those_of_a_real_forward_pass(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = variant(kind)
    seen: dict[str, tuple[int, ...]] = {}
    through_experts: dict[str, list[tuple[int, ...]]] = {}
    real_attend = gpt.attend

    def watched_attend(q: Tensor, k: Tensor, v: Tensor, *options: Any) -> Tensor:
        out = real_attend(q, k, v, *options)
        assert k.shape == v.shape
        seen["h.*.attn q"], seen["h.*.attn k, v"] = tuple(q.shape), tuple(k.shape)
        seen["h.*.attn weights"] = tuple((q[:, :1] @ k[:, :1].mT).expand(-1, q.shape[1], -1, -1).shape)
        seen["h.*.attn heads"] = tuple(out.shape)
        return out

    def watch(name: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Tensor) -> None:
            stage = re.sub(r"(^h|experts)\.\d", r"\1.*", name)
            if ".experts." in name:
                through_experts.setdefault(stage, []).append(tuple(output.shape))
            else:
                seen[stage] = tuple(output.shape)

        return hook

    monkeypatch.setattr(gpt, "attend", watched_attend)
    model = GPT(config)
    for name, module in model.named_modules():
        if name:
            module.register_forward_hook(watch(name))
    ids = torch.zeros(BATCH_SIZE, LENGTH, dtype=torch.long)
    seen["ids"] = tuple(ids.shape)
    for table in ("wpe", "sinusoids"):  # its rows are sliced, not looked up
        if config.position == {"wpe": "learned", "sinusoids": "sinusoidal"}[table]:
            seen[table] = (LENGTH, config.n_embd)
    seen["logits"] = tuple(model(ids).shape)
    for stage, shapes in through_experts.items():
        rows = sum(shape[0] for shape in shapes)
        assert rows == BATCH_SIZE * LENGTH * config.n_expert_active * config.n_layer
        seen[stage] = (BATCH_SIZE, LENGTH, shapes[0][1])

    reported = {stage.name: stage.shape for stage in activations(config, BATCH_SIZE, LENGTH, "cpu")}
    inside_a_stage = re.compile(r".*\.(attn|mlp|experts\.\*|q_norm|k_norm)|lm_head")  # or the same as a last layer's
    assert reported == {name: shape for name, shape in seen.items() if not inside_a_stage.fullmatch(name)}


@pytest.mark.parametrize("kind", ["gpt2", "llama untied", "qwen3", "mixtral", "relu", "relu2"])
def test_flops_are_those_of_the_matrix_products(kind: str) -> None:
    """The formula also counts two operations for each bias and norm weight, which no matrix product has."""
    model = GPT(variant(kind))
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):  # it knows no fused kernel of CPUs
        model(torch.zeros(BATCH_SIZE, LENGTH, dtype=torch.long))
    vectors = sum(parameter.numel() for parameter in model.parameters() if parameter.dim() == 1)
    forward = forward_flops(model.config, LENGTH)
    assert counter.get_total_flops() == BATCH_SIZE * LENGTH * (forward - 2 * vectors)
    assert training_flops(model.config, LENGTH) == 3 * forward


def test_a_window_saves_attention() -> None:
    whole, windowed = (training_flops(variant(name), 12) for name in ("llama", "mistral"))
    assert whole - windowed == 12 * 16 * 3 * (12 - 5)


def test_flops_of_gpt2_are_those_of_nanogpt() -> None:
    """nanoGPT's estimate_mfu for GPT-2 at 1,024 tokens: 6 · 123,653,376 + 12 · 12 · 12 · 64 · 1024."""
    assert inspect(preset="gpt2").flops.training_per_token == 855_166_464


def test_memory_grows_with_the_batch() -> None:
    one, many = (inspect(preset="nano", batch_size=size).memory for size in (1, 8))
    assert many.training.activations == 8 * one.training.activations
    assert many.sampling.cache == 8 * one.sampling.cache == 8 * 128 * one.cache_per_token
