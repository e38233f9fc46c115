"""The budgets of a run: steps, time and patience."""

from __future__ import annotations

import math
from typing import Literal

from gptcli.checkpoints.checkpoint import Progress
from gptcli.config import RunConfig, TrainConfig

EVALUATIONS_TO_TURN = 3
"""Evaluations in a row without a better loss, after which the validation loss has turned."""

StopReason = Literal["max_steps", "max_time", "patience", "interrupted"]


def budget_end(config: TrainConfig, progress: Progress, seconds: float) -> StopReason | None:
    """The budget that has run out after `seconds` of training, if one has."""
    if progress.step >= (config.max_steps or 0):
        return "max_steps"
    if config.patience and progress.evals_since_best >= config.patience:
        return "patience"
    return "max_time" if config.max_time and seconds >= config.max_time else None


def finished_by(config: TrainConfig, progress: Progress) -> StopReason | None:
    """The budget that has ended a run for good; None if the run can be resumed."""
    return None if progress.evaluation_pending else budget_end(config, progress, progress.seconds)


def why_finished(config: RunConfig, progress: Progress) -> str:
    """Why a run is complete, and how to train longer, in words; "" if it is not."""
    train = config.train
    end = finished_by(train, progress)
    if end == "max_steps":
        return f"it has done {progress.step:,} steps; {_has_turned(progress) or _twice_the_steps(train, progress)}"
    if end == "patience":
        waited = f"{progress.evals_since_best} evaluations brought no better loss"
        return f"{waited} (patience); `train.patience = {2 * progress.evals_since_best}` trains longer"
    if end == "max_time":
        longer = _has_turned(progress) or f"{_twice_the_time(progress)} trains longer"
        return f"its {train.max_time:,.0f} seconds are used up; {longer}"
    return ""


def _has_turned(progress: Progress) -> str:
    """A reason not to train longer; "" where that may help."""
    if progress.best_step is None or progress.evals_since_best < EVALUATIONS_TO_TURN:
        return ""
    return f"the validation loss has not fallen since step {progress.best_step:,}, so more steps would hardly help"


def _twice_the_steps(train: TrainConfig, progress: Progress) -> str:
    """The settings that double the steps; where the stated time is too short for that, it has to grow too."""
    steps = f"`train.max_steps = {2 * progress.step}`"
    if train.max_time is None or 2 * progress.seconds < train.max_time:
        return f"{steps} trains longer"
    if train.epochs is None:  # the steps follow from the time
        return f"{_twice_the_time(progress)} trains longer"
    return f"{steps} with {_twice_the_time(progress)} trains longer"


def _twice_the_time(progress: Progress) -> str:
    return f"`train.max_time = {math.ceil(2 * progress.seconds)}s`"
