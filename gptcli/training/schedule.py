"""Learning-rate schedules."""

from __future__ import annotations

import math

from gptcli.config import OptimConfig


def learning_rate(config: OptimConfig, step: int, max_steps: int) -> float:
    """The learning rate of the update from `step` to `step` + 1 in a run of `max_steps`.

    After a linear warm-up: `cosine` and `linear` fall from `lr` to `lr · min_lr_fraction` at the end; `wsd`
    (warm-up, stable, decay; Hu et al. 2024, arXiv:2404.06395) stays at `lr` and falls linearly in the last
    `decay_fraction` of the run; `constant` stays.

    >>> learning_rate(OptimConfig(lr=1.0, schedule="linear", warmup_steps=0), 50, 100)
    0.5
    """
    warmup = min(config.warmup_steps, max_steps // 10)
    if step < warmup:
        return config.lr * (step + 1) / (warmup + 1)
    first = max(warmup, round((1 - config.decay_fraction) * max_steps)) if config.schedule == "wsd" else warmup
    progress = max(0.0, (step - first) / max(1, max_steps - first))  # of the decay: 0 at step `first`, 1 at the end
    return config.lr * (config.min_lr_fraction + (1 - config.min_lr_fraction) * _remaining(config, min(1.0, progress)))


def _remaining(config: OptimConfig, progress: float) -> float:
    """The share of the decay that is still to come, from 1 to 0."""
    if config.schedule == "constant":
        return 1.0
    if config.schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * progress))
    return 1 - progress
