"""The parts of the model against worked answers; test_variants.py has the whole of it."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from gptcli.config import ModelConfig
from gptcli.config.presets import PRESETS, preset
from gptcli.model import gpt
from gptcli.model.gpt import GPT, MLP, attend
from tests.conftest import ROOT
from tests.model.reference import attention_weights, gelu

TINY = ModelConfig(vocab_size=11, n_layer=2, n_head=2, n_embd=8, block_size=8)


def test_layer_norm_has_mean_0_and_deviation_1_before_scale() -> None:
    model = GPT(TINY)
    x = 5 + 3 * torch.randn(4, 7, 8)
    normed = model.h[0].ln_1(x)
    assert torch.allclose(normed.mean(-1), torch.zeros(4, 7), atol=1e-5)
    assert torch.allclose(normed.std(-1, correction=0), torch.ones(4, 7), atol=1e-3)


def test_mlp_uses_the_tanh_form_of_gelu() -> None:
    # Values of x Φ(x) in its tanh form, to six places.
    x = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0], dtype=torch.float64)
    known = torch.tensor([-0.045402, -0.158808, 0.0, 0.841192, 1.954598], dtype=torch.float64)
    assert torch.allclose(gelu(x), known, atol=1e-6)
    mlp = MLP(TINY).double()
    with torch.no_grad():
        mlp.c_fc.weight.copy_(torch.eye(32, 8))
        mlp.c_proj.weight.copy_(torch.eye(8, 32))
        mlp.c_fc.bias.zero_()
        mlp.c_proj.bias.zero_()
        assert torch.allclose(mlp(F.pad(x, (0, 3)))[:5], known, atol=1e-6)


def test_ids_become_logits() -> None:
    assert GPT(TINY)(torch.randint(11, (2, 8))).shape == (2, 8, 11)


def product_attention_weights(q: Tensor, k: Tensor) -> Tensor:
    """What the product's attention weighs values with: its answer when value number s is the unit vector s."""
    return attend(q, k, torch.eye(k.shape[2], dtype=q.dtype).expand(*k.shape[:2], -1, -1))


def check_attention_weights() -> None:
    q, k = torch.randn(2, 3, 2, 5, 5, dtype=torch.float64).unbind(0)  # 2 of (3, 2, 5, 5): T = D, as V must be
    weights = product_attention_weights(q, k)  # (3, 2, 5, 5)
    assert torch.allclose(weights.sum(-1), torch.ones(3, 2, 5, dtype=torch.float64), atol=1e-12)
    assert not weights.triu(1).any()
    assert torch.allclose(weights, attention_weights(q, k), atol=1e-12)
    # New queries behind cached keys: the last rows of the same matrix.
    for new in (1, 2, 4):
        late = product_attention_weights(q[:, :, -new:], k)
        assert torch.allclose(late, weights[:, :, -new:], atol=1e-12)


def test_attention_weights() -> None:
    check_attention_weights()


def test_attention_weights_notice_a_missing_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = F.scaled_dot_product_attention
    monkeypatch.setattr(gpt.F, "scaled_dot_product_attention", lambda q, k, v, **options: plain(q, k, v))
    with pytest.raises(AssertionError):
        check_attention_weights()


PARAMETERS = {
    ("nano", 65): 94_176,
    ("tiny", 65): 818_048,
    ("mini", 65): 2_731_200,
    ("small", 65): 10_770_816,
    ("medium", 65): 25_515_520,
    ("gpt2", 50_257): 124_439_808,
    ("gpt2-small", 50_257): 124_439_808,
    ("gpt2-medium", 50_257): 354_823_168,
    ("gpt2-large", 50_257): 774_030_080,
    ("gpt2-xl", 50_257): 1_557_611_200,
}


@pytest.mark.parametrize(("name", "vocab_size"), PARAMETERS)
def test_presets_have_their_parameters(name: str, vocab_size: int) -> None:
    config = ModelConfig(vocab_size=vocab_size, **preset(name)["model"])
    with torch.device("meta"):
        model = GPT(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == PARAMETERS[name, vocab_size]


def test_every_preset_is_counted() -> None:
    assert {name for name, _ in PARAMETERS} >= PRESETS.keys()


def test_projections_into_the_residual_stream_start_smaller() -> None:
    torch.manual_seed(0)
    model = GPT(ModelConfig(vocab_size=65, n_layer=8, n_head=4, n_embd=128, block_size=32))
    assert model.h[3].attn.c_attn.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert model.h[3].attn.c_proj.weight.std().item() == pytest.approx(0.02 / 4, rel=0.05)
    assert model.h[3].mlp.c_proj.weight.std().item() == pytest.approx(0.02 / 4, rel=0.05)
    assert all(not value.any() for name, value in model.named_parameters() if name.endswith("bias"))


def test_dropout_only_in_training() -> None:
    model = GPT(TINY.model_copy(update={"dropout": 0.5}))
    ids = torch.randint(11, (1, 8))
    assert not torch.equal(model(ids), model(ids))
    model.eval()
    assert torch.equal(model(ids), model(ids))


def test_more_tokens_than_the_context_are_a_mistake_of_the_caller() -> None:
    with pytest.raises(AssertionError, match="context"):
        GPT(TINY)(torch.zeros(1, 9, dtype=torch.long))


def test_unfilled_model_draws_nothing_and_loads_no_compiler() -> None:
    """It has the names and shapes of the real one; two seconds of imports are saved wherever a model is opened."""
    code = (
        "import sys, torch; from gptcli.config import build_config; from gptcli.model.gpt import GPT, gpt_on_meta\n"
        "config = build_config('nano', vocab_size=65).model; state = torch.get_rng_state()\n"
        "empty = gpt_on_meta(config)\n"
        "assert torch.equal(torch.get_rng_state(), state) and 'torch._dynamo' not in sys.modules\n"
        "real = GPT(config)\n"
        "assert all(p.is_meta for p in empty.parameters())\n"
        "shapes = [[(n, p.shape) for n, p in model.named_parameters()] for model in (empty, real)]\n"
        "assert shapes[0] == shapes[1]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
