"""Finding a model by what people call it: a path, a run's name, an address on the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path

from gptcli.checkpoints import names
from gptcli.checkpoints.run_folder import newest_run
from gptcli.errors import ModelFolderError
from gptcli.interop.hub import local_model


def find_model(thing: str | Path | None, *, quiet: bool = True) -> Path:
    """The folder of a model: a path as it is, `hf://owner/name[@revision]` downloaded once, None the newest run.

    A bare name such as "book" is the run `runs/book` where nothing here has that name. `quiet` False shows downloads on
    a terminal. Raises UsageError for an impossible address, and ModelFolderError for a failed download or no run.
    """
    if thing is None:
        run = newest_run(names.RUNS_ROOT)
        if run is None:
            raise ModelFolderError(f"There is no run under {names.RUNS_ROOT}/.", "Train one: gptcli train book.txt")
        return run
    path = local_model(thing, quiet=quiet)
    run = names.RUNS_ROOT / path.name
    return run if path == Path(path.name) and not path.exists() and run.is_dir() else path
