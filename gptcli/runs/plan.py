"""The decision to start a run, to go on with one, or to refuse."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from gptcli.checkpoints.checkpoint import Checkpoint, newest_checkpoint
from gptcli.checkpoints.model_folder import verify_run_files
from gptcli.checkpoints.run_folder import StoredRun, is_run, lost_checkpoints, next_free, read_run
from gptcli.config import CHANGEABLE_ON_RESUME, RunConfig, differences
from gptcli.dataset.folder import Dataset
from gptcli.errors import ModelFolderError, UsageError
from gptcli.runs.budget import why_finished
from gptcli.runs.completion import complete_config
from gptcli.runs.place import run_folder
from gptcli.runs.request import Request
from gptcli.runs.start import Start, require_its_tokenizer
from gptcli.training.schedule import learning_rate_jump

COMPARED_AS_DATA = ("tokenizer.", "data.")
"""Sections that say how the data was made; runs compare the fingerprint of the data itself."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What training will do."""

    path: Path
    """The run folder."""
    config: RunConfig
    """Complete."""
    memory: int
    """Bytes that training takes at its peak."""
    notes: list[str]
    """What was chosen, and why: sentences for the user."""
    is_new: bool
    """Whether the run folder is still to be made."""
    checkpoint: Checkpoint | None = None
    """Where training goes on, if it does."""
    start: Start | None = None
    """What the weights are taken from; None: they are random."""


def make_plan(request: Request, dataset: Dataset, path: Path, device: torch.device, start: Start | None = None) -> Plan:
    """Decide; `start` is what `find_start` gives.

    Raises UsageError (another configuration), CorpusError (too short), and what `run_folder` and the start raise.
    """
    path = run_folder(request, path)
    if is_run(path):
        return _plan_resume(request, dataset, path, device, start)
    if start:
        require_its_tokenizer(start, dataset)
    made = complete_config(request, dataset, device, None, start)
    return Plan(path=path, config=made.config, memory=made.memory, notes=made.notes, is_new=True, start=start)


def _plan_resume(request: Request, dataset: Dataset, path: Path, device: torch.device, start: Start | None) -> Plan:
    verify_run_files(path)
    stored = read_run(path)
    made = complete_config(request, dataset, device, stored.config, start)
    config, notes = made.config, made.notes
    _refuse_changes(stored, config, dataset)
    checkpoint, skipped = newest_checkpoint(path)
    if checkpoint is None:
        _refuse_to_begin_again(path, skipped)
        notes = [f"'{path}' has no checkpoint yet: training starts from its beginning.", *notes]
    elif why := why_finished(config, checkpoint.progress):  # nothing is done by the config that the notes describe
        notes = [*skipped, f"The run is finished: {why}; --resume never starts another."]
    else:
        notes = [*skipped, f"Resuming '{path}' at step {checkpoint.progress.step:,}.", *notes]
        notes += learning_rate_jump(stored.config, config, checkpoint.progress.step)
    return Plan(
        path=path,
        config=config,
        memory=made.memory,
        notes=notes,
        is_new=False,
        checkpoint=checkpoint,
        start=start,
    )


def _refuse_changes(stored: StoredRun, config: RunConfig, dataset: Dataset) -> None:
    """Raise UsageError where a run would go on as another one: with other data, or what may not change."""
    changed = {
        key: values
        for key, values in differences(stored.config, config).items()
        if key not in CHANGEABLE_ON_RESUME and not key.startswith(COMPARED_AS_DATA)
    }
    if stored.data_fingerprint != dataset.fingerprint:
        changed["data"] = (stored.data_name, f"{dataset.name} (another text or tokenizer)")
    if changed:
        listed = "; ".join(f"{key}: {was} → {now}" for key, (was, now) in changed.items())
        raise UsageError(
            f"'{stored.path}' is a run with another configuration ({listed}).",
            f"Give the old values to go on with it, or start '{next_free(stored.path)}' with --resume never.",
        )


def _refuse_to_begin_again(path: Path, skipped: list[str]) -> None:
    """Raise ModelFolderError for a run that lost its checkpoints: its best weights would give way to worse ones.

    `skipped` says of each checkpoint that is there why it cannot be used.
    """
    instead = "from a copy, or start another run with --resume never; the best weights are untouched."
    if skipped:
        message = f"No checkpoint of '{path}' can be used. {' '.join(skipped)}"
        raise ModelFolderError(message, f"Restore one {instead}")
    if best := lost_checkpoints(path):
        message = f"'{path}' has weights of step {best:,}, but its folder 'checkpoints' is gone."
        raise ModelFolderError(message, f"Restore it {instead}")
