"""Each architecture field and family against a plain reference; causality; the loss of an untrained model."""

from __future__ import annotations

import math
import zlib
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from gptcli.config import ModelConfig
from gptcli.model import gpt, position
from gptcli.model.gpt import GPT
from tests.model.reference import assert_close, random_model, reference_logits
from tests.model.variants import SHAPE, VARIANTS, variant


def some_ids(config: ModelConfig, batch: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.randint(config.vocab_size, (batch, config.block_size), generator=generator)


def check_reference(name: str, dtype: torch.dtype = torch.float64) -> None:
    model = random_model(variant(name), dtype)
    ids = some_ids(model.config)
    assert_close(model(ids), reference_logits(model, ids))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", VARIANTS)
def test_model_is_the_reference(name: str, dtype: torch.dtype) -> None:
    check_reference(name, dtype)


def test_every_knob_changes_the_logits() -> None:
    """No two variants compute the same, so that none of them is tested by another's name only."""
    logits = {}
    for name in VARIANTS:
        model = random_model(variant(name))
        with torch.no_grad():
            for part, parameter in model.named_parameters():  # the same numbers in all, however many there are
                generator = torch.Generator().manual_seed(zlib.crc32(part.encode()))
                parameter.copy_(torch.randn(parameter.numel(), generator=generator).view_as(parameter))
        logits[name] = model(some_ids(model.config))[0]
    names = list(logits)
    same = [(a, b) for i, a in enumerate(names) for b in names[:i] if torch.allclose(logits[a], logits[b], atol=1e-9)]
    assert same == []


def _unmasked(plain: Any) -> Any:
    return lambda q, k, v, dropout=0.0, window=None, mask=None: plain(q, k, v, dropout)


def _tiled(plain: Any) -> Any:
    """Shares heads of keys and values in another order: 0 1 0 1 instead of 0 0 1 1."""

    def attention(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        share = q.shape[1] // k.shape[1]
        out: Tensor = plain(q, k.repeat(1, share, 1, 1), v.repeat(1, share, 1, 1), **options | {"enable_gqa": False})
        return out

    return attention


CONTROLS: dict[str, tuple[Any, str, Any]] = {
    "rope": (gpt, "rotate", lambda plain: lambda x, rotation: x),
    "rope_scaling": (
        *(gpt, "rotations"),
        lambda plain: lambda config: plain(config.model_copy(update={"rope_scaling": 1.0})),
    ),
    "sinusoidal": (gpt, "sinusoids", lambda plain: lambda config, deviation: plain(config, 1.01 * deviation)),
    "rmsnorm": (gpt.F, "rms_norm", lambda plain: lambda x, shape, weight, epsilon: plain(x, shape, weight, 1e-5)),
    "qk_norm": (gpt.F, "rms_norm", lambda plain: lambda x, shape, weight, epsilon: plain(x, shape, None, epsilon)),
    "relu": (gpt.F, "relu", lambda plain: F.gelu),
    "relu2": (gpt.F, "relu", lambda plain: F.gelu),
    "swiglu": (gpt.F, "silu", lambda plain: F.gelu),
    "grouped": (gpt.F, "scaled_dot_product_attention", _tiled),
    "window": (gpt, "attend", _unmasked),
    "alternate windows": (
        *(ModelConfig, "window_of"),
        lambda plain: lambda config, layer: plain(config, layer + 1),
    ),
    "softcap": (gpt, "softcapped", lambda plain: lambda logits, cap: logits),
    "experts": (Tensor, "topk", lambda plain: lambda x, k, dim: plain(x, k, dim=dim, largest=False)),
    "post-norm": (gpt.MLP, "forward", lambda plain: lambda self, x, routing: plain(self, x, routing) * 1.01),
}
"""A knob, and a line that computes it wrongly."""


@pytest.mark.parametrize("name", CONTROLS)
def test_control_a_knob_that_acts_otherwise(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, wrong = CONTROLS[name]
    monkeypatch.setattr(owner, attribute, wrong(getattr(owner, attribute)))
    with pytest.raises(AssertionError):
        check_reference(name)


def check_causality(name: str) -> None:
    """Changing token t changes no logits before t, none that does not see it, and does change those at t."""
    config = variant(name)
    model, T = random_model(config), config.block_size
    windows = [config.window_of(layer) or T for layer in range(config.n_layer)]
    reach = sum(windows) - config.n_layer  # how far back a token sees through all layers
    ids = some_ids(config, 1)
    before = model(ids)
    for t in range(T):
        changed = ids.clone()
        changed[0, t] = (ids[0, t] + 1) % config.vocab_size
        after = model(changed)
        unlike = ((after - before).abs() > 1e-13).any(-1)[0]  # (T); kernels round differently from machine to machine
        assert not unlike[:t].any()
        assert not unlike[t + reach + 1 :].any()
        assert unlike[t]


@pytest.mark.parametrize("name", VARIANTS)
def test_causality(name: str) -> None:
    check_causality(name)


def test_causality_notices_a_look_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "tril", lambda self, diagonal=0: self)
    with pytest.raises(AssertionError):
        check_causality("window")


def check_first_loss(name: str) -> None:
    """An untrained model knows nothing: its loss is near that of guessing evenly, ln V."""
    torch.manual_seed(0)
    config = variant(name, vocab_size=65, n_layer=4, n_embd=64, block_size=32)
    ids = torch.randint(65, (8, 33))
    logits = GPT(config)(ids[:, :-1])  # (8, 32, 65)
    loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    assert loss.item() == pytest.approx(math.log(65), abs=0.05)


@pytest.mark.parametrize("name", VARIANTS)
def test_first_loss_is_near_ln_v(name: str) -> None:
    check_first_loss(name)


def test_first_loss_notices_large_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpt, "INITIAL_DEVIATION", 0.5)
    with pytest.raises(AssertionError):
        check_first_loss("qwen3")


def test_rotations_keep_distances() -> None:
    """The product of a query and a key depends on how far they are apart, not on where they stand."""
    config = variant("rope", block_size=40)
    table = position.rotations(config)  # (2, 40, 1, 4)
    q, k = torch.randn(2, 1, 1, 1, config.head_dim, dtype=torch.float64).expand(-1, -1, 40, -1, -1).unbind(0)
    products = position.rotate(q, table)[0, :, 0] @ position.rotate(k, table)[0, :, 0].T  # (40, 40)
    for distance in (0, 3, 17):
        diagonal = products.diagonal(distance)
        assert torch.allclose(diagonal, diagonal[0].expand_as(diagonal), atol=1e-12)
    assert not torch.allclose(products[0, 3], products[0, 4], atol=1e-3)


def test_widths_inside_the_mlp() -> None:
    """SwiGLU has three matrices instead of two, so that it is narrower for the same number of parameters."""
    assert ModelConfig.model_validate(SHAPE | {"n_embd": 768}).mlp_width == 4 * 768
    assert ModelConfig.model_validate(SHAPE | {"n_embd": 768, "mlp": "swiglu"}).mlp_width == 2048
    assert ModelConfig.model_validate(SHAPE | {"n_embd": 64, "mlp": "swiglu"}).mlp_width == 192  # 170.7, rounded up


def check_order_is_lost(kind: str) -> None:
    """Without positions, one layer sees which tokens came before, and not in which order."""
    model = random_model(variant("no positions", position=kind, n_layer=1))
    there, back = model(torch.tensor([[3, 8, 5]])), model(torch.tensor([[8, 3, 5]]))
    assert_close(there[:, -1], back[:, -1])


def test_without_positions_the_order_is_lost() -> None:
    check_order_is_lost("none")


@pytest.mark.parametrize("kind", ["learned", "sinusoidal", "rope"])
def test_positions_keep_the_order(kind: str) -> None:
    with pytest.raises(AssertionError):
        check_order_is_lost(kind)
