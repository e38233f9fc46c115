"""Where a training takes place: its run folder and its device, known before any text is read."""

from __future__ import annotations

from pathlib import Path

import torch

from gptcli.checkpoints.run_folder import is_run, missing_part, next_free, read_run
from gptcli.errors import DeviceError, ModelFolderError, StorageError, UsageError
from gptcli.model.devices import choose_device
from gptcli.runs.request import Request
from gptcli.storage import is_occupied, refuse_working_folder


def run_folder(request: Request, path: Path) -> Path:
    """The folder of the run that is asked for at `path`: that of one that goes on, or of one that is still to be made.

    Raises StorageError where something other than a run or an empty folder stands, ModelFolderError for half a run,
    UsageError where there is no run to resume.
    """
    _refuse_foreign(path)
    if is_run(path):
        return next_free(path) if request.resume == "never" else path
    if request.resume == "must":
        raise UsageError(f"There is no run '{path}' to resume.", "Leave out --resume must to start one.")
    return path


def run_device(request: Request, path: Path) -> tuple[torch.device, str]:
    """The device that is stated, else the one on which the run at `path` began; and what to tell ("": nothing).

    Runs move between machines: where the run's device is not here, `auto` chooses. Raises DeviceError for a stated one.
    """
    stated = request.stated("train.device")
    if stated is not None or not is_run(path):
        return choose_device("auto" if stated is None else str(stated)), ""
    wanted = read_run(path).config.train.device
    try:
        return choose_device(wanted), ""
    except DeviceError:
        device = choose_device("auto")
        return device, f"The run was to be trained on '{wanted}', which is not here: it goes on with '{device.type}'."


def _refuse_foreign(path: Path) -> None:
    if is_occupied(path):
        if is_run(path):
            return
        if part := missing_part(path):
            hint = "Restore it from a copy, or choose another place with --out."
            raise ModelFolderError(f"The run '{path}' is damaged: '{part}' is missing.", hint)
        kind = "a folder with other things in it" if path.is_dir() else "a file"
        raise StorageError(f"'{path}' is {kind}, not a run.", "Choose another place with --out.")
    refuse_working_folder(path)
