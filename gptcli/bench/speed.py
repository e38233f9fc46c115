"""How fast a model trains, reads a prompt and writes on this machine, and what share of the machine's limits that is.

Nothing is measured that users do not run: updates are the trainer's own, and text comes from the stream that `sample`
shows.

Letters: B sequences, T tokens each, C width, S tokens in the key-value cache, V vocabulary.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Literal

import numpy as np
import torch

from gptcli.bench.limits import matrix_rate, read_bandwidth, seconds_per_call
from gptcli.bench.target import BenchTarget
from gptcli.config import DtypeName, RunConfig, SamplingConfig
from gptcli.dataset.folder import Dataset
from gptcli.generation.loaded_model import LoadedModel
from gptcli.generation.placement import decoding_threads
from gptcli.generation.stream import Sample, generate
from gptcli.model.cost import bytes_per_step, parameter_count, prefill_flops, training_flops
from gptcli.model.devices import dtype_name
from gptcli.model.gpt import GPT
from gptcli.model.int8 import Int8GPT
from gptcli.report.machine import device_name
from gptcli.training import runtime
from gptcli.training.trainer import Trainer

Format = DtypeName | Literal["int8"]
"""Of the weights that a model multiplies with."""
MEASURED_SECONDS = 2.0
"""How long each kind of work is measured, and longer where `MIN_CALLS` take longer."""
MIN_CALLS = 3
MAX_DECODED = 128
"""Tokens that are decoded at most, after a prompt of half the length."""


@dataclass(frozen=True)
class Limits:
    """What this machine reaches at most, as measured just now."""

    matrix_rate: dict[DtypeName, float]
    """FLOP/s of a matrix product, by number format."""
    read_bandwidth: float
    """Bytes/s of reading memory."""


@dataclass(frozen=True)
class TrainingSpeed:
    """Updates: forward, backward, clipping, optimizer. Times are medians."""

    dtype: DtypeName
    sequences: int
    length: int
    compiled: bool
    seconds: float
    """Of an update."""
    tokens_per_second: float
    flops_per_second: float
    mfu: float
    """Share of the matrix rate, the "model FLOPs utilisation" of PaLM (Chowdhery et al. 2022), with the measured rate
    in the place of the one that was advertised."""


@dataclass(frozen=True)
class PrefillSpeed:
    """Reading a prompt, to the first token."""

    dtype: Format
    tokens: int
    seconds: float
    tokens_per_second: float
    flops_per_second: float
    mfu: float
    """Share of the matrix rate in the format of what is not rounded to 8 bits."""


@dataclass(frozen=True)
class DecodingSpeed:
    """Writing, after the first token."""

    dtype: Format
    sequences: int
    prompt: int
    tokens: int
    """Written by each sequence."""
    threads: int
    seconds: float
    """Of a step, which adds a token to every sequence."""
    tokens_per_second: float
    """Of all sequences together."""
    bytes_per_second: float
    """Of weights and cached keys and values, each read once a step."""
    bandwidth_share: float


@dataclass(frozen=True)
class SpeedReport:
    name: str
    device: str
    device_name: str
    threads: int
    """CPU threads that training computes with."""
    torch: str
    parameters: int
    limits: Limits
    training: TrainingSpeed
    prefill: PrefillSpeed
    decoding: DecodingSpeed
    kind: str = "speed"


def measure_speed(subject: BenchTarget, device: torch.device, on_stage: Callable[[str], None]) -> SpeedReport:
    """Measure everything; `on_stage` hears what comes next. Takes less than half a minute for a small model."""
    on_stage("the limits of this machine")
    runtime.prepare(device, deterministic=subject.config.train.deterministic)
    rates = _Rates(device)
    bandwidth = read_bandwidth(device)
    on_stage("training")
    training = _training(new_trainer(subject.config, subject.dataset, device), rates)
    on_stage("reading a prompt and writing")
    folder = subject.writer()
    with _threads(decoding_threads(folder.model, subject.samples)):
        prefill = _prefill(folder, subject, rates)
        decoding = _decoding(folder, subject, bandwidth)
    return SpeedReport(
        name=subject.name,
        device=str(device),
        device_name=device_name(device),
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        parameters=parameter_count(subject.config.model),
        limits=Limits(rates.measured, bandwidth),
        training=training,
        prefill=prefill,
        decoding=decoding,
    )


def new_trainer(config: RunConfig, dataset: Dataset, device: torch.device) -> Trainer:
    """A trainer as a session of `train` has it, compiled where that compiles, of a run that no folder holds."""
    trainer = Trainer(config, dataset, device)
    trainer.compile()
    return trainer


class _Rates:
    """Matrix rates of a device, each number format measured once."""

    def __init__(self, device: torch.device) -> None:
        self.measured: dict[DtypeName, float] = {}
        self._device = device

    def __call__(self, dtype: torch.dtype) -> float:
        name = dtype_name(dtype)
        if name not in self.measured:
            self.measured[name] = matrix_rate(self._device, dtype)
        return self.measured[name]


def _training(trainer: Trainer, rates: _Rates) -> TrainingSpeed:
    sequences, length = trainer.config.train.batch_size, trainer.config.model.block_size
    rate = rates(trainer.dtype)
    seconds = median(seconds_per_call(trainer.step, trainer.device, MEASURED_SECONDS, MIN_CALLS))
    trainer.check_finite()
    flops_per_second = training_flops(trainer.config.model, length) * sequences * length / seconds
    return TrainingSpeed(
        dtype=dtype_name(trainer.dtype),
        sequences=sequences,
        length=length,
        compiled=trainer.hidden != trainer.model.hidden,
        seconds=seconds,
        tokens_per_second=sequences * length / seconds,
        flops_per_second=flops_per_second,
        mfu=flops_per_second / rate,
    )


def _prefill(folder: LoadedModel, subject: BenchTarget, rates: _Rates) -> PrefillSpeed:
    tokens = subject.config.model.block_size
    taken = [sample.first_token_seconds for sample in _written(folder, subject, tokens, 1, samples=1)]
    seconds = median(value for value in taken if value is not None)
    dtype = folder.model.wte.weight.dtype
    flops_per_second = prefill_flops(folder.model.config, tokens) / seconds
    return PrefillSpeed(
        dtype=_format(folder.model),
        tokens=tokens,
        seconds=seconds,
        tokens_per_second=tokens / seconds,
        flops_per_second=flops_per_second,
        mfu=flops_per_second / rates(dtype),
    )


def _decoding(folder: LoadedModel, subject: BenchTarget, bandwidth: float) -> DecodingSpeed:
    length, sequences = subject.config.model.block_size, subject.samples
    prompt = max(1, length // 2)
    tokens = min(MAX_DECODED, max(2, length - prompt))
    taken = [sample.tokens_per_second for sample in _written(folder, subject, prompt, tokens, samples=sequences)]
    steps_per_second = median(value for value in taken if value is not None)
    bytes_per_second = bytes_per_step(folder.model, sequences, prompt + tokens // 2) * steps_per_second
    return DecodingSpeed(
        dtype=_format(folder.model),
        sequences=sequences,
        prompt=prompt,
        tokens=tokens,
        threads=torch.get_num_threads(),
        seconds=1 / steps_per_second,
        tokens_per_second=sequences * steps_per_second,
        bytes_per_second=bytes_per_second,
        bandwidth_share=bytes_per_second / bandwidth,
    )


def _written(folder: LoadedModel, subject: BenchTarget, prompt: int, tokens: int, *, samples: int) -> list[Sample]:
    """The last sample's summary of each of several `generate` calls; the first call is a warm-up and left out."""
    seed = subject.config.train.seed
    ids = np.random.default_rng(seed).choice(np.flatnonzero(folder.tokenizer.emittable), prompt).tolist()
    config = SamplingConfig(max_new_tokens=tokens, num_samples=samples, seed=seed)
    texts: list[Sample] = []
    begun = time.perf_counter()
    while len(texts) < 1 + MIN_CALLS or time.perf_counter() - begun < MEASURED_SECONDS:
        *_, last = generate(folder.model, folder.tokenizer, ids, config)
        assert isinstance(last, Sample)
        texts.append(last)
    return texts[1:]


def _format(model: GPT) -> Format:
    return "int8" if isinstance(model, Int8GPT) else dtype_name(model.wte.weight.dtype)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Compute with so many CPU threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
