"""8-bit weights: within the known error of float32, and rows that do not depend on each other."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from gptcli.errors import DeviceError, UsageError
from gptcli.model import int8
from gptcli.model.cache import KVCache
from gptcli.model.gpt import GPT
from gptcli.model.int8 import Int8GPT, Int8Linear
from tests.model.reference import random_model
from tests.model.variants import VARIANTS, variant

INSIDE, OUTSIDE = 40, 24
SHAPES = ("even", "positive", "negative", "zero", "tiny", "one large")


def rows_of(shape: str) -> Tensor:
    """(5, INSIDE) inputs of different sizes in one batch."""
    x = torch.randn(5, INSIDE, generator=torch.Generator().manual_seed(1)) * torch.logspace(-2, 2, 5)[:, None]
    if shape == "one large":
        x[:, 7] *= 50
    changes = {"positive": x.abs(), "negative": -x.abs(), "zero": torch.zeros_like(x), "tiny": x * 1e-6}
    return changes.get(shape, x)


def layer(*, bias: bool = True) -> tuple[Int8Linear, Tensor, Tensor | None]:
    """A layer, and the float32 weights and bias that it was made from."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(OUTSIDE, INSIDE, generator=generator)
    weight[3] *= 100
    weight[4] = 0
    values = torch.randn(OUTSIDE, generator=generator) if bias else None
    return Int8Linear(weight, values), weight, values


def check_error(shape: str) -> None:
    """Half a step of every input times its weight, and half a step of every weight times its input, and no more."""
    product, weight, bias = layer()
    x = rows_of(shape)
    low, high = x.amin(1, keepdim=True).clamp(max=0), x.amax(1, keepdim=True).clamp(min=0)
    step = ((high - low) / (127 if product.seven_bits else 255)).clamp(min=int8.MIN_STEP)  # (5, 1)
    scale = weight.abs().amax(1) / 127  # (OUTSIDE)
    of_inputs = step * (weight.abs() + scale[:, None] / 2).sum(1)  # a whole step, as 0 is moved onto one
    of_weights = x.abs().sum(1, keepdim=True) * scale / 2
    error = (product(x) - F.linear(x, weight, bias)).abs()
    assert (error <= of_inputs + of_weights + 1e-4).all()
    assert shape == "zero" or error.max() > 0


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("vnni", [True, False])
def test_the_error_is_that_of_rounding(shape: str, vnni: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8, "has_vnni", lambda: vnni)
    check_error(shape)


def test_error_check_notices_steps_that_do_not_reach_the_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = int8._steps
    monkeypatch.setattr(int8, "_steps", lambda x, top: (steps(x, top)[0] * 0.7, steps(x, top)[1]))
    with pytest.raises(AssertionError):
        check_error("even")


def check_rows_alone(shape: str, *, bias: bool) -> None:
    product, _, _ = layer(bias=bias)
    x = rows_of(shape)
    together = product(x.view(1, 5, INSIDE))[0]
    alone = torch.cat([product(row.view(1, 1, INSIDE))[0] for row in x])
    assert torch.allclose(together, alone, rtol=3e-7, atol=1e-6)  # the last bit, where nothing fuses


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("vnni", [True, False])
def test_a_row_does_not_depend_on_others(shape: str, bias: bool, vnni: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8, "has_vnni", lambda: vnni)
    check_rows_alone(shape, bias=bias)


def test_rows_check_notices_steps_of_a_whole_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = int8._steps
    monkeypatch.setattr(int8, "_steps", lambda x, top: steps(x.flatten()[None], top))
    with pytest.raises(AssertionError):
        check_rows_alone("even", bias=True)


def both(name: str) -> tuple[GPT, Int8GPT]:
    """A random model in float32, and the same with 8-bit weights."""
    config = variant(name)
    return random_model(config, torch.float32), Int8GPT(random_model(config, torch.float32))


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_stays_near(name: str) -> None:
    plain, quantized = both(name)
    ids = torch.randint(0, 23, (2, 12), generator=torch.Generator().manual_seed(0))
    likely, rounded = plain(ids).log_softmax(-1), quantized(ids).log_softmax(-1)
    divergence = F.kl_div(rounded, likely, log_target=True, reduction="none").sum(-1)
    assert 0 < divergence.median() < 0.01
    assert not any(type(part) is torch.nn.Linear and name != "router" for name, part in quantized.h.named_children())


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "mixtral"])
def test_cached_passes_are_uncached_ones(name: str) -> None:
    _, quantized = both(name)
    ids = torch.randint(0, 23, (1, 12), generator=torch.Generator().manual_seed(0))
    cache = KVCache(quantized.config, 1, device=torch.device("cpu"), dtype=torch.float32)
    parts = [quantized(ids[:, :4], cache), *(quantized(ids[:, t : t + 1], cache) for t in range(4, 12))]
    # Not as close as in float32: a number next to the border of two steps may fall to either side of it.
    assert torch.allclose(torch.cat(parts, dim=1), quantized(ids), atol=0.02)
    assert torch.cat(parts, dim=1).argmax(-1).equal(quantized(ids).argmax(-1))


def test_the_loss_is_that_of_the_logits() -> None:
    _, quantized = both("softcap")
    ids = torch.randint(0, 23, (100, 12), generator=torch.Generator().manual_seed(0))
    hidden = quantized.hidden(ids[:, :-1])
    expected = F.cross_entropy(quantized.head(hidden).flatten(0, 1), ids[:, 1:].flatten(), reduction="sum")
    assert quantized.summed_loss(hidden, ids[:, 1:]).item() == pytest.approx(expected.item(), rel=1e-5)


def trained(text: Tensor) -> GPT:
    """A small model that knows one text (T) by heart, near enough."""
    torch.manual_seed(0)
    model = GPT(variant("gpt2", n_embd=32, block_size=text.numel()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(60):
        hidden = model.hidden(text[None, :-1])
        loss = F.cross_entropy(model.head(hidden)[0], text[1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval().requires_grad_(False)


def test_a_trained_model_says_the_same() -> None:
    text = torch.randint(0, 23, (48,), generator=torch.Generator().manual_seed(3))
    plain = trained(text)(text[None])[0].argmax(-1)
    rounded = Int8GPT(trained(text))(text[None])[0].argmax(-1)
    assert (plain[:-1] == text[1:]).float().mean() > 0.9, "it has learned the text"
    assert (plain == rounded).float().mean() > 0.95


def test_what_cannot_be_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(variant("gpt2"), torch.float32)
    with pytest.raises(UsageError, match="float32"):
        Int8GPT(random_model(variant("gpt2"), torch.float64))
    with pytest.raises(DeviceError, match="need a CPU"):
        int8.require_int8(torch.device("meta"), torch.float32)
    monkeypatch.setattr(int8, "ENGINE", "an engine of the future")
    with pytest.raises(DeviceError, match="no 8-bit kernels"):
        Int8GPT(model)
