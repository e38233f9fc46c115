"""The pace of a training: how many updates fit into a given time, measured before the first step."""

from __future__ import annotations

import statistics
import time

import torch

from gptcli.config import RunConfig
from gptcli.dataset.folder import Dataset
from gptcli.training import runtime
from gptcli.training.trainer import Trainer

WARM_UP_STEPS = 2
MEASURED_STEPS = 5
LONG_RUN = 1_000_000
"""Steps assumed when deciding on `torch.compile`: a stated time means a run that is worth compiling."""
FORWARD_SHARE = 1 / 3
"""A forward pass is about a third of an update's work."""


def steps_within(seconds: float, config: RunConfig, dataset: Dataset, device: torch.device) -> int:
    """Updates that this machine does in `seconds`, evaluations included; at least 1."""
    per_step, to_compile = measure_pace(config, dataset, device)
    per_evaluation = per_step * evaluation_cost(config, dataset)
    return max(1, int((seconds - to_compile) / (per_step + per_evaluation / config.train.eval_every)))


def evaluation_cost(config: RunConfig, dataset: Dataset) -> float:
    """The estimated time of an evaluation in updates."""
    scored = min(dataset.val.tokens, config.train.eval_tokens)
    return FORWARD_SHARE * scored / (config.train.batch_size * config.model.block_size)


def measure_pace(config: RunConfig, dataset: Dataset, device: torch.device) -> tuple[float, float]:
    """Median seconds of an update, and seconds to compile, measured on a training that is thrown away.

    The random state is restored. Raises OutOfMemoryError as training would.
    """
    runtime.prepare(device, deterministic=config.train.deterministic)
    config = config.model_copy(update={"train": config.train.model_copy(update={"max_steps": LONG_RUN})})
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        trainer = Trainer(config, dataset, device)
        start = time.perf_counter()
        trainer.compile()
        to_compile = time.perf_counter() - start
        times = []
        for _ in range(WARM_UP_STEPS + MEASURED_STEPS):
            start = time.perf_counter()
            update = trainer.step()
            assert update, "no stop is asked for"
            update.grad_norm.item()  # waits for the device
            times.append(time.perf_counter() - start)
    del trainer, update
    if device.type == "cuda":
        torch.cuda.empty_cache()  # memory kept for reuse would count as taken
    return statistics.median(times[WARM_UP_STEPS:]), to_compile
