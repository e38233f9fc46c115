"""The model that RUN names, or the newest run where it may be left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gptcli.cli.options import RUNS_ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from gptcli.ui.console import Output


def model_path(run: str | None, doing: str, output: Output) -> Path:
    """The folder of the model that was named, or the newest run, and a note that tells which: "Sampling from …"."""
    from gptcli.generation.load import find_run
    from gptcli.interop.download import local_model

    if run is not None:
        return local_model(run, quiet=output.quiet)
    path = find_run(RUNS_ROOT)
    tell_newest(doing, path, output)
    return path


def tell_newest(doing: str, path: Path, output: Output) -> None:
    """Say which run was taken."""
    output.note(f"{doing} {path}, the newest run.")
