"""The speed of training: updates against transformers and the matrix rate, their phases, their kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from statistics import median
from typing import Any

import torch
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu.setting import Marks, Setting, beside_transformers, peak_bytes, repeated
from benchmarks.measure import alternate, matrix_rate
from benchmarks.training import transformers_update
from gptcli.bench.speed import new_trainer
from gptcli.bench.target import BenchOptions, untrained_target
from gptcli.model.cost import training_flops
from gptcli.model.devices import autocast, torch_dtype
from gptcli.report.untrained import untrained
from gptcli.training.trainer import Trainer

COSTLIEST = 20


def train_gpt2(setting: Setting) -> dict[str, Any]:
    """GPT-2 in gptcli against transformers, both compiled; there, the loss is part of the compiled graph."""
    config, sequences, device = setting.size.gpt2, setting.sequences, setting.device
    dtype = torch_dtype(setting.dtype)
    updates, problem = beside_transformers(
        setting.gpt2_trainer({"train.compile": "on", "train.batch_size": sequences}).step,
        lambda: transformers_update(config, sequences, device, dtype, compiled=True),
    )
    groups = {who: repeated(update, setting.size.updates, device) for who, update in updates.items()}
    seconds = {who: taken / setting.size.updates for who, taken in alternate(groups, setting.size.rounds).items()}
    flops = training_flops(config, config.block_size) * sequences * config.block_size
    rate = matrix_rate(dtype, device)
    return {
        "sequences": sequences,
        "length": config.block_size,
        "dtype": setting.dtype,
        "seconds": seconds,
        "tokens_per_second": {who: sequences * config.block_size / taken for who, taken in seconds.items()},
        "matrix_rate": rate,
        "share_of_matrix_rate": {who: flops / taken / rate for who, taken in seconds.items()},
        "times_faster": None if problem else seconds["transformers"] / seconds["gptcli"],
        "problem": problem,
    }


def train_preset(setting: Setting) -> dict[str, Any]:
    """The preset `small` by its own recipe, and the share of time in which the GPU waits for the host."""
    device, size = setting.device, setting.size
    target = untrained_target(untrained(size.preset, None, None, {}), BenchOptions(device))
    trainer = new_trainer(target.config, target.dataset, device)
    group = repeated(trainer.step, size.updates, device)
    seconds = alternate({"gptcli": group}, size.rounds)["gptcli"] / size.updates
    activity = ProfilerActivity.CUDA if device.type == "cuda" else ProfilerActivity.CPU
    with profile(activities=[activity], acc_events=True) as profiler:
        group()
    busy = busy_seconds(profiler.events() or [], device) / size.updates
    config, sequences = target.config.model, target.config.train.batch_size
    flops = training_flops(config, config.block_size) * sequences * config.block_size
    return {
        "preset": size.preset,
        "optimizer": target.config.optim.optimizer,
        "dropout": config.dropout,
        "compiled": trainer.is_compiled,
        "sequences": sequences,
        "length": config.block_size,
        "dtype": str(target.config.train.dtype),
        "seconds": seconds,
        "tokens_per_second": sequences * config.block_size / seconds,
        "share_of_matrix_rate": flops / seconds / matrix_rate(trainer.dtype, device),
        "busy_seconds": busy,
        "idle_share": max(0.0, 1 - busy / seconds),
    }


def busy_seconds(events: Iterable[FunctionEvent], device: torch.device) -> float:
    """Seconds in which at least one kernel or copy ran on the device; on a CPU, at least one operation."""
    spans = sorted((event.time_range.start, event.time_range.end) for event in events if _ran_on(device, event))
    busy, until = 0.0, float("-inf")
    for start, end in spans:
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
    return busy / 1e6


def _ran_on(device: torch.device, event: Any) -> bool:
    """Whether an event of the profiler is work of the device, and not the name that somebody gave to a span of time."""
    mine = torch.autograd.DeviceType.CUDA if device.type == "cuda" else torch.autograd.DeviceType.CPU
    return event.device_type == mine and not getattr(event, "is_user_annotation", False)


def phases(setting: Setting) -> Iterator[dict[str, Any]]:
    """Milliseconds of each phase of an update of GPT-2, compiled and not: medians."""
    for compiled in ("on", "off"):
        trainer = setting.gpt2_trainer({"train.compile": compiled})
        trainer.step()
        peak_bytes(setting.device)
        taken = [_phases_of(trainer) for _ in range(2 + setting.size.rounds)][2:]
        row = {name: 1e3 * median(spans[name] for spans in taken) for name in taken[0]}
        peak = peak_bytes(setting.device)
        yield {"compiled": compiled, **{f"{name} (ms)": value for name, value in row.items()}, "peak bytes": peak}


def _phases_of(trainer: Trainer) -> dict[str, float]:
    """Seconds of the phases of one update, in the order in which `Trainer.step` takes them."""
    marks = Marks(trainer.device)
    marks.mark()
    ids = trainer.batches.batch(trainer.completed_steps).to(trainer.device)  # (B, T + 1)
    marks.mark()
    with autocast(trainer.device, trainer.dtype):
        states = trainer.hidden(ids[:, :-1], None, None)  # (B, T, C)
        marks.mark()
        loss = trainer.model.summed_loss(states, ids[:, 1:]) / ids[:, 1:].numel()
    marks.mark()
    trainer.optimizer.backward(loss)
    marks.mark()
    trainer.optimizer.step(1e-4, loss.detach())
    marks.mark()
    names = ("batch", "forward", "loss", "backward", "optimizer")
    return dict(zip(names, marks.seconds(), strict=True))


def kernels(setting: Setting) -> Iterator[dict[str, Any]]:
    """The kernels that cost most in updates of GPT-2, compiled."""
    group = repeated(setting.gpt2_trainer({"train.compile": "on"}).step, setting.size.updates, setting.device)
    yield from costliest(group, setting.device)


def costliest(work: Callable[[], object], device: torch.device) -> list[dict[str, Any]]:
    """The `COSTLIEST` kernels of some work, after a warm-up; on a CPU, the operations."""
    work()
    on_gpu = device.type == "cuda"
    activity = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU
    with profile(activities=[activity], acc_events=True) as profiler:
        work()
    field = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    ran = [kernel for kernel in profiler.key_averages() if _ran_on(device, kernel)]
    total = sum(getattr(kernel, field) for kernel in ran) or 1.0
    return [
        {"kernel": kernel.key[:100], "share": getattr(kernel, field) / total, "calls": kernel.count}
        for kernel in sorted(ran, key=lambda kernel: getattr(kernel, field), reverse=True)[:COSTLIEST]
    ]
