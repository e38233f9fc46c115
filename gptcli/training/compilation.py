"""torch.compile, where it pays and works."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gptcli.config import Compile
from gptcli.errors import DeviceError, first_line, is_out_of_memory
from gptcli.model.gpt import GPT
from gptcli.training.evaluation import loss_sum
from gptcli.training.gradients import Hidden, accumulate_gradients

MIN_STEPS = 300
"""Fewest steps for which compiling on a GPU pays: it takes about a minute."""
CPU_SECONDS = 600.0
"""Shortest training on a CPU for which compiling surely pays: it takes 12 to 22 s, more on a busy machine, and saves
between a tenth and a sixth (docs/log.md)."""


def compile_hidden(
    model: GPT,
    hidden: Hidden,
    ids: Tensor,
    *,
    mode: Compile,
    max_steps: int,
    dtype: torch.dtype,
    evaluates: bool = True,
    pays_on_cpu: bool = False,
    is_sharded: bool = False,
) -> tuple[Hidden, str]:
    """`hidden`, the model's own, compiled or not, and a sentence about the choice ("" when compiled as asked).

    The choice depends on all steps of the run, not on those left, so that a resumed run uses the same kernels. On a CPU
    it depends on the speed, so that `pays_on_cpu` must say how the run was begun.

    The compiled model is tried on a micro-batch `ids` (b, T + 1), backward pass included, and, if it `evaluates`, in
    evaluation mode, for which it is compiled once more; gradients and random states are restored. Where weights are
    sharded, which are gathered between blocks, each block is compiled by itself. Raises DeviceError if `mode` is "on"
    and compiling fails, and for sharded weights in any case: the ranks would have to agree on it.
    """
    reason = reason_against(model.wte.weight.device, max_steps, pays_on_cpu=pays_on_cpu)
    if mode == "off" or (mode == "auto" and reason):
        return hidden, f"Not compiled: {reason}." if mode == "auto" else ""
    compiled: Hidden
    if is_sharded:
        compiled = _with_compiled_blocks(model, hidden, torch.Size((*ids[:, 1:].shape, model.config.n_embd)))
    else:
        compiled = torch.compile(hidden, dynamic=False, **_options())
    try:
        _try(model, compiled, ids, dtype, evaluates=evaluates)
    except RuntimeError as error:  # the base of all errors of dynamo and inductor
        if is_out_of_memory(error):
            raise
        problem = first_line(error)
        if mode == "on" or is_sharded:
            raise DeviceError(f"torch.compile failed: {problem}.", "Use `train.compile = off`.") from error
        return hidden, f"Not compiled, because torch.compile failed: {problem}."
    return compiled, "Compiled with torch.compile." if mode == "auto" else ""


def _with_compiled_blocks(model: GPT, hidden: Hidden, shape: torch.Size) -> Hidden:
    """`hidden` with each block compiled for inputs of one shape; others, which are rare, run as before."""

    def for_shape(eager: Callable[..., Tensor], compiled: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda x, *others: (compiled if x.shape == shape else eager)(x, *others)

    for block in model.h:
        block.forward = for_shape(block.forward, torch.compile(block.forward, dynamic=False, **_options()))
    return partial(hidden)


def will_compile(mode: Compile, device: torch.device, max_steps: int, *, pays_on_cpu: bool = False) -> bool:
    """Whether `compile_hidden` tries to compile."""
    return mode == "on" or (mode == "auto" and not reason_against(device, max_steps, pays_on_cpu=pays_on_cpu))


def reason_against(device: torch.device, max_steps: int, *, pays_on_cpu: bool = False) -> str:
    """Why compiling would not pay or not work, as a clause; "" if it pays."""
    if device.type == "cpu" and not pays_on_cpu:
        return "on a CPU it would save less time than it takes"
    if device.type == "cpu":
        return "" if _has_compiler() else "there is no C++ compiler"
    if device.type == "mps":
        return "torch.compile is untested on Apple GPUs"
    if importlib.util.find_spec("triton") is None:
        return "triton, which torch.compile needs, is not installed"
    if max_steps < MIN_STEPS:
        return "the run is too short to pay for it"
    return ""


def _has_compiler() -> bool:
    return any(shutil.which(name) for name in (os.environ.get("CXX", ""), "g++", "clang++") if name)


def _options() -> dict[str, Any]:
    """Options of `torch.compile`. Kernels chosen by measuring them would round differently from process to process."""
    return {"options": {"deterministic": True}} if torch.are_deterministic_algorithms_enabled() else {}


def _try(model: GPT, hidden: Hidden, ids: Tensor, dtype: torch.dtype, *, evaluates: bool) -> None:
    forked = [ids.device] if ids.device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices=forked):
            accumulate_gradients(model, hidden, ids, micro_batch_size=len(ids), dtype=dtype, backward=_backward)
            if evaluates:
                loss_sum(model, hidden, ids, dtype)
    finally:
        model.zero_grad()  # a failed backward pass leaves gradients


def _backward(loss: Tensor) -> None:
    loss.backward()  # type: ignore[no-untyped-call]
