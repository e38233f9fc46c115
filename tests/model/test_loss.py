"""The chunked loss against plain cross-entropy: value and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from gptcli.model import loss
from gptcli.model.loss import bits_per_unit, next_token_loss, perplexity

N, C, V = 21, 16, 37


def plain(hidden: Tensor, weight: Tensor, targets: Tensor, softcap: float = 0.0) -> Tensor:
    logits = hidden @ weight.T if hidden.dtype == torch.float64 else (hidden @ weight.T).float()
    return F.cross_entropy(softcap * (logits / softcap).tanh() if softcap else logits, targets)


def gradients(compute: Callable[[Tensor, Tensor, Tensor], Tensor], dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """The mean loss of the same random numbers, and its gradients by hidden states and weights."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(N, C, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    weight = torch.randn(V, C, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    targets = torch.randint(V, (N,), generator=generator)
    value = compute(hidden, weight, targets)
    value.backward()
    assert hidden.grad is not None
    assert weight.grad is not None
    return value.detach(), hidden.grad, weight.grad


def check_chunked(rows: int, softcap: float = 0.0) -> None:
    chunked = gradients(lambda h, w, t: next_token_loss(h, w, t, softcap, chunk_logits=rows * V) / N, torch.float64)
    expected = gradients(lambda h, w, t: plain(h, w, t, softcap), torch.float64)
    for actual, known in zip(chunked, expected, strict=True):
        assert torch.allclose(actual, known, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("softcap", [0.0, 3.0])
@pytest.mark.parametrize("rows", [1, 4, 7, 20, N])
def test_chunked_is_plain(rows: int, softcap: float) -> None:
    check_chunked(rows, softcap)


def test_chunked_notices_a_wrong_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    backward = loss._ChunkedCrossEntropy.backward

    def wrong(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        d_hidden, d_weight, *rest = backward(ctx, *grads)
        return d_hidden * 1.001, d_weight, *rest

    monkeypatch.setattr(loss._ChunkedCrossEntropy, "backward", staticmethod(wrong))
    with pytest.raises(AssertionError):
        check_chunked(4)


def test_chunked_notices_the_slope_of_a_cap_that_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cap = loss.softcapped
    monkeypatch.setattr(loss, "softcapped", lambda logits, softcap: logits + (cap(logits, softcap) - logits).detach())
    check_chunked(N, 0.0)
    with pytest.raises(AssertionError):
        check_chunked(N, 3.0)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 2e-2), (torch.float16, 3e-3)])
def test_chunked_under_autocast_is_near_float32(dtype: torch.dtype, tolerance: float) -> None:
    def compute(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=dtype):
            return next_token_loss(hidden, weight, targets, chunk_logits=4 * V) / N

    for actual, known in zip(gradients(compute, torch.float32), gradients(plain, torch.float32), strict=True):
        assert actual.dtype == torch.float32
        assert (actual - known).abs().max().item() <= tolerance * max(1.0, known.abs().max().item())


def test_no_gradients_where_none_are_needed() -> None:
    hidden, weight, targets = torch.randn(N, C), torch.randn(V, C), torch.randint(V, (N,))
    value = next_token_loss(hidden, weight, targets, chunk_logits=4 * V)
    assert not value.requires_grad
    assert value.item() == pytest.approx(F.cross_entropy(hidden @ weight.T, targets, reduction="sum").item(), rel=1e-5)


def test_perplexity_and_bits() -> None:
    """A loss of 2 ln 2 nats is like 4 equal choices, 2 bits; at 300 tokens for 400 bytes that is 1.5 bits a byte."""
    assert perplexity(2 * math.log(2)) == pytest.approx(4.0)
    assert perplexity(1000.0) == math.inf
    assert bits_per_unit(2 * math.log(2), 300, 400) == pytest.approx(1.5)
