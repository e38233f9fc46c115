"""The run folder at the beginning of a session: made, cleaned or only tidied up, and the trainer that continues it."""

from __future__ import annotations

from gptcli.checkpoints import names
from gptcli.checkpoints.checkpoint import Progress, prune_checkpoints
from gptcli.checkpoints.run_folder import StoredRun, create_run, is_run, refresh_weights_entry, write_card
from gptcli.errors import StorageError
from gptcli.runs.budget import StopReason
from gptcli.runs.decision import FineTune, Resume
from gptcli.runs.events import RunFinished
from gptcli.runs.followers import new_trainer
from gptcli.runs.plan import Plan
from gptcli.runs.pretrained import initial_weights, stored_initial_state
from gptcli.runs.saving import restore
from gptcli.runs.team import ALONE_TEAM, Team
from gptcli.storage import FolderLock, remove_leftovers
from gptcli.training.trainer import Trainer


def open_folder(plan: Plan) -> StoredRun:
    """The run of a plan: the one that resumes, or a new folder. Raises StorageError."""
    if isinstance(plan.decision, Resume):
        return plan.decision.run
    weights = None
    if isinstance(plan.decision, FineTune):
        weights = initial_weights(plan.decision.pretrained, plan.config)
    try:
        return create_run(plan.path, plan.config, plan.dataset, weights)
    except StorageError:
        if not is_run(plan.path):
            raise
        hint = "Wait for it to end, or choose another place with `out`."
        raise StorageError(f"Another process has just begun '{plan.path}'.", hint) from None


def remove_half_written(run: StoredRun) -> None:
    """Delete the half-written files of killed processes."""
    remove_leftovers(run.path)
    remove_leftovers(run.path / names.CHECKPOINTS)


def starting_trainer(plan: Plan, run: StoredRun, team: Team = ALONE_TEAM) -> Trainer:
    """The trainer in the state from which the session starts."""
    trainer = new_trainer(plan.config, plan.dataset, plan.device, team)
    if plan.checkpoint is not None:
        refresh_weights_entry(run)
        restore(trainer, plan.checkpoint)
    elif plan.config.train.init_from is not None:
        initial = stored_initial_state(run) if plan.initial is None else plan.initial
        trainer.load_weights(initial)
        initial.clear()  # the plan lives as long as the training
    return trainer


def tidy_up(plan: Plan, progress: Progress, reason: StopReason) -> RunFinished:
    """Tidy up a run that is finished: leftovers, old checkpoints, the model card."""
    assert isinstance(plan.decision, Resume), "only a run that was trained before is finished"
    run = plan.decision.run
    with FolderLock(run.path):
        remove_half_written(run)
        prune_checkpoints(run.path, plan.config.train.keep_checkpoints)
        write_card(run, plan.dataset, progress)
    return RunFinished.after(progress, reason, plan.dataset, seconds=progress.seconds)
