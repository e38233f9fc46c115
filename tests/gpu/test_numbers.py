"""Training on a device against float64 on the CPU: loss, every gradient, and the weights after 20 updates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from gptcli.config import ModelConfig, OptimConfig
from gptcli.model.gpt import GPT
from gptcli.training.gradients import accumulate_gradients
from gptcli.training.optimizer import Optimizer
from tests.model.variants import variant

CPU = torch.device("cpu")
UPDATES = 20
SIZES: dict[str, dict[str, Any]] = {
    "cpu": {"vocab_size": 60, "n_layer": 2, "n_head": 2, "n_embd": 32, "block_size": 16},
    "cuda": {"vocab_size": 300, "n_layer": 2, "n_head": 2, "n_embd": 128, "block_size": 64},
}
RECIPE = OptimConfig(lr=1e-3, eps=1e-4, schedule="constant", warmup_steps=0)
"""Its epsilon keeps gradients that are zero but for rounding, such as those of the biases of keys, from becoming
updates of full size."""


@dataclass(frozen=True)
class Tolerance:
    """Largest relative errors: of the loss, of a gradient, of the change of all weights."""

    loss: float
    gradient: float
    change: float


TOLERANCES = {
    "float32": Tolerance(1e-5, 5e-5, 1e-4),
    "tf32": Tolerance(2e-4, 1e-2, 1e-2),
    "bfloat16": Tolerance(1e-3, 3e-2, 3e-2),
    "float16": Tolerance(2e-4, 1e-2, 1e-2),
}
"""Ten times what a CPU needs in the same dtype, or more; TF32 rounds as float16 does."""
MODELS: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "qwen3": {"n_kv_head": 1},
    "mistral": {"n_kv_head": 1, "sliding_window": 7},
    "softcap": {},
    "mixtral": {"n_expert_active": 4},
}
"""Changes by variant. All experts are active, since rounding may exchange those that are hardly chosen."""


@dataclass(frozen=True)
class Outcome:
    """What a training computed, in float64 on the CPU."""

    losses: Tensor
    gradients: dict[str, Tensor]
    """Of the first update."""
    change: Tensor
    """Of all weights in all updates."""


def trained(config: ModelConfig, device: torch.device, dtype: torch.dtype, begin: Callable[[GPT], None]) -> Outcome:
    """Train a model from the same weights on the same tokens; `begin` is called with it before the first update."""
    torch.manual_seed(0)
    model = GPT(config)
    model = model.to(device, torch.float64 if dtype is torch.float64 else torch.float32)
    model.fill_positions()
    begin(model)
    optimizer = Optimizer(model, RECIPE, dtype)
    first, losses, gradients = weights_of(model), [], {}
    random = torch.Generator().manual_seed(1)
    for _ in range(UPDATES):
        ids = torch.randint(config.vocab_size, (4, config.block_size + 1), generator=random).to(device)
        loss = accumulate_gradients(
            model, model.hidden, ids, micro_batch_size=4, dtype=dtype, backward=optimizer.backward
        )
        scale = optimizer.scaler.get_scale()
        if not gradients:
            gradients = {name: wide(parameter.grad) / scale for name, parameter in model.named_parameters()}
        optimizer.step(RECIPE.lr, loss)
        losses.append(wide(loss))
    assert optimizer.failure() == ""
    assert optimizer.skips.item() == 0
    return Outcome(torch.stack(losses), gradients, weights_of(model) - first)


def weights_of(model: GPT) -> Tensor:
    return torch.cat([wide(parameter).flatten() for parameter in model.parameters()])


def wide(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor.detach().cpu().double()


def errors(found: Outcome, expected: Outcome) -> Tolerance:
    """The relative errors. Gradients much smaller than the average one are compared with that."""
    norms = {name: gradient.norm() for name, gradient in expected.gradients.items()}
    average = torch.stack([*norms.values()]).norm() / len(norms) ** 0.5
    gradient = max(
        ((found.gradients[name] - expected.gradients[name]).norm() / max(norm, 0.1 * average)).item()
        for name, norm in norms.items()
    )
    change = (found.change - expected.change).norm() / expected.change.norm()
    loss = ((found.losses - expected.losses) / expected.losses).abs().max()
    return Tolerance(loss.item(), gradient, change.item())


def check(device: torch.device, name: str, mode: str, begin: Callable[[GPT], None] = lambda model: None) -> Tolerance:
    """Fails unless training stays within the tolerances of `mode`; returns the errors."""
    config = variant(name, **SIZES[device.type], **MODELS[name])
    torch.set_float32_matmul_precision("high" if mode == "tf32" else "highest")
    dtype = torch.float32 if mode == "tf32" else getattr(torch, mode)
    expected = trained(config, CPU, torch.float64, lambda model: None)
    found = errors(trained(config, device, dtype, begin), expected)
    allowed = TOLERANCES[mode]
    assert found.loss <= allowed.loss, found
    assert found.gradient <= allowed.gradient, found
    assert found.change <= allowed.change, found
    return found


@pytest.mark.parametrize("mode", TOLERANCES)
@pytest.mark.parametrize("name", MODELS)
def test_training_is_close_to_float64(
    device: torch.device, name: str, mode: str, record_property: Callable[[str, object], None]
) -> None:
    if device.type == "cpu" and (mode == "tf32" or name == "softcap"):
        pytest.skip("a CPU has no TF32, and four models are enough")
    if device.type == "cuda" and mode == "bfloat16" and not torch.cuda.is_bf16_supported(including_emulation=False):
        pytest.skip("this GPU has no bfloat16 units")
    record_property("errors", str(check(device, name, mode)))


@pytest.mark.parametrize("mode", ["float32", "bfloat16"])
def test_control_a_weight_that_is_wrong(device: torch.device, mode: str) -> None:
    def spoil(model: GPT) -> None:
        with torch.no_grad():
            model.h[1].mlp.c_fc.weight[:8].add_(0.05)

    with pytest.raises(AssertionError):
        check(device, "gpt2", mode, spoil)


def test_control_bfloat16_is_not_float32(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOLERANCES, "bfloat16", TOLERANCES["float32"])
    with pytest.raises(AssertionError):
        check(device, "gpt2", "bfloat16")
