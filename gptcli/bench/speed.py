"""The speed of training, prefill and decoding on this machine, also as a share of the machine's limits.

Only code that users run is measured: the trainer's own updates, and the stream that `sample` shows.

Letters: B sequences, T tokens each, C width, S tokens in the key-value cache, V vocabulary.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
import torch

from gptcli.bench.lengths import LengthSpeed, measure_lengths
from gptcli.bench.limits import matrix_rate, read_bandwidth, seconds_per_call
from gptcli.bench.peak import peak_memory, reset_peak
from gptcli.bench.target import BenchOptions, BenchTarget, folder_target, untrained_target
from gptcli.checkpoints.finding import find_model
from gptcli.config import DEFAULT_SEED, DtypeName, Quantization, RunConfig, SamplingConfig
from gptcli.config.presets import SETTINGS_OF_COST, SETTINGS_OF_SPEED
from gptcli.dataset.folder import Dataset
from gptcli.errors import UsageError, clause
from gptcli.generation.loaded_model import LoadedModel, require_formats
from gptcli.generation.placement import cpu_threads, decoding_threads
from gptcli.generation.stream import Sample, stream_samples
from gptcli.model.cost import bytes_per_step, parameter_count, prefill_flops, training_flops
from gptcli.model.devices import choose_device_with_note, dtype_name, has_tf32, torch_dtype
from gptcli.model.gpt import GPT
from gptcli.model.int8 import Int8GPT
from gptcli.report.machine import device_name
from gptcli.report.untrained import untrained
from gptcli.training import runtime
from gptcli.training.trainer import Trainer

WeightDtype = DtypeName | Literal["int8"]
"""The dtype of the weights in matrix products."""
MEASURED_SECONDS = 2.0
"""Seconds spent on measuring each kind of work; more if `MIN_CALLS` calls take longer."""
MIN_CALLS = 3
MAX_DECODED = 128
"""Largest number of tokens to decode, after a prompt of half the length."""


@dataclass(frozen=True)
class Limits:
    """The limits of this machine, measured just now."""

    matrix_rate: dict[DtypeName, float]
    """FLOP/s of matrix products by dtype."""
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
    """Seconds per update."""
    tokens_per_second: float
    flops_per_second: float
    mfu: float
    """Share of the measured matrix rate: the "model FLOPs utilization" of PaLM (Chowdhery et al. 2022), which divides
    by the advertised rate."""
    peak_memory: int | None
    """Peak memory in bytes; None where the system does not say. On CUDA what tensors allocated, on a CPU all resident
    memory of the process."""


@dataclass(frozen=True)
class PrefillSpeed:
    """Prefill: from the prompt to the first token."""

    dtype: WeightDtype
    tokens: int
    seconds: float
    tokens_per_second: float
    flops_per_second: float
    mfu: float
    """Share of the measured matrix rate. With 8-bit weights the rate is that of float32."""
    peak_memory: int | None


@dataclass(frozen=True)
class DecodingSpeed:
    """Decoding: the tokens after the first one."""

    dtype: WeightDtype
    sequences: int
    prompt: int
    tokens: int
    """Tokens decoded per sequence."""
    threads: int
    seconds: float
    """Seconds per step, which adds a token to every sequence."""
    tokens_per_second: float
    """Tokens per second of all sequences together."""
    bytes_per_second: float
    """Weights and cached keys and values, each read once per step."""
    bandwidth_share: float
    peak_memory: int | None


@dataclass(frozen=True)
class SpeedReport:
    name: str
    device: str
    device_name: str
    threads: int
    """CPU threads of training."""
    torch: str
    parameters: int
    limits: Limits
    training: TrainingSpeed
    prefill: PrefillSpeed
    decoding: DecodingSpeed
    lengths: tuple[LengthSpeed, ...]
    """One more token at several lengths, with and without the cache."""
    kind: str = "speed"


def benchmark(
    model: str | Path | None = None,
    *,
    preset: str | None = None,
    family: str | None = None,
    vocab_size: int | None = None,
    settings: Mapping[str, Any] | None = None,
    batch_size: int | None = None,
    length: int | None = None,
    seed: int = DEFAULT_SEED,
    device: str = "auto",
    dtype: DtypeName | None = None,
    quantize: Quantization | None = None,
    on_stage: Callable[[str], None] = lambda _stage: None,
    quiet: bool = True,
) -> SpeedReport:
    """Measure training, prefill and decoding of a model, or of an untrained one, on this machine.

    `model` is a run, a model folder or an `hf://` address; None is the newest run. `preset`, `family`, `vocab_size` and
    `settings` describe an untrained model, as for `inspect`. `batch_size` is the number of
    sequences per update (default: one micro-batch) and of texts generated at once (default: 1); `length` the tokens per
    sequence (default: the context window). `on_stage` is called with the name of each part of the work; for None, first
    with the name of the newest run. Takes less than half a minute for a small model. Raises GptcliError.
    """
    changes = {"preset": preset, "family": family, "vocab_size": vocab_size} | dict(settings or {})
    stated = [name for name, value in changes.items() if value is not None]
    if model is not None and stated:
        raise UsageError(f"A model and `{stated[0]}` cannot be used together.", "Ask for one at a time.")
    chosen, note = choose_device_with_note(device)
    if note:
        on_stage(f"on the CPU: {clause(note)}")
    options = BenchOptions(chosen, dtype, batch_size, length, seed, quantize)
    require_formats(dtype, quantize, chosen)  # before anything is measured
    if stated:
        shape = untrained(preset, family, vocab_size, settings or {}, SETTINGS_OF_COST + SETTINGS_OF_SPEED)
        return measure(untrained_target(shape, options), options.device, on_stage)
    path = find_model(model, quiet=quiet)
    if model is None:
        on_stage(f"{path}, the newest run")
    return measure(folder_target(path, options), options.device, on_stage)


def measure(target: BenchTarget, device: torch.device, on_stage: Callable[[str], None]) -> SpeedReport:
    """Measure a target; see `benchmark`."""
    on_stage("the limits of this machine")
    runtime.prepare(device, deterministic=target.config.train.deterministic)
    rates = _Rates(device)
    bandwidth = read_bandwidth(device)
    on_stage("training")
    reset_peak(device)
    training = _training(new_trainer(target.config, target.dataset, device), rates)
    on_stage("prefill and decoding")
    model = target.load()
    with cpu_threads(decoding_threads(model.model, target.samples)):
        prefill = _prefill(model, target, _Rates(device) if has_tf32(device) else rates)  # loaded models avoid TF32
        decoding = _decoding(model, target, bandwidth)
        on_stage("lengths, with and without the cache")
        lengths = measure_lengths(model.model)
    return SpeedReport(
        name=target.name,
        device=str(device),
        device_name=device_name(device),
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        parameters=parameter_count(target.config.model),
        limits=Limits(dict(rates), bandwidth),
        training=training,
        prefill=prefill,
        decoding=decoding,
        lengths=lengths,
    )


def new_trainer(config: RunConfig, dataset: Dataset, device: torch.device) -> Trainer:
    """A trainer, compiled where a session of `train` compiles it, for updates only."""
    trainer = Trainer(config, dataset, device)
    trainer.compile(evaluates=False)
    return trainer


class _Rates(dict[DtypeName, float]):
    """Matrix rates of a device by dtype, each measured at its first use."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def __missing__(self, name: DtypeName) -> float:
        self[name] = matrix_rate(self._device, torch_dtype(name))
        return self[name]


def _training(trainer: Trainer, rates: _Rates) -> TrainingSpeed:
    sequences, length = trainer.config.train.batch_size, trainer.config.model.block_size
    dtype = dtype_name(trainer.dtype)
    rate = rates[dtype]
    seconds = median(seconds_per_call(trainer.step, trainer.device, MEASURED_SECONDS, MIN_CALLS))
    trainer.check_finite()
    flops_per_second = training_flops(trainer.config.model, length) * sequences * length / seconds
    return TrainingSpeed(
        dtype=dtype,
        sequences=sequences,
        length=length,
        compiled=trainer.is_compiled,
        seconds=seconds,
        tokens_per_second=sequences * length / seconds,
        flops_per_second=flops_per_second,
        mfu=flops_per_second / rate,
        peak_memory=peak_memory(trainer.device),
    )


def _prefill(model: LoadedModel, target: BenchTarget, rates: _Rates) -> PrefillSpeed:
    tokens, device = target.config.model.block_size, model.model.wte.weight.device
    reset_peak(device)
    taken = [sample.first_token_seconds for sample in _generated(model, target, tokens, 1, samples=1)]
    seconds = median(value for value in taken if value is not None)
    flops_per_second = prefill_flops(model.model.config, tokens) / seconds
    return PrefillSpeed(
        dtype=_weight_dtype(model.model),
        tokens=tokens,
        seconds=seconds,
        tokens_per_second=tokens / seconds,
        flops_per_second=flops_per_second,
        mfu=flops_per_second / rates[dtype_name(model.model.wte.weight.dtype)],
        peak_memory=peak_memory(device),
    )


def _decoding(model: LoadedModel, target: BenchTarget, bandwidth: float) -> DecodingSpeed:
    length, sequences = target.config.model.block_size, target.samples
    device = model.model.wte.weight.device
    reset_peak(device)
    prompt = max(1, length // 2)
    tokens = min(MAX_DECODED, max(2, length - prompt))
    taken = [sample.tokens_per_second for sample in _generated(model, target, prompt, tokens, samples=sequences)]
    steps_per_second = median(value for value in taken if value is not None)
    bytes_per_second = bytes_per_step(model.model, sequences, prompt + tokens // 2) * steps_per_second
    return DecodingSpeed(
        dtype=_weight_dtype(model.model),
        sequences=sequences,
        prompt=prompt,
        tokens=tokens,
        threads=torch.get_num_threads(),
        seconds=1 / steps_per_second,
        tokens_per_second=sequences * steps_per_second,
        bytes_per_second=bytes_per_second,
        bandwidth_share=bytes_per_second / bandwidth,
        peak_memory=peak_memory(device),
    )


def _generated(model: LoadedModel, target: BenchTarget, prompt: int, tokens: int, *, samples: int) -> list[Sample]:
    """The last sample of each of several calls of `generate`, without the first one, a warm-up."""
    seed = target.config.train.seed
    ids = np.random.default_rng(seed).choice(np.flatnonzero(model.tokenizer.emittable), prompt).tolist()
    config = SamplingConfig(max_new_tokens=tokens, num_samples=samples, seed=seed)
    texts: list[Sample] = []
    begun = time.perf_counter()
    while len(texts) < 1 + MIN_CALLS or time.perf_counter() - begun < MEASURED_SECONDS:
        *_, last = stream_samples(model.model, model.tokenizer, ids, config, decoders=model.decoders)
        assert isinstance(last, Sample)
        texts.append(last)
    return texts[1:]


def _weight_dtype(model: GPT) -> WeightDtype:
    return "int8" if isinstance(model, Int8GPT) else dtype_name(model.wte.weight.dtype)
