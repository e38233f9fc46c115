"""The kernel that computes attention in each case: never the plain one where a fused one could run.

Every call of `scaled_dot_product_attention` in a pass of the model is watched: which operation it became, and whether a
fused one would have taken the same queries, keys and values.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile

from gptcli.generation.context_window import new_cache
from gptcli.model.attention import generation_kernels
from gptcli.model.cache import StaticCacheView
from gptcli.model.devices import autocast
from gptcli.model.gpt import GPT
from tests.model.reference import random_model
from tests.model.variants import variant

OPERATIONS = {
    "_scaled_dot_product_flash_attention": "flash",
    "_scaled_dot_product_efficient_attention": "efficient",
    "_scaled_dot_product_cudnn_attention": "cudnn",
    "_scaled_dot_product_attention_math": "math",
}
"""Beginnings of the names of operations; the CPU has its own flash kernel."""
FUSED = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION)
"""The last one is turned off for generating text."""
SHAPE = {"vocab_size": 50, "n_layer": 1, "n_head": 4, "n_embd": 256, "block_size": 128, "sliding_window": None}
WINDOW, GROUPED, DROPOUT = {"sliding_window": 32}, {"n_kv_head": 2}, {"dropout": 0.1}
MODELS: dict[str, dict[str, Any]] = {
    "plain": {},
    "grouped": GROUPED,
    "dropout": DROPOUT,
    "grouped, dropout": GROUPED | DROPOUT,
    "window": WINDOW,
    "window, grouped": WINDOW | GROUPED,
    "window, dropout": WINDOW | DROPOUT,
    "window, grouped, dropout": WINDOW | GROUPED | DROPOUT,
}
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def kernel_in(operations: list[str]) -> str:
    """The kernel that a call of attention became, by the names of its operations.

    >>> kernel_in(["aten::scaled_dot_product_attention", "aten::_scaled_dot_product_flash_attention_for_cpu"])
    'flash'
    """
    found = {
        kernel
        for operation in operations
        for beginning, kernel in OPERATIONS.items()
        if operation.removeprefix("aten::").startswith(beginning) and not operation.endswith("_backward")
    }
    (kernel,) = found or {"math"}  # decomposed without an operation of its own
    return kernel


def takes(backend: SDPBackend, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, options: dict[str, Any]) -> bool:
    """Whether a fused kernel computes this with its gradient; keys and values have as many heads as the queries."""
    q, k, v = (part.detach().requires_grad_(torch.is_grad_enabled()) for part in (q, k, v))
    try:
        with warnings.catch_warnings(), sdpa_kernel(backend):
            warnings.simplefilter("ignore")  # torch warns of each reason against the kernel
            result = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)
            if result.requires_grad:  # a kernel without a backward pass is no help in training
                result.sum().backward()
    except RuntimeError:
        return False
    return True


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, list[str]]]]:
    """Collects, for each call of attention, its kernel and the fused ones that could have run."""
    calls: list[tuple[str, list[str]]] = []
    plain = F.scaled_dot_product_attention

    def watching(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **options: Any) -> Tensor:
        with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler:
            result = plain(q, k, v, attn_mask=attn_mask, **options)
        kernel = kernel_in([event.name for event in profiler.events() or []])
        options.pop("enable_gqa", None)
        with monkeypatch.context() as patch:
            patch.setattr(F, "scaled_dot_product_attention", plain)
            k, v = (part.repeat_interleave(q.shape[1] // part.shape[1], 1) for part in (k, v))
            allowed = FUSED if torch.backends.cuda.cudnn_sdp_enabled() else FUSED[:2]
            usable = [backend.name for backend in allowed if takes(backend, q, k, v, attn_mask, options)]
        calls.append((kernel, usable))
        return result

    with monkeypatch.context() as patch:
        patch.setattr(F, "scaled_dot_product_attention", watching)
        yield calls


def train_pass(model: GPT, dtype: torch.dtype) -> None:
    device = model.wte.weight.device
    ids = torch.randint(50, (2, model.config.block_size), device=device)
    with autocast(device, dtype):
        model.train().requires_grad_().hidden(ids)


def decode_step(model: GPT, dtype: torch.dtype) -> None:
    """A step with static shapes, as it is recorded."""
    model = model.to(dtype).eval()
    device, cache = model.wte.weight.device, new_cache(model, 2)
    for part in cache.keys + cache.values:
        part.zero_()
    view = StaticCacheView(cache, torch.tensor(70, device=device), 128)
    with torch.inference_mode(), generation_kernels(device):
        model.hidden(torch.randint(50, (2, 1), device=device), view)


def prefill(model: GPT, dtype: torch.dtype) -> None:
    model = model.to(dtype).eval()
    device = model.wte.weight.device
    with torch.inference_mode(), generation_kernels(device):
        model.hidden(torch.randint(50, (1, 100), device=device), new_cache(model, 1))


PASSES: dict[str, Callable[[GPT, torch.dtype], None]] = {
    "training": train_pass,
    "prefill": prefill,
    "decode step": decode_step,
}


def kernel_of(
    device: torch.device, monkeypatch: pytest.MonkeyPatch, name: str, work: str, dtype: torch.dtype
) -> tuple[str, list[str]]:
    """The kernel of a pass, and the fused ones that could have run; fails for the plain kernel beside a fused one."""
    model = random_model(variant("rope", **SHAPE | MODELS[name]), torch.float32).to(device)
    with watched(monkeypatch) as calls:
        PASSES[work](model, dtype)
    (call,) = calls
    kernel, usable = call
    assert kernel != "math" or usable == [], f"attention ran in the plain kernel, although {usable} could run"
    return call


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("work", PASSES)
@pytest.mark.parametrize("name", MODELS)
def test_a_fused_kernel_runs_where_one_can(
    device: torch.device,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    work: str,
    dtype: str,
    record_property: Callable[[str, object], None],
) -> None:
    kernel, usable = kernel_of(device, monkeypatch, name, work, DTYPES[dtype])
    record_property("kernel", kernel)
    record_property("usable", " ".join(usable))


def test_control_the_plain_kernel(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(q: Tensor, k: Tensor, v: Tensor, *others: Any) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    monkeypatch.setattr("gptcli.model.gpt.attend", slow)
    with pytest.raises(AssertionError, match="plain kernel"):
        kernel_of(device, monkeypatch, "plain", "training", torch.float32)
