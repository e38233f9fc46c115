"""The forms of attention on CUDA: equal to the plain one, and taken by a fused kernel on every GPU.

Which kernel torch would choose is computed from its rules, as `aten/src/ATen/native/transformers/cuda/sdp_utils.cpp`
has them, for GPUs that these tests imitate. No kernel runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from gptcli.generation import context_window
from gptcli.generation.context_window import ContextWindow
from gptcli.model import attention
from gptcli.model.attention import attend
from tests.model.reference import random_model
from tests.model.variants import variant

B, H, G, D, S = 2, 6, 2, 8, 9
CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "whole sequence": (S, {}),
    "window": (S, {"window": 4}),
    "behind a cache": (4, {}),
    "behind a cache, window": (4, {"window": 5}),
    "decode step": (1, {}),
    "recorded decode step": (1, {"mask": torch.arange(S)[None] < 6}),
}
"""Queries, and options of `attend`."""


@pytest.fixture
def no_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel takes grouped heads."""
    monkeypatch.setattr(attention, "_takes_groups", lambda *_given, **_options: False)


def heads(tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = (B, H, tokens, D), (B, G, S, D), (B, G, S, D)
    q, k, v = (torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes)
    return q, k, v


def outcome(tokens: int, options: dict[str, Any]) -> list[Tensor]:
    """The result of attention, and its gradients."""
    inputs = heads(tokens)
    out = attend(*inputs, **options)
    weights = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view_as(out)
    return [out, *torch.autograd.grad((out * weights).sum(), inputs)]


def check_forms(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = outcome(*CASES[name])
    monkeypatch.setattr(attention, "_takes_groups", lambda *_given, **_options: False)
    for one, other in zip(plain, outcome(*CASES[name]), strict=True):
        assert one.shape == other.shape
        assert (one - other).abs().max() <= 1e-13


@pytest.mark.parametrize("name", CASES)
def test_other_forms_are_the_plain_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_forms(name, monkeypatch)


@pytest.mark.parametrize(("name", "function"), [("window", "_expanded"), ("decode step", "_folded")])
def test_heads_in_another_order_are_noticed(name: str, function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = getattr(attention, function)
    monkeypatch.setattr(attention, function, lambda *given: plain(*given).flip(1))
    with pytest.raises(AssertionError):
        check_forms(name, monkeypatch)


@pytest.mark.usefixtures("no_groups")
def test_model_without_grouped_kernels_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(variant("qwen3 windows"), torch.float64)
    ids = torch.arange(24).view(2, 12) % model.config.vocab_size
    other = model(ids)
    monkeypatch.undo()
    assert (model(ids) - other).abs().max() <= 1e-12


DTYPES = (torch.float32, torch.float16, torch.bfloat16)
GPUS = {"T4": (7, 5), "V100": (7, 0), "A100": (8, 0), "H100": (9, 0)}


class Gpu:
    """An imitated GPU: torch's rules for its fused kernels, and a record of the kernels that ran."""

    def __init__(self, capability: tuple[int, int], *, efficient_takes_groups: bool) -> None:
        self.capability = capability
        self.efficient_takes_groups = efficient_takes_groups
        self.kernels: list[str] = []
        self.key_heads: list[int] = []
        self.asked = 0

    def flash(self, case: Any) -> bool:
        self.asked += 1
        half = case.query.dtype in (torch.float16, torch.bfloat16)
        return self.capability >= (8, 0) and half and case.attn_mask is None and self._heads(case, takes_groups=True)

    def efficient(self, case: Any) -> bool:
        dtypes = (torch.float16, torch.float32, *([torch.bfloat16] if self.capability >= (8, 0) else []))
        tensor_cores = self.capability >= (8, 0) or case.query.dtype != torch.float32
        aligned = 1 if not tensor_cores else 16 // case.query.dtype.itemsize
        fits = case.query.dtype in dtypes and case.query.shape[3] % aligned == 0
        return fits and self._heads(case, takes_groups=self.efficient_takes_groups)

    def _heads(self, case: Any, *, takes_groups: bool) -> bool:
        same = case.query.shape[1] == case.key.shape[1] == case.value.shape[1]
        return same or (case.enable_gqa and takes_groups)

    def attention(
        self, query: Tensor, key: Tensor, value: Tensor, *, attn_mask: Tensor | None = None, **options: Any
    ) -> Tensor:
        low = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda")
        query, key, value = (part.to(low or part.dtype) for part in (query, key, value))
        case = SimpleNamespace(
            query=query, key=key, value=value, attn_mask=attn_mask, enable_gqa=options.get("enable_gqa")
        )
        self.key_heads.append(key.shape[1])
        kernels = {"flash": self.flash, "efficient": self.efficient, "math": lambda _case: True}
        self.kernels.append(next(name for name, takes in kernels.items() if takes(case)))
        return torch.empty_like(query)


@pytest.fixture(params=[False, True], ids=["torch 2.11", "efficient kernel takes groups"])
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes an imitated GPU the one that torch asks."""

    def imitate(name: str) -> Gpu:
        made = Gpu(GPUS[name], efficient_takes_groups=request.param)
        monkeypatch.setattr(torch.backends.cuda, "can_use_flash_attention", made.flash)
        monkeypatch.setattr(torch.backends.cuda, "can_use_efficient_attention", made.efficient)
        monkeypatch.setattr(attention.F, "scaled_dot_product_attention", made.attention)
        return made

    attention._ask.cache_clear()
    yield imitate
    attention._ask.cache_clear()


def on_cuda(name: str, dtype: torch.dtype, share: int, dropout: float) -> None:
    """Attention of a case on fake CUDA tensors."""
    tokens, options = CASES[name]
    shapes = (B, H, tokens, D), (B, H // share, S, D), (B, H // share, S, D)
    q, k, v = (torch.empty(shape, device="cuda", dtype=dtype) for shape in shapes)
    mask = torch.ones(1, S, dtype=torch.bool, device="cuda") if "mask" in options else None
    out = attend(q, k, v, dropout if tokens > 1 else 0.0, **options | {"mask": mask})
    assert out.shape == q.shape


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    ("card", "dtype"),
    [(card, dtype) for card in GPUS for dtype in DTYPES if dtype is not torch.bfloat16 or GPUS[card] >= (8, 0)],
)
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_fused_kernel_runs_on_every_gpu(card: str, dtype: torch.dtype, name: str, dropout: float, gpu: Any) -> None:
    imitated = gpu(card)
    with FakeTensorMode():
        on_cuda(name, dtype, H // G, dropout)
        on_cuda(name, dtype, 1, dropout)
    masked = "window" in name or "behind" in name or "recorded" in name
    flash = GPUS[card] >= (8, 0) and dtype is not torch.float32 and not masked
    assert imitated.kernels == ["flash" if flash else "efficient"] * 2


@pytest.mark.parametrize(("card", "name"), [("T4", "whole sequence"), ("A100", "window"), ("A100", "decode step")])
def test_plain_form_would_take_the_slow_kernel(card: str, name: str, gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float32, as `eval` and samples in training use it."""
    imitated = gpu(card)
    monkeypatch.setattr(attention, "_takes_groups", lambda *_given, **_options: True)
    with FakeTensorMode():
        on_cuda(name, torch.float32, H // G, 0.0)
    assert imitated.kernels == ["efficient" if imitated.efficient_takes_groups else "math"]


def test_torch_is_asked_once(gpu: Any) -> None:
    imitated = gpu("A100")
    with FakeTensorMode():
        for _ in range(3):
            on_cuda("whole sequence", torch.bfloat16, H // G, 0.0)
    asked_by_the_kernels = 3
    assert imitated.asked == 1 + asked_by_the_kernels


def test_queries_in_float32_under_autocast_count_as_16_bits(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Normalized queries and keys are float32 before attention."""
    imitated = gpu("A100")
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _device_type: True)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda _device_type: torch.bfloat16)
    with FakeTensorMode():
        on_cuda("whole sequence", torch.float32, H // G, 0.0)
    assert imitated.kernels == ["flash"]
    assert imitated.key_heads == [G]  # not copied for each head


@pytest.mark.filterwarnings("ignore")  # of torch's compiler
@pytest.mark.parametrize("takes", [True, False])
def test_the_choice_is_a_constant_of_compiled_code(takes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a graph break, in which either form would be compiled by itself."""

    traced: list[bool] = []

    def case_of(q: Tensor, *_given: object, **_options: object) -> bool:
        return attention.cuda_takes_groups(q.device, q.dtype, D, False, False, 0.0, False)

    def ask(*_given: object) -> bool:
        traced.append(torch.compiler.is_dynamo_compiling())
        return takes

    monkeypatch.setattr(attention, "_ask", ask)
    monkeypatch.setattr(attention, "_takes_groups", case_of)
    torch.compiler.reset()
    q, k, v = (part.detach() for part in heads(S))
    compiled = torch.compile(attend, backend="eager", fullgraph=True)
    out = compiled(q, k, v)
    assert traced == [False]  # called by the compiler, and no part of the code that it compiled
    assert torch.allclose(out, attend(q, k, v))
    torch.compiler.reset()


def test_generation_on_cuda_turns_cudnn_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefill and every step, and no longer."""
    model = random_model(variant("qwen3"), torch.float32).requires_grad_(False).eval()
    enabled: list[bool] = []
    hidden = model.hidden
    monkeypatch.setattr(
        model, "hidden", lambda *given: (enabled.append(torch.backends.cuda.cudnn_sdp_enabled()), hidden(*given))[1]
    )
    window = ContextWindow(model, 1)
    cuda, plain = torch.device("cuda"), context_window.generation_kernels
    monkeypatch.setattr(context_window, "generation_kernels", lambda _device: plain(cuda))
    window.prefill(torch.tensor([[1, 2, 3]]))
    window.append(torch.tensor([[4]]))
    assert enabled == [False, False]
    assert torch.backends.cuda.cudnn_sdp_enabled()
    with pytest.raises(KeyError), plain(cuda):
        raise KeyError
    assert torch.backends.cuda.cudnn_sdp_enabled()
    with plain(torch.device("cpu")):
        assert torch.backends.cuda.cudnn_sdp_enabled()
