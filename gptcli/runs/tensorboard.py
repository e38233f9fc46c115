"""TensorBoard event files, beside metrics.jsonl in the run folder. The only place that knows tensorboard."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

from gptcli.config import RunConfig, to_toml
from gptcli.config.values import flatten
from gptcli.errors import StorageError
from gptcli.runs.events import CheckpointSaved, Event, RunFinished, SampleDrawn
from gptcli.runs.logs import scalars
from gptcli.storage import disk_errors


class TensorBoardLog:
    """Writes events as scalars and text. A step has each at most once, however often a run is stopped and goes on."""

    def __init__(self, run: Path, config: RunConfig, step: int) -> None:
        """Go on after `step`: points beyond it, of a session that was cut off, are taken out of the curves."""
        self._run, self._config, self._start = run, config, step
        self._is_lost = False
        # The writer's thread would print a traceback; `write` tells what went wrong there.
        self._hook, threading.excepthook = threading.excepthook, self._ignore_disk_errors
        with disk_errors(run):
            self._writer = SummaryWriter(str(run), purge_step=step + 1)
            self._writer.add_text("config", f"```toml\n{to_toml(config)}\n```", step + 1)

    def write(self, event: Event) -> None:
        """Add the event's figures, its text, or at the end the hyperparameters with the result.

        Raises StorageError once, where the disk refuses: TensorBoard's writer cannot go on after that.
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
                self._writer.flush()  # an error is to be told while somebody listens
            elif isinstance(event, CheckpointSaved):
                self._writer.flush()  # what a kill leaves reaches as far as the checkpoint does
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
        """`SummaryWriter.add_hparams` would open a second folder; this keeps the run one folder."""
        settings = flatten(self._config.model_dump(mode="json", exclude_none=True))
        plain = {key: value for key, value in settings.items() if isinstance(value, bool | int | float | str)}
        for summary in hparams(plain, {"hparam/best_val_loss": best_val_loss}):  # type: ignore[no-untyped-call]
            self._writer._get_file_writer().add_summary(summary, step)  # type: ignore[no-untyped-call]
        self._writer.add_scalar("hparam/best_val_loss", best_val_loss, step)
