"""Writing checkpoints and best weights, and handling disk errors during a session.

A disk may be full only for a while, and the training so far is worth more than a save: a failed save is reported, and
training continues to the next one. Training ends where no later save can make up for it: at the third failure in a row,
or when it was about to end. What was saved before stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from torch import Tensor

from gptcli.checkpoints.checkpoint import Checkpoint, Progress, prune_checkpoints, save_checkpoint
from gptcli.checkpoints.run_folder import StoredRun, create_run, replace_weights
from gptcli.dataset.folder import Dataset
from gptcli.errors import GptcliError, ModelFolderError, StorageError, is_out_of_memory
from gptcli.interop.huggingface import tensors_from_hf, tensors_to_hf
from gptcli.runs.events import CheckpointSaved, SaveFailed
from gptcli.storage import FolderLock
from gptcli.training.state import TrainerState
from gptcli.training.trainer import Trainer

MAX_FAILED_SAVES = 3
"""Consecutive failures to write a checkpoint that end a training."""


class Saving:
    """The saves of one session of a run."""

    def __init__(self, run: StoredRun, dataset: Dataset, lock: FolderLock, saved_step: int | None) -> None:
        self.run = run
        self.dataset = dataset
        self.lock = lock
        self.saved_step = saved_step
        """Step of the newest checkpoint; None if there is none."""
        self.failed_saves = 0
        """Consecutive checkpoints that could not be written."""
        self.lost_best: StorageError | None = None
        """The reason why the best weights so far are not in the run folder; None if they are."""

    def checkpoint(
        self, progress: Progress, state: TrainerState, is_last: Callable[[], bool]
    ) -> Iterator[CheckpointSaved | SaveFailed]:
        """Write a checkpoint, then delete the oldest ones. Raises StorageError if training must end."""
        step = progress.step
        checkpoint = Checkpoint(progress, replace(state, model=tensors_to_hf(state.model, self.run.config.model)))
        try:
            if self.lock.moved():
                raise self._saved_after_a_move(checkpoint)
            save_checkpoint(self.run.path, checkpoint, replace=step == self.saved_step)
        except StorageError as error:
            self.failed_saves += 1
            if self.failed_saves >= MAX_FAILED_SAVES or is_last():
                raise
            yield SaveFailed(step, f"{error.message} Training continues.", checkpoint=True)
            return
        self.saved_step, self.failed_saves = step, 0
        yield CheckpointSaved(step)
        keep = self.run.config.train.keep_checkpoints
        yield from attempt(step, lambda: prune_checkpoints(self.run.path, keep))

    def best_weights(self, state: Mapping[str, Tensor], *, step: int, val_loss: float) -> Iterator[SaveFailed]:
        """Put the best weights so far into the run folder."""
        try:
            tensors = tensors_to_hf(state, self.run.config.model)
            replace_weights(self.run, tensors, step=step, val_loss=val_loss)
            self.lost_best = None
        except StorageError as error:
            self.lost_best = error
            yield SaveFailed(step, error.message)

    def _saved_after_a_move(self, checkpoint: Checkpoint) -> RunMoved:
        """Save a training whose folder was moved or deleted; returns the error that ends the session."""
        progress, began = checkpoint.progress, self.run.path
        if place := self.lock.whereabouts():
            what = f"'{began}' was moved to '{place}' during training"
        else:
            place, what = began, f"'{began}' was deleted or moved to another disk during training, and was made again"
            create_run(began, self.run.config, self.dataset)
            progress = replace(progress, best_val_loss=None, best_step=None)  # the best weights are gone
        save_checkpoint(place, replace(checkpoint, progress=progress), replace=progress.step == self.saved_step)
        hint = "" if place == began else f"To resume, run the same command with `out = {place}`."
        return RunMoved(f"{what}. Stopped at step {progress.step:,}; the checkpoint is saved in '{place}'.", hint)


class RunMoved(GptcliError):  # noqa: N818 - the training itself is saved
    """The run folder was moved or deleted during training, which ended after saving."""


def attempt(step: int, write: Callable[[], None]) -> Iterator[SaveFailed]:
    """Carry out a write whose failure is no reason to stop; an event if it fails."""
    try:
        write()
    except StorageError as error:
        yield SaveFailed(step, error.message)


def restore(trainer: Trainer, checkpoint: Checkpoint) -> None:
    """Continue from a checkpoint exactly, and release its tensors. Raises ModelFolderError if it is of another run."""
    step = f"The checkpoint of step {checkpoint.progress.step:,}"
    weights = tensors_from_hf(checkpoint.state.model, trainer.config.model, "The checkpoint")
    try:
        trainer.load_state(replace(checkpoint.state, model=weights))
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise
        raise ModelFolderError(f"{step} does not fit its run: {error}.", "Restore the run from a copy.") from error
    checkpoint.state.model.clear()  # the plan, which holds the checkpoint, lives as long as the training
    checkpoint.state.optimizer.clear()
