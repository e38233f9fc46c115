"""One session of training, from the plan to the last event: the lock, the run folder, the logs, the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from gptcli.checkpoints import names
from gptcli.checkpoints.checkpoint import Progress, discard_damaged, prune_checkpoints
from gptcli.checkpoints.run_folder import StoredRun, create_run, is_run, read_run, update_config, write_card
from gptcli.dataset.folder import Dataset
from gptcli.errors import StorageError
from gptcli.runs.budget import budget_end
from gptcli.runs.events import Event, RunFinished
from gptcli.runs.metrics import MetricsLog
from gptcli.runs.plan import Plan
from gptcli.runs.saving import attempt
from gptcli.runs.start import starting_weights
from gptcli.storage import FolderLock, remove_leftovers
from gptcli.training import runtime
from gptcli.training.trainer import Trainer


def train(plan: Plan, dataset: Dataset, device: torch.device, stop_signal: Callable[[], int]) -> Iterator[Event]:
    """Carry out a plan; yields what happens, after it was logged. One process at a time writes to a run.

    A finished run is only tidied up: leftovers, old checkpoints, the model card.
    """
    progress = plan.checkpoint.progress if plan.checkpoint else Progress()
    if plan.checkpoint and (end := budget_end(plan.config.train, progress, progress.seconds)):
        with FolderLock(plan.path):
            _remove_leftovers(plan.path)
            prune_checkpoints(plan.path, plan.config.train.keep_checkpoints)
            write_card(read_run(plan.path), dataset, progress)
        yield RunFinished.after(progress, end, seconds=progress.seconds)
        return
    weights = starting_weights(plan.start, plan.config) if plan.is_new and plan.start else None
    run = _new_run(plan, dataset, weights) if plan.is_new else read_run(plan.path)
    del weights  # they are in the run folder now
    with FolderLock(plan.path):
        _remove_leftovers(plan.path)
        discard_damaged(plan.path, newer_than=progress.step)
        if not plan.is_new:
            run = update_config(run, plan.config)
        runtime.prepare(device, deterministic=plan.config.train.deterministic)
        from gptcli.runs.tensorboard import TensorBoardLog  # no dry run and no refusal has to wait for it

        with (
            closing(MetricsLog(plan.path, progress.metrics_bytes)) as metrics,
            closing(TensorBoardLog(plan.path, plan.config, progress.step)) as board,
        ):
            trainer = Trainer(run, dataset, device, plan.checkpoint, stop_signal=stop_signal, log_bytes=metrics.sync)
            for event in trainer.fit():
                writes = [partial(metrics.write, event), partial(board.write, event)]
                if isinstance(event, RunFinished):
                    writes.append(partial(write_card, run, dataset, trainer.progress))
                for write in writes:
                    yield from attempt(trainer.progress.step, write)
                yield event


def _remove_leftovers(run: Path) -> None:
    """Delete what killed processes left half-written in a run folder."""
    remove_leftovers(run)
    remove_leftovers(run / names.CHECKPOINTS)


def _new_run(plan: Plan, dataset: Dataset, weights: Mapping[str, Tensor] | None) -> StoredRun:
    try:
        return create_run(plan.path, plan.config, dataset, weights)
    except StorageError:
        if not is_run(plan.path):
            raise
        hint = "Wait for it to end, or choose another place with --out."
        raise StorageError(f"Another process has just begun '{plan.path}'.", hint) from None
