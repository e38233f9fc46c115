"""Writing checkpoints and best weights, and handling disk errors during a session.

Training pauses only while its state is copied; a thread writes the copy. A checkpoint counts as saved, and is reported,
once it is complete on the disk, at a later step. The next one waits for it.

A disk may be full only for a while, and the training so far is worth more than a save: a failed save is reported, and
training continues to the next one. Training ends where no later save can make up for it: at the third failure in a row,
or when it was about to end. What was saved before stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gptcli.checkpoints.checkpoint import Checkpoint, Progress, prune_checkpoints, save_checkpoint
from gptcli.checkpoints.run_folder import StoredRun, create_run, replace_weights, update_config
from gptcli.config import RunConfig
from gptcli.errors import GptcliError, ModelFolderError, StorageError, is_out_of_memory
from gptcli.interop.huggingface import tensors_from_hf, tensors_to_hf
from gptcli.machine import free_memory, process_memory
from gptcli.runs.events import CheckpointSaved, SaveFailed
from gptcli.runs.host_copy import DIRECT_BYTES, HostCopy, copied_bytes
from gptcli.runs.logs import MetricsLog
from gptcli.runs.plan import Plan
from gptcli.runs.writer import Outcome, SaveEvent, Writer
from gptcli.storage import FolderLock
from gptcli.training.state import TrainerState
from gptcli.training.trainer import Trainer

MAX_FAILED_SAVES = 3
"""Consecutive failures to write a checkpoint that end a training."""

Source = Callable[[], dict[str, Tensor]]


@dataclass(frozen=True)
class _BestWeights:
    """Best weights that the thread is writing."""

    step: int
    tensors: Source
    problem: Future[StorageError | None]
    previous: tuple[float | None, int | None]
    """Loss and step of those in the run folder, which stay there if writing fails."""


class Saving:
    """The saves of one session of a run."""

    def __init__(self, plan: Plan, run: StoredRun, lock: FolderLock, log: MetricsLog) -> None:
        self.run = run
        self.dataset = plan.dataset
        self.lock = lock
        self.log = log
        self.saved_step = plan.begin if plan.checkpoint else None
        """Step of the newest checkpoint; None if there is none."""
        self.failed_saves = 0
        """Consecutive checkpoints that could not be written."""
        self.best_weights_error: StorageError | None = None
        """The reason why the best weights so far are not in the run folder; None if they are."""
        self._peak_memory = plan.memory if plan.device.type == "cpu" else 0
        self._writer = Writer()
        self._writes_checkpoint = False
        self._best: _BestWeights | None = None

    def checkpoint(self, progress: Progress, state: TrainerState, is_last: Callable[[], bool]) -> Iterator[SaveEvent]:
        """Write a checkpoint, then delete the oldest ones.

        Raises StorageError if training must end: `is_last` says after a failure whether no later save makes up for it.
        """
        if self._writes_checkpoint:
            yield from self.finish()
        weights = tensors_to_hf(state.model, self.run.config.model)
        in_thread = self._pays_to_copy({**weights, **state.optimizer})
        if not in_thread:
            yield from self.finish()
        best, replaces = self._best, progress.step == self.saved_step
        model = best.tensors if best and best.step == progress.step else _source(weights, copy=in_thread)
        optimizer = _source(state.optimizer, copy=in_thread)
        progress = replace(progress)  # the session counts on

        def write() -> StorageError | None:
            stored = progress
            if best and best.problem.result():
                stored = replace(progress, best_val_loss=best.previous[0], best_step=best.previous[1])
            checkpoint = Checkpoint(stored, replace(state, model=model(), optimizer=optimizer()))
            return self._write_checkpoint(checkpoint, replaces=replaces)

        def conclude(outcome: Outcome) -> Iterator[SaveEvent]:
            self._writes_checkpoint = False
            return self._conclude_checkpoint(progress.step, outcome, is_last)

        if in_thread:
            self._writes_checkpoint = True
            self._writer.write(write, conclude)
        else:
            yield from conclude(write)

    def best_weights(self, progress: Progress, state: Mapping[str, Tensor], val_loss: float) -> Iterator[SaveEvent]:
        """Put the best weights so far into the run folder; `progress` names them unless that fails."""
        weights, step = tensors_to_hf(state, self.run.config.model), progress.step
        in_thread = self._pays_to_copy(weights)
        if not in_thread:
            yield from self.finish()
        tensors = _source(weights, copy=in_thread)
        previous = progress.best_val_loss, progress.best_step
        progress.best_val_loss, progress.best_step = val_loss, step

        def write() -> StorageError | None:
            place = self.lock.whereabouts() if self.lock.moved() else self.run.path
            if place is None:
                return StorageError(f"'{self.run.path}' was deleted or moved to another disk.")
            run = replace(self.run, path=place)
            return _problem_of(lambda: replace_weights(run, tensors(), step=step, val_loss=val_loss))

        def conclude(outcome: Outcome) -> Iterator[SaveEvent]:
            self._best = None
            self.best_weights_error = outcome()
            if self.best_weights_error:
                progress.best_val_loss, progress.best_step = previous
                yield SaveFailed(step, self.best_weights_error.message)

        if in_thread:
            self._best = _BestWeights(step, tensors, self._writer.write(write, conclude), previous)
        else:
            yield from conclude(write)

    def config(self, config: RunConfig, step: int) -> Generator[SaveEvent, None, bool]:
        """Store another config; returns whether it is stored. Waits for the thread, which writes the same manifest."""
        yield from self.finish()
        if self.lock.moved():
            return False  # the next save says so
        before = self.run
        try:
            self.run = update_config(before, config)
        except StorageError as error:
            with suppress(StorageError):  # it may be there already, and only its entry in the manifest missing
                update_config(before, before.config)
            yield SaveFailed(step, error.message)
            return False
        return True

    def report(self) -> Iterator[SaveEvent]:
        """The events of the saves that the thread has done by now. Raises StorageError as `checkpoint` does."""
        return self._writer.report()

    def finish(self) -> Iterator[SaveEvent]:
        """Wait for the thread; the events of its saves. Raises StorageError as `checkpoint` does."""
        return self._writer.finish()

    def finish_best_weights(self) -> Iterator[SaveEvent]:
        """Wait until it is known whether the run folder has the best weights so far."""
        return self._writer.finish(self._best.problem) if self._best else iter(())

    def close(self) -> None:
        """Wait for the thread, whatever it writes, and end it."""
        self._writer.close()

    def _pays_to_copy(self, tensors: Mapping[str, Tensor]) -> bool:
        """Whether a thread writes the tensors from a copy: large ones, with room for it beside the next updates."""
        size = copied_bytes(tensors)
        if size <= DIRECT_BYTES or self.lock.moved():
            return False
        to_come = self._peak_memory - process_memory("cpu", trains=False)
        return size + max(size, to_come) <= free_memory(torch.device("cpu"))

    def _write_checkpoint(self, checkpoint: Checkpoint, *, replaces: bool) -> StorageError | None:
        """Write a checkpoint; returns a failure to delete the oldest ones. Raises StorageError or RunMoved."""
        self.log.flush()
        if self.lock.moved():
            raise self._saved_after_a_move(checkpoint, replaces=replaces)
        save_checkpoint(self.run.path, checkpoint, replace=replaces)
        return _problem_of(lambda: prune_checkpoints(self.run.path, self.run.config.train.keep_checkpoints))

    def _conclude_checkpoint(self, step: int, outcome: Outcome, is_last: Callable[[], bool]) -> Iterator[SaveEvent]:
        try:
            undeleted = outcome()
        except StorageError as error:
            self.failed_saves += 1
            if self.failed_saves >= MAX_FAILED_SAVES or is_last():
                raise
            yield SaveFailed(step, f"{error.message} Training continues.", checkpoint=True)
            return
        self.saved_step, self.failed_saves = step, 0
        yield CheckpointSaved(step)
        if undeleted:
            yield SaveFailed(step, undeleted.message)

    def _saved_after_a_move(self, checkpoint: Checkpoint, *, replaces: bool) -> RunMoved:
        """Save a training whose folder was moved or deleted; returns the error that ends the session."""
        progress, began = checkpoint.progress, self.run.path
        if place := self.lock.whereabouts():
            what = f"'{began}' was moved to '{place}' during training"
        else:
            place, what = began, f"'{began}' was deleted or moved to another disk during training, and was made again"
            create_run(began, self.run.config, self.dataset)
            progress = replace(progress, best_val_loss=None, best_step=None)  # the best weights are gone
        save_checkpoint(place, replace(checkpoint, progress=progress), replace=replaces)
        hint = "" if place == began else f"To resume, run the same command with `out = {place}`."
        return RunMoved(f"{what}. Stopped at step {progress.step:,}; the checkpoint is saved in '{place}'.", hint)


class RunMoved(GptcliError):  # noqa: N818 - the training itself is saved
    """The run folder was moved or deleted during training, which ended after saving."""


def attempt(step: int, write: Callable[[], None]) -> Iterator[SaveFailed]:
    """Carry out a write whose failure is no reason to stop; an event if it fails."""
    if problem := _problem_of(write):
        yield SaveFailed(step, problem.message)


def _problem_of(write: Callable[[], None]) -> StorageError | None:
    """The failure of a write, if it fails; without a traceback, whose frames would keep tensors alive."""
    try:
        write()
    except StorageError as error:
        return StorageError(error.message, error.hint)
    return None


def _source(tensors: Mapping[str, Tensor], *, copy: bool) -> Source:
    """Tensors for a write that begins later, in the thread (`copy`), or now."""
    return HostCopy(tensors).tensors if copy else lambda: dict(tensors)


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
