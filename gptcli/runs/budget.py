"""When a run has had what it was given."""

from __future__ import annotations

from gptcli.checkpoints.checkpoint import Progress
from gptcli.config import RunConfig, TrainConfig
from gptcli.runs.events import StopReason


def budget_end(config: TrainConfig, progress: Progress, seconds: float) -> StopReason | None:
    """Which budget has run out after `seconds` of training, if one has."""
    if progress.step >= (config.max_steps or 0):
        return "max_steps"
    if config.patience and progress.evals_since_best >= config.patience:
        return "patience"
    return "max_time" if config.max_time and seconds >= config.max_time else None


def why_finished(config: RunConfig, progress: Progress) -> str:
    """Why there is nothing left to do, in words, and how to go on; "" if there is."""
    train = config.train
    end = budget_end(train, progress, progress.seconds)
    if end == "max_steps":
        return f"it has done {progress.step:,} steps; --max-steps {2 * progress.step} goes on"
    if end == "patience":
        waited = f"{progress.evals_since_best} evaluations brought no better loss"
        return f"{waited} (patience); --patience {2 * progress.evals_since_best} goes on"
    if end == "max_time":
        return f"its {train.max_time:,.0f} seconds are used up; --max-time {2 * progress.seconds:.0f}s goes on"
    return ""
