"""The budgets of a run: steps, time and patience."""

from __future__ import annotations

from typing import Literal

from gptcli.checkpoints.checkpoint import Progress
from gptcli.config import RunConfig, TrainConfig

StopReason = Literal["max_steps", "max_time", "patience", "interrupted"]


def budget_end(config: TrainConfig, progress: Progress, seconds: float) -> StopReason | None:
    """The budget that has run out after `seconds` of training, if one has."""
    if progress.step >= (config.max_steps or 0):
        return "max_steps"
    if config.patience and progress.evals_since_best >= config.patience:
        return "patience"
    return "max_time" if config.max_time and seconds >= config.max_time else None


def why_finished(config: RunConfig, progress: Progress) -> str:
    """Why a run is complete, and how to train longer, in words; "" if it is not."""
    train = config.train
    end = None if progress.evaluation_pending else budget_end(train, progress, progress.seconds)
    if end == "max_steps":
        return f"it has done {progress.step:,} steps; `train.max_steps = {2 * progress.step}` trains longer"
    if end == "patience":
        waited = f"{progress.evals_since_best} evaluations brought no better loss"
        return f"{waited} (patience); `train.patience = {2 * progress.evals_since_best}` trains longer"
    if end == "max_time":
        more = f"`train.max_time = {2 * progress.seconds:.0f}s` trains longer"
        return f"its {train.max_time:,.0f} seconds are used up; {more}"
    return ""
