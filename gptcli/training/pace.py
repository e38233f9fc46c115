"""How many updates fit into a given time: measured once, before the first step of a run."""

from __future__ import annotations

import statistics
import time

import torch

from gptcli.config import RunConfig
from gptcli.model.gpt import GPT
from gptcli.model.precision import prepare_device
from gptcli.text.dataset import Dataset
from gptcli.training.batches import Batches
from gptcli.training.compilation import compile_hidden
from gptcli.training.gradients import accumulate_gradients
from gptcli.training.optimizer import Optimizer

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
    """Median seconds of an update, and seconds to compile, on a model that is thrown away, as training would do them.

    Training's random state is left alone.
    """
    train = config.train
    assert train.micro_batch_size
    assert train.dtype
    dtype = getattr(torch, train.dtype)
    prepare_device(device, deterministic=train.deterministic)
    batches = Batches(
        dataset.train.stream, block_size=config.model.block_size, batch_size=train.batch_size, seed=train.seed
    )
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        model = GPT(config.model).to(device)
        optimizer = Optimizer(model, config.optim, dtype)
        start = time.perf_counter()
        example = batches.batch(0).to(device)[: train.micro_batch_size, :-1]
        hidden, _ = compile_hidden(
            model,
            example,
            mode=train.compile,
            max_steps=LONG_RUN,
            dtype=dtype,
            recompute=train.activation_checkpointing,
        )
        to_compile = time.perf_counter() - start
        times = []
        for step in range(WARM_UP_STEPS + MEASURED_STEPS):
            start = time.perf_counter()
            ids = batches.batch(step).to(device)
            loss = accumulate_gradients(model, hidden, ids, train.micro_batch_size, dtype, optimizer.backward)
            optimizer.step(config.optim.lr, loss).item()
            times.append(time.perf_counter() - start)
    del model, optimizer, hidden, loss
    if device.type == "cuda":
        torch.cuda.empty_cache()  # what is kept for reuse would count as taken
    return statistics.median(times[WARM_UP_STEPS:]), to_compile
