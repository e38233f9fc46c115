"""Writing checkpoints, best weights and logs, and what happens when the disk refuses.

A disk may be full only for a while, and the training so far is worth more than a save: so a save that fails is told,
and training goes on to the next one. Training ends where no later save can make up for it: at the third failure in a
row, or when it was about to end. What was saved before stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

from gptcli.checkpoints.checkpoint import Checkpoint, prune_checkpoints, save_checkpoint
from gptcli.checkpoints.run_folder import StoredRun, replace_weights
from gptcli.errors import StorageError
from gptcli.runs.events import CheckpointSaved, SaveFailed

MAX_FAILED_SAVES = 3
"""So many checkpoints in a row that could not be written end a training."""


class Saving:
    """Saves for one session of a run."""

    def __init__(self, run: StoredRun) -> None:
        self.run = run
        self.saved_step = 0
        """Step of the newest checkpoint; 0 if there is none."""
        self.failed_saves = 0
        """Checkpoints in a row that could not be written."""
        self.lost_best: StorageError | None = None
        """Why the best weights so far are not in the run folder, if they are not."""

    def checkpoint(
        self, step: int, make: Callable[[], Checkpoint], is_last: Callable[[], bool]
    ) -> Iterator[CheckpointSaved | SaveFailed]:
        """Write a checkpoint, then let go of the oldest ones. Raises StorageError if training must end."""
        try:
            save_checkpoint(self.run.path, make())
        except StorageError as error:
            self.failed_saves += 1
            if self.failed_saves >= MAX_FAILED_SAVES or is_last():
                raise
            yield SaveFailed(step, f"{error.message} Training goes on.")
            return
        self.saved_step, self.failed_saves = step, 0
        yield CheckpointSaved(step)
        keep = self.run.config.train.keep_checkpoints
        yield from attempt(step, lambda: prune_checkpoints(self.run.path, keep))

    def best_weights(self, tensors: dict[str, Tensor], *, step: int, val_loss: float) -> Iterator[SaveFailed]:
        """Put the best weights so far into the run folder."""
        try:
            replace_weights(self.run, tensors, step=step, val_loss=val_loss)
            self.lost_best = None
        except StorageError as error:
            self.lost_best = error
            yield SaveFailed(step, error.message)


def attempt(step: int, write: Callable[[], None]) -> Iterator[SaveFailed]:
    """Carry out a write that is no reason to stop; what to tell if it fails."""
    try:
        write()
    except StorageError as error:
        yield SaveFailed(step, error.message)
