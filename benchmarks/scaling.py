"""Several processes: bytes per update, two ranks against two threads, and the efficiency to expect on many GPUs.

    python -m benchmarks.scaling [bytes|memory|threads|gpus]...      # these, or all

`bytes` counts what each rank hands to torch.distributed in an update. `memory` compares the peak of a rank's memory
with its estimate, for weights of 148 MB. `threads` compares two ranks of one thread with
one rank of two threads on this machine: run it when nothing else does. `gpus` computes, and measures nothing.
"""

# ruff: noqa: T201 - a program that prints

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import product
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from gptcli.bench.target import random_dataset
from gptcli.config import ModelConfig, build_config
from gptcli.config.presets import PRESETS
from gptcli.machine import process_memory
from gptcli.model.cost import parameter_count, training_flops
from gptcli.model.memory import training_memory
from gptcli.training import runtime
from gptcli.training.ranks import Ranks
from gptcli.training.trainer import Trainer

UPDATES, WARM_UP = 12, 2
SMALL: dict[str, Any] = {
    "model": {"n_layer": 6, "n_head": 6, "n_embd": 384, "block_size": 256, "dropout": 0.0},
    "train": {"batch_size": 8, "micro_batch_size": 4, "max_steps": 1000, "dtype": "float32", "compile": "off"},
}
LARGE: dict[str, Any] = {"n_layer": 12, "n_head": 8, "n_embd": 512, "block_size": 64}
"""A model with 37 million parameters and few activations."""
OPTIMIZERS = ("adamw", "muon")
PARALLEL = ("replicated", "fsdp")

H100_FLOPS = 989e12
"""Dense bfloat16 FLOP/s of an H100 SXM, from NVIDIA's data sheet."""
MFU = 0.4
"""Share of them in matrix products: torchtitan reports 33 to 39 % for Llama 3.1 8B. A higher share leaves less time to
hide communication, so that this is on the careful side."""
NVLINK, NETWORK = 450e9, 50e9
"""Bytes per second of a GPU in one direction: NVLink 4 in its data sheet, and 400 Gb/s as in torchtitan's cluster."""
REACHED = 0.8
"""Share of these bandwidths that large sums reach."""
GPUS_OF_A_NODE = 8
LATENCY = 20e-6
"""Seconds of a step of a ring between nodes, about."""
BACKWARD = 2 / 3
"""Share of the backward pass in the arithmetic."""
SEQUENCES = 16
"""Sequences of 1,024 tokens of a GPU in a micro-batch, all of them where each GPU has one micro-batch."""
BATCH = 512
"""Sequences of an update of about half a million tokens."""
COUNTS = (8, 64, 1024)


def trainer_of(optimizer: str, parallel: str, ranks: Ranks, **changes: Any) -> Trainer:
    """A trainer of a model with 10 million parameters, or one with `changes`, over random tokens."""
    stated = SMALL | {"optim": {"optimizer": optimizer}, "train": SMALL["train"] | {"parallel": parallel}}
    stated["model"] = SMALL["model"] | changes
    config = build_config("nano", stated, vocab_size=4096)
    values = {"eval_every": 1000, "save_every": 1000, "eval_tokens": 1000}
    config = config.model_copy(update={"train": config.train.model_copy(update=values)})
    device = torch.device("cpu")
    runtime.prepare(device, deterministic=False)
    return Trainer(config, random_dataset(4096, config.model.block_size, 0), device, ranks)


def counted(function: Callable[..., Any], sizes: list[int]) -> Callable[..., Any]:
    """A function of torch.distributed that notes the bytes that go in: of the last tensor among its arguments."""

    def call(*arguments: Any, **options: Any) -> Any:
        tensor = [argument for argument in (*arguments, *options.values()) if isinstance(argument, torch.Tensor)][-1]
        sizes.append(tensor.numel() * tensor.element_size())
        return function(*arguments, **options)

    return call


def count_bytes(sizes: list[int]) -> None:
    """Note the bytes of each collective of an update."""
    for names in (
        ("all_reduce",),
        ("all_gather",),
        ("all_to_all_single",),
        ("all_gather_single", "all_gather_into_tensor"),  # the names in torch 2.13 and 2.11
        ("reduce_scatter_single", "reduce_scatter_tensor"),
    ):
        name = next(name for name in names if hasattr(dist, name))
        setattr(dist, name, counted(getattr(dist, name), sizes))


def ideal_bytes(trainer: Trainer) -> int:
    """Bytes of an update: gradients once; sharded, in each pass two gathers of this rank's part and whole gradients."""
    whole, ranks = 4 * parameter_count(trainer.config.model), trainer.ranks
    passes = ranks.largest_part(trainer.config.train.batch_size) // trainer.micro_batch_size
    return passes * (2 * whole // ranks.size + whole) if trainer.shards else whole


def measure_memory(optimizer: str, parallel: str, ranks: Ranks) -> None:
    """Print the peak of this rank's memory in the second of two updates, and the estimate."""
    process, peaks, done = process_memory("cpu", trains=True), [0], threading.Event()
    trainer = trainer_of(optimizer, parallel, ranks, **LARGE)
    trainer.step()

    def watch() -> None:
        while not done.wait(0.005):
            peaks.append(process_memory("cpu", trains=False))

    watching = threading.Thread(target=watch)
    watching.start()
    trainer.step()
    done.set()
    watching.join()
    shards, train = ranks.size if trainer.shards else 1, trainer.config.train
    estimate = training_memory(
        trainer.config.model, train.micro_batch_size or 0, torch.float32, "cpu", process, shards=shards
    )
    if ranks.rank == 0:
        print(f"{optimizer:6} {parallel:10} {max(peaks) / 1e6:,.0f} MB, estimated {estimate.total / 1e6:,.0f} MB")


def work(part: str, optimizer: str, parallel: str) -> None:
    """One rank of a measurement; rank 0 prints."""
    ranks = Ranks()
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        ranks = Ranks(dist.get_rank(), dist.get_world_size())
    if part == "memory":
        measure_memory(optimizer, parallel, ranks)
        return
    trainer = trainer_of(optimizer, parallel, ranks)
    sizes: list[int] = []
    count_bytes(sizes)
    times, processor = [], []
    for _ in range(1 if part == "bytes" else UPDATES):
        sizes.clear()
        begun, used = time.perf_counter(), time.process_time()
        update = trainer.step()
        assert update
        update.grad_norm.item()
        times.append(time.perf_counter() - begun)
        processor.append(time.process_time() - used)
    if ranks.rank:
        return
    if part == "bytes":
        parameters, ideal = parameter_count(trainer.config.model), ideal_bytes(trainer)
        print(f"{optimizer:6} {parallel:10} {parameters:>11,} parameters, {ideal:>11,} bytes at best,", end=" ")
        print(f"{sum(sizes):>11,} bytes in {len(sizes)} calls: {sum(sizes) / ideal:.3f}")
    else:
        ours = f"{ranks.size} x {torch.get_num_threads()} threads"
        print(f"{optimizer:6} {parallel:10} {ours:14} {median(times[WARM_UP:]):.3f} s per update,", end=" ")
        print(f"{median(processor[WARM_UP:]):.3f} s of this rank's processors")


def start(part: str, optimizer: str, ranks: int, threads: int, parallel: str = "replicated") -> None:
    """Run a measurement on some ranks."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    base = os.environ | {"OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo"}
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks)}
    command = [sys.executable, "-m", "benchmarks.scaling", "work", part, optimizer, parallel]
    processes = [
        subprocess.Popen(command, env=base | (shared | {"RANK": str(rank)} if ranks > 1 else {}))
        for rank in range(ranks)
    ]
    codes = [process.wait() for process in processes]
    if any(codes):
        raise SystemExit("a rank failed")


def seconds_of_sum(bytes_: float, gpus: int) -> float:
    """Seconds of a ring that sums a tensor over all GPUs; between nodes the network is the slowest link."""
    bandwidth = REACHED * (NVLINK if gpus <= GPUS_OF_A_NODE else NETWORK)
    nodes = max(1, gpus // GPUS_OF_A_NODE)
    return 2 * (gpus - 1) / gpus * bytes_ / bandwidth + 2 * (nodes - 1) * LATENCY


def efficiency(config: ModelConfig, gpus: int, sequences: int, micro_batch: int) -> float:
    """Time of an update without communication, divided by that with it.

    The sum of the gradients in float32 is hidden behind the backward pass of the last micro-batch, no further.
    """
    seconds = training_flops(config, config.block_size) * config.block_size / (MFU * H100_FLOPS)  # of a sequence
    compute = sequences * seconds
    exposed = seconds_of_sum(4 * parameter_count(config), gpus) - BACKWARD * min(sequences, micro_batch) * seconds
    return compute / (compute + max(0.0, exposed))


def expected() -> None:
    """Print the table of expected efficiencies."""
    print("model        parameters  gradients  " + "  ".join(f"{gpus:>5} GPUs" for gpus in COUNTS) + "   batch")
    for name in (name for name in PRESETS if name.startswith("gpt2")):
        model = build_config(name, vocab_size=50257).model
        parameters = parameter_count(model)
        rows = {
            f"{SEQUENCES} sequences a GPU": [efficiency(model, gpus, SEQUENCES, SEQUENCES) for gpus in COUNTS],
            f"{BATCH} sequences": [
                efficiency(model, gpus, BATCH // gpus, SEQUENCES) if gpus <= BATCH else None for gpus in COUNTS
            ],
        }
        for batch, row in rows.items():
            shown = "  ".join(f"{value:>10.1%}" if value is not None else f"{'-':>10}" for value in row)
            print(f"{name:12} {parameters / 1e6:>8,.0f} M  {4 * parameters / 1e9:>6.2f} GB  {shown}   {batch}")


def main(parts: list[str]) -> None:
    if parts[:1] == ["work"]:
        work(*parts[1:])
        return
    for part in parts or ["bytes", "memory", "threads", "gpus"]:
        if part == "gpus":
            expected()
        elif part == "bytes":
            for optimizer, parallel in product(OPTIMIZERS, PARALLEL):
                start(part, optimizer, 2, 1, parallel)
        elif part == "memory":
            for parallel in PARALLEL:
                start(part, "adamw", 2, 1, parallel)
        elif part == "threads":
            for optimizer in OPTIMIZERS:
                for parallel in PARALLEL:
                    start(part, optimizer, 2, 1, parallel)
                start(part, optimizer, 1, 2)
        else:
            raise SystemExit(f"there is no part '{part}': bytes, memory, threads or gpus")


if __name__ == "__main__":
    main(sys.argv[1:])
