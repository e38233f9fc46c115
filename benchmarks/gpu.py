"""Training and sampling on a GPU, compared with transformers and with the limits of the GPU.

GPT-2 124M, training and sampling, and the `small` preset; bfloat16; random weights and tokens. Both programs train
compiled, with fused AdamW and fused attention. It should take less than 8 minutes, mostly for compiling. Without a GPU,
small models run through the same code on the CPU, as a test: their figures mean nothing.

    python -m benchmarks.gpu [--device cpu]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile

from benchmarks.measure import alternate, matrix_rate, read_bandwidth, save
from benchmarks.training import gptcli_trainer, transformers_model, transformers_update
from gptcli.bench.limits import wait_for
from gptcli.bench.target import stand_in_tokenizer
from gptcli.config import ModelConfig, SamplingConfig
from gptcli.generation.placement import place
from gptcli.generation.stream import Sample, generate
from gptcli.model.cost import bytes_per_step, training_flops
from gptcli.model.devices import choose_device, dtype_name
from gptcli.model.gpt import GPT
from gptcli.training import runtime

DTYPE = torch.bfloat16
PROMPT, TOP_K, TEMPERATURE = 32, 50, 0.8


@dataclass(frozen=True)
class Size:
    """The sizes of a measurement: models, sequences per update, samples at once, tokens, repetitions."""

    gpt2: ModelConfig
    gpt2_sequences: int
    small: ModelConfig
    small_sequences: int
    samples: int
    new_tokens: int
    updates: int
    """Updates between two readings of the clock."""
    rounds: int


WHOLE = Size(
    gpt2=ModelConfig(vocab_size=50257, n_layer=12, n_head=12, n_embd=768, block_size=1024),
    gpt2_sequences=32,
    small=ModelConfig(vocab_size=65, n_layer=6, n_head=6, n_embd=384, block_size=256),
    small_sequences=64,
    samples=256,
    new_tokens=128,
    updates=10,
    rounds=5,
)
ON_A_CPU = Size(
    gpt2=ModelConfig(vocab_size=500, n_layer=2, n_head=2, n_embd=64, block_size=64),
    gpt2_sequences=2,
    small=ModelConfig(vocab_size=65, n_layer=1, n_head=2, n_embd=32, block_size=32),
    small_sequences=2,
    samples=4,
    new_tokens=8,
    updates=2,
    rounds=2,
)


def several(update: Callable[[], object], times: int, device: torch.device) -> Callable[[], None]:
    """A function that runs `times` updates and then waits for the device, for which training itself does not wait."""

    def run() -> None:
        for _ in range(times):
            update()
        wait_for(device)

    return run


def train_gpt2(size: Size, device: torch.device, rate: float) -> dict[str, Any]:
    """GPT-2 in gptcli against transformers, both compiled."""
    config, sequences = size.gpt2, size.gpt2_sequences
    updates = {
        "gptcli": gptcli_trainer(config, sequences, device, DTYPE, "on").step,
        "transformers": transformers_update(config, sequences, device, DTYPE, compiled=True),
    }
    groups = {who: several(update, size.updates, device) for who, update in updates.items()}
    seconds = {who: taken / size.updates for who, taken in alternate(groups, size.rounds).items()}
    flops = training_flops(config, config.block_size) * sequences * config.block_size
    return {
        "sequences": sequences,
        "length": config.block_size,
        "seconds": seconds,
        "tokens_per_second": {who: sequences * config.block_size / taken for who, taken in seconds.items()},
        "share_of_matrix_rate": {who: flops / taken / rate for who, taken in seconds.items()},
        "times_faster": seconds["transformers"] / seconds["gptcli"],
    }


def train_small(size: Size, device: torch.device, rate: float) -> dict[str, Any]:
    """The shape of `small`: its figures, and the share of time in which the GPU waits for the host."""
    config, sequences = size.small, size.small_sequences
    trainer = gptcli_trainer(config, sequences, device, DTYPE, "on")
    group = several(trainer.step, size.updates, device)
    seconds = alternate({"gptcli": group}, size.rounds)["gptcli"] / size.updates
    activity = ProfilerActivity.CUDA if device.type == "cuda" else ProfilerActivity.CPU
    with profile(activities=[activity]) as profiler:
        group()
    busy = busy_seconds(profiler.events() or [], device) / size.updates
    flops = training_flops(config, config.block_size) * sequences * config.block_size
    return {
        "sequences": sequences,
        "length": config.block_size,
        "seconds": seconds,
        "tokens_per_second": sequences * config.block_size / seconds,
        "share_of_matrix_rate": flops / seconds / rate,
        "busy_seconds": busy,
        "idle_share": max(0.0, 1 - busy / seconds),
    }


def busy_seconds(events: Iterable[FunctionEvent], device: torch.device) -> float:
    """Seconds in which at least one kernel or copy ran on the device; on a CPU, at least one operation."""
    mine = torch.autograd.DeviceType.CUDA if device.type == "cuda" else torch.autograd.DeviceType.CPU
    spans = sorted((event.time_range.start, event.time_range.end) for event in events if event.device_type == mine)
    busy, until = 0.0, float("-inf")
    for start, end in spans:
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
    return busy / 1e6


def sample_gpt2(size: Size, device: torch.device, bandwidth: float) -> dict[str, Any]:
    """One sequence at a time, whole calls with prefill, against transformers; then many sequences at once."""
    torch.manual_seed(0)
    model = place(GPT(size.gpt2).requires_grad_(False).eval(), device, dtype_name(DTYPE))
    tokenizer, prompt = stand_in_tokenizer(size.gpt2.vocab_size), list(range(PROMPT))

    def write(samples: int) -> Sample:
        choice = {"temperature": TEMPERATURE, "top_k": TOP_K, "num_samples": samples}
        *_, last = generate(model, tokenizer, prompt, SamplingConfig(max_new_tokens=size.new_tokens, **choice))
        assert isinstance(last, Sample)
        return last

    seconds = alternate({"gptcli": lambda: write(1), "transformers": their_generate(size, device)}, size.rounds)
    write(size.samples)
    one, many = write(1), write(size.samples)
    cached = PROMPT + size.new_tokens / 2
    return {
        "tokens_per_second": {who: size.new_tokens / taken for who, taken in seconds.items()},
        "times_faster": seconds["transformers"] / seconds["gptcli"],
        "decoding": decoding(one, 1, bytes_per_step(model, 1, cached), bandwidth),
        "num_samples": size.samples,
        "many": decoding(many, size.samples, bytes_per_step(model, size.samples, cached), bandwidth),
    }


def decoding(text: Sample, samples: int, step_bytes: float, bandwidth: float) -> dict[str, float | None]:
    """Figures of decoding, after the first token."""
    steps = text.tokens_per_second or 0.0
    return {
        "tokens_per_second": samples * steps,
        "share_of_bandwidth": step_bytes * steps / bandwidth,
        "first_token_seconds": text.first_token_seconds,
    }


def their_generate(size: Size, device: torch.device) -> Callable[[], object]:
    """`generate` of transformers with default settings and the same filters."""
    model = transformers_model(size.gpt2).eval().to(device=device, dtype=DTYPE)
    ids = torch.arange(PROMPT, device=device)[None]
    choice = {"do_sample": True, "temperature": TEMPERATURE, "top_k": TOP_K, "pad_token_id": 0}
    length = {"max_new_tokens": size.new_tokens, "min_new_tokens": size.new_tokens}

    def run() -> None:
        model.generate(ids, attention_mask=torch.ones_like(ids), **length, **choice)
        wait_for(device)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    device = choose_device(parser.parse_args().device)
    size = WHOLE if device.type == "cuda" else ON_A_CPU
    runtime.prepare(device, deterministic=False)
    rate, bandwidth = matrix_rate(DTYPE, device), read_bandwidth(device)
    result: dict[str, Any] = {"device": str(device), "matrix_rate": rate, "read_bandwidth": bandwidth}
    stages = {
        "train_gpt2": lambda: train_gpt2(size, device, rate),
        "sample_gpt2": lambda: sample_gpt2(size, device, bandwidth),
        "train_small": lambda: train_small(size, device, rate),
    }
    start = time.perf_counter()
    for name, stage in stages.items():
        result[name] = stage()
        if device.type == "cuda":
            torch.cuda.empty_cache()
        result["seconds"] = time.perf_counter() - start
        save("gpu", result, device)  # after each stage, in case a later one fails
        sys.stderr.write(f"{name} done after {result['seconds']:.0f} s\n")


if __name__ == "__main__":
    main()
