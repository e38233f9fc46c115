"""The pace of a training on this machine, measured before the first step, and how many updates fit into a time."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import torch

from gptcli.config import RunConfig, with_train
from gptcli.dataset.folder import Dataset
from gptcli.runs.followers import new_trainer
from gptcli.runs.rhythm import evaluation_cost, with_rhythm
from gptcli.runs.team import ALONE_TEAM, Team
from gptcli.training import runtime
from gptcli.training.compilation import CPU_SECONDS

WARM_UP_STEPS = 2
MEASURED_STEPS = 5
MEASURED_SECONDS = 0.5
"""Time after which no other step is measured."""
PART_SECONDS = 2.0
"""Only part of a batch is measured if its sequences, one by one, would take longer."""
LONG_RUN = 1_000_000
"""Steps assumed when deciding on `torch.compile`: a stated time means a run that is worth compiling."""


@dataclass(frozen=True)
class Pace:
    """The speed of a training."""

    step: float
    """Seconds of an update."""
    compiling: float = 0.0
    """Seconds until torch.compile is done."""


def may_compile(device: torch.device, seconds: float) -> bool:
    """Whether a training that takes so long may be compiled under `auto`, so that its pace is measured compiled."""
    return device.type != "cpu" or seconds >= CPU_SECONDS


def steps_within(seconds: float, config: RunConfig, dataset: Dataset, pace: Pace) -> int:
    """Updates that fit into `seconds`, with compiling and evaluations; at least 1."""
    updates = (seconds - pace.compiling) / pace.step  # without evaluations
    paced = with_rhythm(with_train(config, max_steps=max(1, int(updates))))
    assert paced.train.eval_every
    return max(1, int(updates / (1 + evaluation_cost(paced, dataset) / paced.train.eval_every)))


def seconds_of(steps: int, config: RunConfig, dataset: Dataset, pace: Pace) -> float:
    """Estimated seconds of `steps` updates with their evaluations; the config is complete."""
    assert config.train.eval_every
    return pace.compiling + pace.step * steps * (1 + evaluation_cost(config, dataset) / config.train.eval_every)


def measure_pace(
    config: RunConfig, dataset: Dataset, device: torch.device, *, compiles: bool = False, team: Team = ALONE_TEAM
) -> Pace:
    """The pace of a training, measured on one that is thrown away; eager unless it `compiles`.

    On a CPU, where the time of an update grows with its sequences, part of a large batch is measured. The random state
    is restored. Raises OutOfMemoryError as training would.
    """
    ranks = team.ranks.size
    runtime.prepare(device, deterministic=config.train.deterministic)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        whole, part = config.train.batch_size, config.train.batch_size
        if device.type == "cpu" and whole > ranks:
            single = _measure(_part_of(config, ranks), dataset, device, team).step  # a sequence on each rank
            part = ranks * min(config.train.micro_batch_size or whole, max(1, int(PART_SECONDS / single)))
            part = min(whole, part)
        measured = _measure(_part_of(config, part), dataset, device, team, compiles=compiles)
    return Pace(measured.step * whole / part, measured.compiling)


def _part_of(config: RunConfig, sequences: int) -> RunConfig:
    """The config of a long run with as many sequences per update, or fewer per forward pass."""
    micro_batch_size = min(sequences, config.train.micro_batch_size or sequences)
    return with_train(config, max_steps=LONG_RUN, batch_size=sequences, micro_batch_size=micro_batch_size)


def _measure(config: RunConfig, dataset: Dataset, device: torch.device, team: Team, *, compiles: bool = False) -> Pace:
    """Median seconds of an update, after a few that warm up, and seconds to compile."""
    trainer = new_trainer(config, dataset, device, team)
    start = time.perf_counter()
    if compiles:
        trainer.compile(pays_on_cpu=True)
    begun = time.perf_counter()
    times: list[float] = []
    while len(times) < WARM_UP_STEPS + MEASURED_STEPS and (len(times) < 2 or sum(times) < MEASURED_SECONDS):
        start_of_step = time.perf_counter()
        update = trainer.step()
        assert update, "no stop is asked for"
        update.grad_norm.item()  # waits for the device
        times.append(time.perf_counter() - start_of_step)
    del trainer
    runtime.return_freed_memory(device)
    warm = times[min(WARM_UP_STEPS, len(times) - 1) :]
    return Pace(statistics.median(warm), begun - start if compiles else 0.0)
