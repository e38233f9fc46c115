"""Muon against a plain implementation, with singular value decompositions and one matrix at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gptcli.config import ModelConfig, OptimConfig
from gptcli.dataset.folder import Dataset
from gptcli.model.gpt import GPT
from gptcli.training import muon
from gptcli.training.muon import ADAMW_SIZE, COEFFICIENTS, ITERATIONS, orthogonal
from gptcli.training.optimizer import Optimizer
from tests.runs.small_runs import assert_same_end, run, series

CONFIG = ModelConfig(
    vocab_size=11, n_layer=2, n_head=4, n_kv_head=2, n_embd=16, block_size=8, n_expert=2, mlp="swiglu", qk_norm=True
)
LR, DECAY, MOMENTUM = 0.01, 0.1, 0.9
OPTIM = OptimConfig(optimizer="muon", lr=LR, weight_decay=DECAY, momentum=MOMENTUM, grad_clip=0)


def steepened(matrix: Tensor) -> Tensor:
    """The polynomial applied to the singular values themselves."""
    a, b, c = COEFFICIENTS
    u, s, vh = torch.linalg.svd(matrix, full_matrices=False)
    s = s / s.norm()
    for _ in range(ITERATIONS):
        s = a * s + b * s**3 + c * s**5
    return u @ s.diag() @ vh


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4)])
def test_products_do_what_the_polynomial_does_to_singular_values(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrices = torch.randn(3, *shape, dtype=torch.float64)
    for made, given in zip(orthogonal(matrices), matrices, strict=True):
        assert torch.allclose(made, steepened(given), rtol=0, atol=1e-6)
        assert ((torch.linalg.svdvals(made) > 0.6) & (torch.linalg.svdvals(made) < 1.3)).all()


def plain_update(weight: Tensor, buffer: Tensor, gradient: Tensor, rows: list[int]) -> tuple[Tensor, Tensor]:
    """The next weight and buffer."""
    buffer = MOMENTUM * buffer + gradient
    ahead = gradient + MOMENTUM * buffer
    parts = [
        part * (1 - LR * DECAY) - LR * ADAMW_SIZE * max(part.shape) ** 0.5 * steepened(direction)
        for part, direction in zip(weight.split(rows), ahead.split(rows), strict=True)
    ]
    return torch.cat(parts), buffer


def random_gradients(model: GPT, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, dtype=parameter.dtype, generator=generator)


def check_updates() -> None:
    model = GPT(CONFIG).double()
    optimizer = Optimizer(model, OPTIM, torch.float64)
    assert isinstance(optimizer.other, muon.Muon)
    expected = {
        name: (parameter.detach().clone(), torch.zeros_like(parameter))
        for name, parameter in model.named_parameters()
        if parameter in optimizer.other.rows
    }
    for seed in range(3):
        random_gradients(model, seed)
        gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        optimizer.step(LR, torch.zeros(()))
        for name, (weight, buffer) in expected.items():
            rows = [16, 8, 8] if name.endswith("c_attn.weight") else [len(weight)]
            expected[name] = plain_update(weight, buffer, gradients[name], rows)
    for name, (weight, _) in expected.items():
        assert torch.allclose(model.get_parameter(name), weight, rtol=0, atol=1e-7), name


def test_updates_are_the_plain_ones() -> None:
    check_updates()


def test_control_queries_keys_and_values_as_one_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(muon.torch, "split", lambda tensor, rows: (tensor,))
    with pytest.raises(AssertionError):
        check_updates()


def test_it_takes_the_matrices_of_the_blocks_and_adamw_the_rest() -> None:
    model = GPT(CONFIG)
    optimizer = Optimizer(model, OPTIM, torch.float32)
    assert isinstance(optimizer.other, muon.Muon)
    mine = {name for name, parameter in model.named_parameters() if parameter in optimizer.other.rows}
    matrices = ("attn.c_attn", "attn.c_proj", *(f"mlp.experts.{e}.{m}" for e in (0, 1) for m in ("c_fc", "c_proj")))
    assert mine == {f"h.{block}.{matrix}.weight" for block in (0, 1) for matrix in matrices}
    others = {id(parameter) for group in optimizer.adamw.param_groups for parameter in group["params"]}
    assert others == {id(parameter) for name, parameter in model.named_parameters() if name not in mine}


def test_a_bad_gradient_changes_no_bit() -> None:
    model = GPT(CONFIG)
    optimizer = Optimizer(model, OPTIM, torch.float32)
    random_gradients(model, 0)
    optimizer.step(LR, torch.zeros(()))
    before = {name: tensor.clone() for name, tensor in (model.state_dict() | optimizer.tensors()).items()}
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    model.h[1].mlp.experts[0].c_fc.weight.grad[0, 0] = float("nan")
    optimizer.step(LR, torch.zeros(()))
    after = model.state_dict() | optimizer.tensors()
    assert [name for name in before if not torch.equal(before[name], after[name])] == ["skips", "skips_in_row"]


FLAGS = {"optim.optimizer": "muon", "model.n_expert": 2, "model.qk_norm": True}


def check_resume(dataset: Dataset, folder: Path) -> None:
    run(dataset, folder / "whole", FLAGS)
    run(dataset, folder / "parts", FLAGS, stop_after=10)
    run(dataset, folder / "parts", FLAGS)
    assert_same_end(folder / "whole", folder / "parts")
    assert series(folder / "whole", "train/loss") == series(folder / "parts", "train/loss")


def test_resume_is_exact(dataset: Dataset, tmp_path: Path) -> None:
    check_resume(dataset, tmp_path)


def test_control_a_resume_that_forgets_the_momentum(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Optimizer.load_tensors

    def forgetful(self: Optimizer, tensors: dict[str, Tensor]) -> None:
        plain(self, {name: 0 * value if name.startswith("momentum.") else value for name, value in tensors.items()})

    monkeypatch.setattr(Optimizer, "load_tensors", forgetful)
    with pytest.raises(AssertionError):
        check_resume(dataset, tmp_path)


class Operations(TorchDispatchMode):
    """Counts operations, views aside: on a GPU each is a kernel that the host launches."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


def test_more_layers_are_no_more_operations() -> None:
    counts = []
    for layers in (1, 6):
        model = GPT(CONFIG.model_copy(update={"n_layer": layers}))
        optimizer = muon.Muon(model, OPTIM)
        random_gradients(model, 0)
        with Operations() as operations:
            optimizer.step()
        counts.append(operations.count)
    assert counts[0] == counts[1]
