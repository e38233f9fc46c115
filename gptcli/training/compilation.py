"""torch.compile, where it pays and works."""

from __future__ import annotations

import importlib.util
from functools import partial

import torch
from torch import Tensor

from gptcli.config import Compile
from gptcli.errors import DeviceError, first_line
from gptcli.model.gpt import GPT
from gptcli.training.gradients import Hidden, accumulate_gradients

MIN_STEPS = 300
"""Fewest steps for which compiling on a GPU pays: it takes about a minute."""


def compile_hidden(
    model: GPT,
    ids: Tensor,
    *,
    mode: Compile,
    max_steps: int,
    dtype: torch.dtype,
    activation_checkpointing: bool = False,
) -> tuple[Hidden, str]:
    """`model.hidden`, compiled or not, and a sentence about the choice ("" when compiled as asked).

    The choice depends on all steps of the run, not on those left, so that a resumed run uses the same kernels. The
    compiled model is tried on a micro-batch `ids` (b, T + 1), backward pass included; gradients and random states are
    restored. Raises DeviceError if `mode` is "on" and compiling fails.
    """
    hidden: Hidden = partial(model.hidden, activation_checkpointing=True) if activation_checkpointing else model.hidden
    reason = _reason_against(model.wte.weight.device, max_steps, experts=model.config.n_expert > 0)
    if mode == "off" or (mode == "auto" and reason):
        return hidden, f"Not compiled: {reason}." if mode == "auto" else ""
    compiled: Hidden = torch.compile(hidden, dynamic=False)
    try:
        _try(model, compiled, ids, dtype)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:  # the base of all errors of dynamo and inductor
        problem = first_line(error)
        if mode == "on":
            raise DeviceError(f"torch.compile failed: {problem}.", "Use `train.compile = off`.") from error
        return hidden, f"Not compiled, because torch.compile failed: {problem}."
    return compiled, "Compiled with torch.compile." if mode == "auto" else ""


def _reason_against(device: torch.device, max_steps: int, *, experts: bool = False) -> str:
    if device.type == "cpu":
        return "on a CPU it saves less time than it takes"
    if device.type == "mps":
        return "torch.compile is untested on Apple GPUs"
    if importlib.util.find_spec("triton") is None:
        return "triton, which torch.compile needs, is not installed"
    if experts:
        return "each expert gets a different number of tokens each time, which would compile it anew"
    if max_steps < MIN_STEPS:
        return "the run is too short to pay for it"
    return ""


def _try(model: GPT, hidden: Hidden, ids: Tensor, dtype: torch.dtype) -> None:
    forked = [ids.device] if ids.device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices=forked):
            accumulate_gradients(model, hidden, ids, micro_batch_size=len(ids), dtype=dtype, backward=_backward)
    finally:
        model.zero_grad()  # a failed backward pass leaves gradients


def _backward(loss: Tensor) -> None:
    loss.backward()  # type: ignore[no-untyped-call]
