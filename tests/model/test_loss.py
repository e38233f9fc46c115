"""The chunked loss against plain cross-entropy: value and gradients."""

from __future__ import annotations

import importlib.util
import math
import os
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from gptcli.model import loss
from gptcli.model.fused_loss import fused_kernel
from gptcli.model.loss import Chunks, bits_per_unit, chunk_sizes, next_token_loss, perplexity
from tests.conftest import ROOT

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


def check_chunked(rows: int | None, softcap: float = 0.0, columns: int = V) -> None:
    """In chunks of `rows` tokens, or in the plain form that few logits take."""
    chunks = Chunks(rows, columns) if rows else None
    chunked = gradients(lambda h, w, t: next_token_loss(h, w, t, softcap, chunks=chunks) / N, torch.float64)
    expected = gradients(lambda h, w, t: plain(h, w, t, softcap), torch.float64)
    for actual, known in zip(chunked, expected, strict=True):
        assert torch.allclose(actual, known, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("softcap", [0.0, 3.0])
@pytest.mark.parametrize("rows", [1, 4, 7, 20, N, None])
def test_chunked_is_plain(rows: int | None, softcap: float) -> None:
    check_chunked(rows, softcap)


@pytest.mark.parametrize("softcap", [0.0, 3.0])
@pytest.mark.parametrize("columns", [V + 1, 64])
def test_padded_columns_change_nothing(columns: int, softcap: float) -> None:
    check_chunked(4, softcap, columns)


def test_padding_that_is_not_zero_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = loss._padded
    monkeypatch.setattr(loss, "_padded", lambda *given: plain(*given).index_fill_(0, torch.tensor([V]), 1.0))
    with pytest.raises(AssertionError):
        check_chunked(4, 0.0, 64)


def test_chunked_notices_a_wrong_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    backward = loss._ChunkedCrossEntropy.backward

    def wrong(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        d_hidden, d_weight, *rest = backward(ctx, *grads)
        return d_hidden * 1.001, d_weight, *rest

    monkeypatch.setattr(loss._ChunkedCrossEntropy, "backward", staticmethod(wrong))
    with pytest.raises(AssertionError):
        check_chunked(4)


def test_chunked_notices_the_slope_of_a_cap_that_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cap = loss.softcapped
    monkeypatch.setattr(loss, "softcapped", lambda logits, softcap: logits + (cap(logits, softcap) - logits).detach())
    check_chunked(None, 0.0)
    with pytest.raises(AssertionError):
        check_chunked(None, 3.0)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 2e-2), (torch.float16, 3e-3)])
def test_chunked_under_autocast_is_near_float32(dtype: torch.dtype, tolerance: float) -> None:
    def compute(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=dtype):
            return next_token_loss(hidden, weight, targets, chunks=Chunks(4, V)) / N

    for actual, known in zip(gradients(compute, torch.float32), gradients(plain, torch.float32), strict=True):
        assert actual.dtype == torch.float32
        assert (actual - known).abs().max().item() <= tolerance * max(1.0, known.abs().max().item())


def test_no_gradients_where_none_are_needed() -> None:
    hidden, weight, targets = torch.randn(N, C), torch.randn(V, C), torch.randint(V, (N,))
    value = next_token_loss(hidden, weight, targets, chunks=Chunks(4, V))
    assert not value.requires_grad
    assert value.item() == pytest.approx(F.cross_entropy(hidden @ weight.T, targets, reduction="sum").item(), rel=1e-5)


class Products(TorchDispatchMode):
    """Counts matrix products."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.addmm_)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_evaluation_computes_no_gradient(mode: Any) -> None:
    """A parameter asks for its gradient under inference mode too."""
    hidden, weight = torch.randn(N, C), torch.randn(V, C, requires_grad=True)
    with mode(), Products() as products:
        next_token_loss(hidden, weight, torch.randint(V, (N,)), chunks=Chunks(7, V))
    assert products.count == (9 if mode is torch.enable_grad else 3)


def test_chunks_by_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU as many rows as fit; on CUDA whole tiles, in rows that tensor cores read, by the card's memory."""
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert chunk_sizes(cpu, 50_257) == Chunks(2**23 // 50_257, 50_257)
    rows = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for gigabytes in (1, 8, 16, 141):
        card = SimpleNamespace(total_memory=gigabytes << 30)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device, card=card: card)
        chunks = chunk_sizes(cuda, 50_257)
        assert chunks.columns == 50_304
        assert chunks.rows % 128 == 0
        assert chunks.rows == 128 or chunks.rows * chunks.columns * 8 <= card.total_memory / 32
        rows.append(chunks.rows)
    assert rows == sorted(set(rows))


FUSED = """
import torch
from gptcli.model.loss import _loss
from gptcli.model.triton_loss import fused_loss

generator = torch.Generator().manual_seed(0)
for dtype, near in (torch.float32, 2e-6), (torch.float16, 1e-3), (torch.bfloat16, 8e-3):
    for V in 37, 5000:  # one block of a row, and two of which the second is not full
        for softcap in 0.0, 3.0:
            padded = torch.zeros(6, V + 27, dtype=dtype)
            padded[:, :V] = 4 * torch.randn(6, V, generator=generator)
            padded[0, 5] = 40  # a probability near 1
            targets = torch.tensor([5, 0, V - 1, 1, 2, 3])[:, None]
            plain, fused, kept = padded[:, :V].clone(), padded.clone(), padded[:, :V].clone()
            expected = _loss(plain, targets, softcap, need_grad=True)
            torch.testing.assert_close(fused_loss(kept, targets, softcap, False), expected, rtol=1e-5, atol=0)
            assert torch.equal(kept, padded[:, :V])
            torch.testing.assert_close(fused_loss(fused[:, :V], targets, softcap, True), expected, rtol=1e-5, atol=0)
            torch.testing.assert_close(fused[:, :V], plain, rtol=near, atol=near / 10)
            assert not fused[:, V:].any()
logits = torch.randn(2, 50)
logits[0, 3] = float("nan")
assert fused_loss(logits, torch.tensor([[1], [2]]), 0.0, True).isnan()
assert logits[1].isfinite().all()
"""
"""The kernel in triton's interpreter, which runs on a CPU."""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton comes with CUDA builds of torch")
def test_fused_kernel_is_the_plain_form() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", FUSED], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_kernel_that_cannot_be_built_gives_the_plain_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without a C compiler."""

    class TritonError(Exception):
        pass

    def fail(*_given: object) -> None:
        raise RuntimeError("Failed to find C compiler.")

    choose = fused_kernel.__wrapped__  # without the cache
    monkeypatch.setitem(sys.modules, "triton.errors", SimpleNamespace(TritonError=TritonError))
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: object())
    monkeypatch.setattr(torch, "zeros", lambda *_shape, **_options: None)
    for kernel, chosen in (fail, None), (print, print):
        monkeypatch.setitem(sys.modules, "gptcli.model.triton_loss", SimpleNamespace(fused_loss=kernel))
        assert choose(torch.device("cuda")) is chosen
        assert choose(torch.device("cpu")) is None


def test_perplexity_and_bits() -> None:
    """A loss of 2 ln 2 nats is like 4 equal choices, 2 bits; at 300 tokens for 400 bytes that is 1.5 bits a byte."""
    assert perplexity(2 * math.log(2)) == pytest.approx(4.0)
    assert perplexity(1000.0) == math.inf
    assert bits_per_unit(2 * math.log(2), 300, 400) == pytest.approx(1.5)
