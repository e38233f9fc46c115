"""Experiment trackers that a run is logged to besides its own folder: wandb, mlflow and trackio.

Each adapter has the same few calls in the words of its package: begin or continue a run, figures, a text, the end.
The packages' own environment variables say where a run goes: WANDB_MODE, MLFLOW_TRACKING_URI, TRACKIO_DIR and others.
"""

from __future__ import annotations

import html
import io
import json
import math
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any, Protocol

from gptcli.config import RunConfig
from gptcli.config.values import flatten
from gptcli.errors import StorageError, first_line
from gptcli.runs.events import Event, RunFinished, SampleDrawn
from gptcli.runs.logs import scalars
from gptcli.storage import disk_errors, to_json, write_file

PROJECT = "gptcli"
"""Project or experiment, unless the package's environment variable names another."""
IDS_FILE = "trackers.json"
"""In the run folder: the id of the run in each tracker, so that a resumed run continues there."""


class Tracker(Protocol):
    """A run in an experiment tracker."""

    id: str

    def figures(self, values: Mapping[str, float], step: int) -> None:
        """Log numbers."""

    def sample(self, text: str, step: int) -> None:
        """Log a generated text."""

    def finish(self, best_val_loss: float | None, *, complete: bool) -> None:
        """End the run; it may be continued later unless it is `complete`."""


Settings = Mapping[str, str | int | float | bool]


class Wandb:
    """Weights & Biases."""

    def __init__(self, name: str, settings: Settings, known_id: str | None) -> None:
        import wandb

        self.id = known_id or uuid.uuid4().hex[:8]
        self._wandb = wandb
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            id=self.id,
            name=name,
            config=dict(settings),
            resume="allow",
            settings=wandb.Settings(silent=True, console="off"),
        )
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")  # its own counter refuses steps that are trained again

    def figures(self, values: Mapping[str, float], step: int) -> None:
        self._run.log({"step": step, **values})

    def sample(self, text: str, step: int) -> None:
        self._run.log({"step": step, "sample": self._wandb.Html(f"<pre>{html.escape(text)}</pre>", inject=False)})

    def finish(self, best_val_loss: float | None, *, complete: bool) -> None:
        if best_val_loss is not None:
            self._run.summary["best_val_loss"] = best_val_loss
        self._run.finish(exit_code=0)


class Mlflow:
    """MLflow."""

    def __init__(self, name: str, settings: Settings, known_id: str | None) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        self._client, self._metric = MlflowClient(), Metric
        if known_id is None:
            experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
            found = self._client.get_experiment_by_name(experiment)
            place = found.experiment_id if found else self._client.create_experiment(experiment)
            self.id = self._client.create_run(place, run_name=name).info.run_id
            params = [Param(key, str(value)) for key, value in settings.items()]
            self._client.log_batch(self.id, params=params)
        else:
            self.id = known_id
            self._client.update_run(known_id, status="RUNNING")

    def figures(self, values: Mapping[str, float], step: int) -> None:
        now = int(time.time() * 1000)
        self._client.log_batch(self.id, metrics=[self._metric(key, value, now, step) for key, value in values.items()])

    def sample(self, text: str, step: int) -> None:
        self._client.log_text(self.id, text, f"samples/step-{step:08d}.txt")

    def finish(self, best_val_loss: float | None, *, complete: bool) -> None:
        if best_val_loss is not None:
            self._client.log_metric(self.id, "best_val_loss", best_val_loss)
        self._client.set_terminated(self.id, "FINISHED" if complete else "KILLED")


class Trackio:
    """Trackio, whose runs are known by name."""

    def __init__(self, name: str, settings: Settings, known_id: str | None) -> None:
        import trackio

        self.id = known_id or f"{name}-{uuid.uuid4().hex[:8]}"
        self._trackio: Any = trackio  # its functions have no types
        with redirect_stdout(io.StringIO()):  # it prints how to open its dashboard
            self._run = trackio.init(
                project=os.environ.get("TRACKIO_PROJECT", PROJECT),
                name=self.id,
                config=dict(settings),
                resume="allow",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

    def figures(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def sample(self, text: str, step: int) -> None:
        self._run.log({"sample": self._trackio.Markdown(f"```text\n{text}\n```")}, step=step)

    def finish(self, best_val_loss: float | None, *, complete: bool) -> None:
        with redirect_stdout(io.StringIO()):
            if best_val_loss is not None:
                self._run.log({"best_val_loss": best_val_loss})
            self._trackio.finish()


TRACKERS: dict[str, Callable[[str, Settings, str | None], Tracker]] = {
    "wandb": Wandb,
    "mlflow": Mlflow,
    "trackio": Trackio,
}


class TrackerLog:
    """Logs the events of a session to one tracker. Failures are reported once and never stop the training."""

    def __init__(self, name: str, run: Path, config: RunConfig) -> None:
        """Begin a run in the tracker, or continue the one that the run folder names. Raises StorageError."""
        self._name = name
        self._has_ended = False
        ids = _known_ids(run)
        settings = flatten(config.model_dump(mode="json", exclude_none=True))
        plain = {key: value for key, value in settings.items() if isinstance(value, bool | int | float | str)}
        with self._failures("could not be begun"):
            self._tracker = TRACKERS[name](run.resolve().name, plain, ids.get(name))
        if ids.get(name) != self._tracker.id:
            with disk_errors(run):
                write_file(run / IDS_FILE, to_json(ids | {name: self._tracker.id}))

    def write(self, event: Event) -> None:
        """Log the figures or the text of an event, or the result. Raises StorageError at the first failure."""
        if self._has_ended:
            return
        with self._failures("failed, and ends here"):
            if isinstance(event, SampleDrawn):
                self._tracker.sample(event.text, event.step)
            elif isinstance(event, RunFinished):
                self._has_ended = True
                self._tracker.finish(event.best_val_loss, complete=event.stopped != "interrupted")
            elif figures := {name: value for name, value in scalars(event).items() if math.isfinite(value)}:
                self._tracker.figures(figures, event.step)  # type: ignore[union-attr]

    def close(self) -> None:
        """End the run after an error; it can be continued."""
        with suppress(StorageError):
            if not self._has_ended:
                self._has_ended = True
                with self._failures("could not be ended"):
                    self._tracker.finish(None, complete=False)

    @contextmanager
    def _failures(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # of a package that raises what it likes, from its network to its disk
            self._has_ended = True
            problem = f"{type(error).__name__}: {first_line(error)}".rstrip(".")
            hint = f"See the documentation of {self._name}, or leave `train.loggers` out."
            raise StorageError(f"Logging to {self._name} {what}: {problem}.", hint) from error


def _known_ids(run: Path) -> dict[str, str]:
    """The ids in the run folder; {} where the file is missing or damaged."""
    with suppress(OSError, ValueError):
        values: Any = json.loads((run / IDS_FILE).read_text(encoding="utf-8"))
        if isinstance(values, dict):
            return {str(name): value for name, value in values.items() if isinstance(value, str)}
    return {}
