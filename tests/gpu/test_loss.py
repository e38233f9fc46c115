"""The loss in chunks against the plain form in float64, with GPT-2's vocabulary."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from gptcli.model import loss as loss_module
from gptcli.model.devices import autocast
from gptcli.model.loss import next_token_loss, softcapped

VOCABULARY = 50257
SIZES = {"cpu": (180, 8), "cuda": (2500, 256)}
"""Tokens, more than a whole number of chunks, and width, by device type."""
TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 5e-3}


def relative_error(found: Tensor, expected: Tensor) -> float:
    return ((found.double() - expected).norm() / expected.norm()).item()


def check(device: torch.device, dtype: torch.dtype, softcap: float) -> None:
    torch.set_float32_matmul_precision("highest")
    N, C = SIZES[device.type]
    torch.manual_seed(0)
    hidden, weight = torch.randn(N, C).to(device), (0.1 * torch.randn(VOCABULARY, C)).to(device)  # (N, C), (V, C)
    targets = torch.randint(VOCABULARY, (N,)).to(device)  # (N)
    expected = _with_gradients(hidden.double(), weight.double(), targets, plain, softcap)
    with autocast(device, dtype):
        found = _with_gradients(hidden, weight, targets, next_token_loss, softcap)
    for name, part, exact in zip(("loss", "hidden", "weight"), found, expected, strict=True):
        assert relative_error(part, exact) <= TOLERANCES[dtype], name
    with torch.inference_mode(), autocast(device, dtype):
        assert relative_error(next_token_loss(hidden, weight, targets, softcap), expected[0]) <= TOLERANCES[dtype]


def plain(hidden: Tensor, weight: Tensor, targets: Tensor, softcap: float) -> Tensor:
    return F.cross_entropy(softcapped(F.linear(hidden, weight), softcap), targets, reduction="sum")


def _with_gradients(hidden: Tensor, weight: Tensor, targets: Tensor, function: object, softcap: float) -> list[Tensor]:
    hidden, weight = hidden.detach().requires_grad_(), weight.detach().requires_grad_()
    loss = function(hidden, weight, targets, softcap)  # type: ignore[operator]
    return [loss.detach(), *torch.autograd.grad(loss, (hidden, weight))]


@pytest.mark.parametrize("softcap", [0.0, 5.0])
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_chunks_are_the_plain_loss(device: torch.device, dtype: torch.dtype, softcap: float) -> None:
    check(device, dtype, softcap)


def test_the_loss_is_cut_into_chunks(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this the check above would compare the plain form with itself."""
    monkeypatch.setattr(loss_module.F, "cross_entropy", None)
    N, C = SIZES[device.type]
    targets = torch.zeros(N, dtype=torch.long, device=device)
    next_token_loss(torch.zeros(N, C, device=device), torch.zeros(VOCABULARY, C, device=device), targets)


def test_control_a_token_that_is_left_out(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = next_token_loss
    monkeypatch.setitem(globals(), "next_token_loss", lambda h, w, t, cap: whole(h[1:], w, t[1:], cap))
    with pytest.raises(AssertionError):
        check(device, torch.float32, 0.0)
