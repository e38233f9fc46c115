"""What the measurements of one run share: the device, the sizes, trainers and clocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from gptcli.bench.limits import wait_for
from gptcli.bench.target import random_dataset
from gptcli.config import DtypeName, ModelConfig
from gptcli.config.values import nest
from gptcli.errors import first_line
from gptcli.machine import free_memory
from gptcli.model.devices import torch_dtype
from gptcli.model.memory import largest_micro_batch
from gptcli.runs.completion import complete
from gptcli.runs.decision import NewRun
from gptcli.runs.request import Request
from gptcli.training.trainer import Trainer


@dataclass(frozen=True)
class Size:
    """The sizes of the measurements."""

    gpt2: ModelConfig
    sequences: int
    """Most sequences per update of GPT-2."""
    preset: str
    """The preset that is trained by its own recipe."""
    samples: int
    """Texts to generate at once."""
    prompt: int
    new_tokens: int
    updates: int
    """Updates between two readings of the clock."""
    rounds: int
    loss_preset: str
    """The preset whose losses are compared by dtype."""
    loss_steps: int
    eval_tokens: int
    max_time: float
    """Seconds of the training that is planned by its time."""
    packages: tuple[str, ...]
    """Packages of Python's library, as a text that every machine has."""


WHOLE = Size(
    gpt2=ModelConfig(vocab_size=50257, n_layer=12, n_head=12, n_embd=768, block_size=1024),
    sequences=32,
    preset="small",
    samples=256,
    prompt=32,
    new_tokens=128,
    updates=10,
    rounds=5,
    loss_preset="tiny",
    loss_steps=300,
    eval_tokens=2**20,
    max_time=30.0,
    packages=("asyncio", "email", "http", "json", "logging"),
)
ON_A_CPU = Size(
    gpt2=ModelConfig(vocab_size=500, n_layer=2, n_head=2, n_embd=64, block_size=64),
    sequences=2,
    preset="nano",
    samples=4,
    prompt=8,
    new_tokens=8,
    updates=2,
    rounds=2,
    loss_preset="nano",
    loss_steps=5,
    eval_tokens=2**9,
    max_time=1.0,
    packages=("json",),
)
"""A test of the code: the figures mean nothing."""


@dataclass(frozen=True)
class Setting:
    """The device, and the sizes that suit it."""

    device: torch.device

    @property
    def size(self) -> Size:
        return WHOLE if self.device.type == "cuda" else ON_A_CPU

    @property
    def dtype(self) -> DtypeName:
        """bfloat16, on a GPU without it float16."""
        lacking = self.device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False)
        return "float16" if lacking else "bfloat16"

    @cached_property
    def sequences(self) -> int:
        """Sequences per update of GPT-2: as many as gptcli trains in half of the free memory, since others run too."""
        size, free = self.size, free_memory(self.device) // 2
        return largest_micro_batch(size.gpt2, size.sequences, free, torch_dtype(self.dtype), self.device.type) or 1

    def gpt2_settings(self, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The settings of a training of GPT-2 by dotted name, not compiled; `changes` are stronger."""
        shape = self.size.gpt2.model_dump(exclude={"vocab_size"})
        train = {"train.batch_size": self.sequences, "train.dtype": self.dtype, "train.compile": "off"}
        return (
            {f"model.{name}": value for name, value in shape.items()} | {"optim.lr": 1e-4} | train | dict(changes or {})
        )

    def gpt2_trainer(self, changes: Mapping[str, Any] | None = None) -> Trainer:
        """A trainer with `gpt2_settings`."""
        return trainer_of("gpt2", self.size.gpt2.vocab_size, self.gpt2_settings(changes), self.device)


def trainer_of(preset: str, vocab_size: int, settings: Mapping[str, Any], device: torch.device) -> Trainer:
    """The trainer of `gptcli train` for a preset and settings by dotted name, over random tokens.

    It is compiled where `train` compiles it.
    """
    block_size = settings.get("model.block_size", 1024)
    dataset = random_dataset(vocab_size, block_size, seed=0)
    request = Request(preset=preset, flags=nest(settings))
    trainer = Trainer(complete(request, NewRun(Path()), dataset, device, measures=False).config, dataset, device)
    trainer.compile()
    return trainer


def repeated(update: Callable[[], object], times: int, device: torch.device) -> Callable[[], None]:
    """A function that runs `times` updates and then waits for the device, for which training itself does not wait."""

    def run() -> None:
        for _ in range(times):
            update()
        wait_for(device)

    return run


def beside_transformers(
    ours: Callable[[], object], theirs: Callable[[], Callable[[], object]]
) -> tuple[dict[str, Callable[[], object]], str]:
    """What is compared, after one call of what `theirs` makes, and the reason if only gptcli can be measured."""
    try:
        other = theirs()
        other()
    except Exception as error:  # a version that is missing, or that does not fit this torch
        return {"gptcli": ours}, first_line(error)
    return {"gptcli": ours, "transformers": other}, ""


class Marks:
    """Points in the work of a device: CUDA events, elsewhere readings of the clock."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._marks: list[Any] = []

    def mark(self) -> None:
        """Add a point after the work that is queued so far."""
        if self._device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record(torch.cuda.current_stream(self._device))
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter())

    def seconds(self) -> list[float]:
        """Seconds between consecutive points."""
        wait_for(self._device)
        pairs = zip(self._marks, self._marks[1:], strict=False)
        if self._device.type == "cuda":
            return [one.elapsed_time(other) / 1e3 for one, other in pairs]
        return [other - one for one, other in pairs]


def peak_bytes(device: torch.device) -> int | None:
    """Peak of the memory of tensors since the last call; None on a CPU, which does not count it."""
    if device.type != "cuda":
        return None
    peak = torch.cuda.max_memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    return peak
