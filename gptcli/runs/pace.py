"""How many updates fit into a given time: measured once, before the first step of a run."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import torch

from gptcli.checkpoints.run_folder import StoredRun
from gptcli.config import RunConfig
from gptcli.dataset.folder import Dataset
from gptcli.training import runtime
from gptcli.training.trainer import Trainer

WARM_UP_STEPS = 2
MEASURED_STEPS = 5
LONG_RUN = 1_000_000
"""Steps to ask `torch.compile` about: whoever gives a time means a run that is worth compiling."""
FORWARD_SHARE = 1 / 3
"""A forward pass is about a third of an update's work."""


def steps_within(seconds: float, config: RunConfig, dataset: Dataset, device: torch.device) -> int:
    """Updates, with their share of evaluations, that this machine does in `seconds`; at least 1."""
    train = config.train
    per_step, to_compile = measure_pace(config, dataset, device)
    tokens_per_step = train.batch_size * config.model.block_size
    scored = min(dataset.val.tokens, train.eval_tokens)
    per_evaluation = per_step * FORWARD_SHARE * scored / tokens_per_step
    return max(1, int((seconds - to_compile) / (per_step + per_evaluation / train.eval_every)))


def measure_pace(config: RunConfig, dataset: Dataset, device: torch.device) -> tuple[float, float]:
    """Median seconds of an update, and seconds to compile, of training that is thrown away.

    Training's random state is left alone. Raises OutOfMemoryError as training would.
    """
    runtime.prepare(device, deterministic=config.train.deterministic)
    train = config.train.model_copy(update={"max_steps": LONG_RUN, "init_from": None})
    run = StoredRun(Path(), config.model_copy(update={"train": train}), dataset.name, dataset.fingerprint)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        trainer = Trainer(run, dataset, device)
        start = time.perf_counter()
        trainer.compile()
        to_compile = time.perf_counter() - start
        times = []
        for _ in range(WARM_UP_STEPS + MEASURED_STEPS):
            start = time.perf_counter()
            update = trainer.training_step()
            assert update, "no signal stops this"
            update.grad_norm.item()  # waits for the device
            times.append(time.perf_counter() - start)
    del trainer, update
    if device.type == "cuda":
        torch.cuda.empty_cache()  # what is kept for reuse would count as taken
    return statistics.median(times[WARM_UP_STEPS:]), to_compile
