"""TensorBoard event files in the run folder. The only module that imports tensorboard."""

from __future__ import annotations

import threading
from contextlib import suppress
from itertools import islice
from pathlib import Path

from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from gptcli.config import RunConfig, to_toml
from gptcli.config.values import flatten
from gptcli.errors import StorageError
from gptcli.runs.events import CheckpointSaved, Event, RunFinished, SampleDrawn
from gptcli.runs.logs import scalars
from gptcli.storage import disk_errors

CHARTS = {"loss": {"training and validation": ["Multiline", ["train/loss", "val/loss"]]}}
"""Charts with several curves, in the tab "Custom Scalars"."""
_FIRST_EVENTS = 3
"""Events of a file in which its session log comes: after the version of the file."""


class TensorBoardLog:
    """Writes events as scalars and text; each step has each of them at most once, also after resumes."""

    def __init__(self, run: Path, config: RunConfig, step: int) -> None:
        """Continue after `step`: later points, of a session that was killed, are removed from the curves."""
        self._run, self._config, self._start = run, config, step
        self._is_lost = False
        # The writer's thread would print a traceback; `write` reports the error.
        self._hook, threading.excepthook = threading.excepthook, self._ignore_disk_errors
        with disk_errors(run):
            self._writer = SummaryWriter(str(run), purge_step=step + 1)
            self._writer.add_custom_scalars(CHARTS)
            self._writer.add_text("config", f"```toml\n{to_toml(config)}\n```", step + 1)

    def write(self, event: Event) -> None:
        """Add the figures or the text of an event, or at the end the hyperparameters with the result.

        Raises StorageError once, at the first failed write: TensorBoard's writer cannot continue after that.
        """
        if self._is_lost:
            return
        try:
            self._add(event)
        except StorageError:
            self._is_lost = True
            raise

    def _add(self, event: Event) -> None:
        with disk_errors(self._run):
            if isinstance(event, SampleDrawn):
                self._writer.add_text("sample", f"```text\n{event.text}\n```", event.step)
            elif isinstance(event, RunFinished):
                if event.best_val_loss is not None and event.step > self._start:
                    self._write_hparams(event.best_val_loss, event.step)
                self._writer.flush()  # errors must be raised before the end
            elif isinstance(event, CheckpointSaved):
                self._writer.flush()  # after a kill, the curves reach as far as the checkpoint
            else:
                for name, value in scalars(event).items():
                    self._writer.add_scalar(name, value, event.step)  # type: ignore[union-attr]

    def close(self) -> None:
        with suppress(OSError):
            self._writer.close()
        threading.excepthook = self._hook

    def _ignore_disk_errors(self, arguments: threading.ExceptHookArgs) -> None:
        if not issubclass(arguments.exc_type, OSError):
            self._hook(arguments)

    def _write_hparams(self, best_val_loss: float, step: int) -> None:
        """Write hyperparameters without `SummaryWriter.add_hparams`, which would make a second folder."""
        settings = flatten(self._config.model_dump(mode="json", exclude_none=True))
        plain = {key: value for key, value in settings.items() if isinstance(value, bool | int | float | str)}
        for summary in hparams(plain, {"hparam/best_val_loss": best_val_loss}):  # type: ignore[no-untyped-call]
            self._writer._get_file_writer().add_summary(summary, step)  # type: ignore[no-untyped-call]
        self._writer.add_scalar("hparam/best_val_loss", best_val_loss, step)


def session_starts(run: Path) -> list[int]:
    """The step from which each session of a run resumed, as far as its event files have it; ascending.

    A session names the first step whose points of an earlier one, which was killed, do not count.
    """
    starts = []
    for path in run.glob("events.out.tfevents.*"):
        events = LegacyEventFileLoader(str(path)).Load()  # type: ignore[no-untyped-call]
        with suppress(OSError, ValueError):  # a damaged file counts for nothing
            starts += [event.step - 1 for event in islice(events, _FIRST_EVENTS) if event.HasField("session_log")]
    return sorted(starts)
