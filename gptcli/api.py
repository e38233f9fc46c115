"""`gptcli.train` and `gptcli.plan`. The other functions of the Python API live in the rooms that do their work.

Nothing here prints, exits or installs signal handlers. Failures raise the exceptions of `gptcli.errors`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gptcli.config import ResumeMode
from gptcli.runs.events import Event, Planned, Preparing, RunFinished
from gptcli.runs.followers import end_followers, follow
from gptcli.runs.plan import Plan, make_plan
from gptcli.runs.request import new_request
from gptcli.runs.session import carry_out
from gptcli.runs.team import joined
from gptcli.runs.weights import Data
from gptcli.tokenizer import Unknown
from gptcli.training.trainer import never


@dataclass(frozen=True)
class Run:
    """A run folder after a session of training."""

    path: Path
    """Open it with `gptcli.load`."""
    end: RunFinished
    """Steps, tokens, losses, and why training stopped."""


def train(
    data: Data,
    out: str | Path | None = None,
    *,
    preset: str | None = None,
    family: str | None = None,
    config: str | Path | Sequence[str | Path] = (),
    settings: Mapping[str, Any] | None = None,
    resume: ResumeMode = "auto",
    unknown: Unknown = "error",
    on_event: Callable[[Event], None] | None = None,
    should_stop: Callable[[], bool] = never,
    quiet: bool = True,
) -> Run:
    """Train a model on text, or resume a run that was stopped.

    `data` is text files, folders, addresses, names of corpora, "-" for standard input, or one dataset folder; or the
    parts of a mixture with their weights, ["code=0.7", "prose=0.3"] or {"code": 0.7, "prose": 0.3}, each a dataset
    folder or a text (docs/data.md). `out` is the run folder; by default it is named after the data, below `runs/`.
    `settings` are fields of the config by dotted name, such as {"train.max_steps": 500}; they override the config files
    in `config`. `resume` says what to do with an existing run: resume it ("auto", "must") or start another ("never").
    `unknown="skip"` leaves out characters that the tokenizer of a pretrained model does not know.

    `on_event` is called with each event as it happens. Training stops, after saving, when `should_stop` becomes true.
    `quiet=False` shows the progress of downloads on a terminal. Raises GptcliError.

    >>> run = train("book.txt", preset="nano", settings={"train.max_steps": 100})  # doctest: +SKIP
    >>> run.end.best_val_loss  # doctest: +SKIP
    2.31
    """
    notify = on_event or _ignore
    with joined() as team:
        if not team.leads:
            ending = follow(team)
            return Run(Path(ending["path"]), RunFinished(**ending["end"]))
        request = new_request(
            data,
            out=out,
            preset=preset,
            family=family,
            config=config,
            settings=settings,
            resume=resume,
            unknown=unknown,
        )
        made = make_plan(request, team, on_progress=_reporter(notify), quiet=quiet)
        notify(Planned(made))
        for event in carry_out(made, should_stop, team):
            notify(event)
        assert isinstance(event, RunFinished), "the last event is the end"
        end_followers(team, path=str(made.path), end=asdict(event))
    return Run(made.path, event)


def plan(
    data: Data,
    out: str | Path | None = None,
    *,
    preset: str | None = None,
    family: str | None = None,
    config: str | Path | Sequence[str | Path] = (),
    settings: Mapping[str, Any] | None = None,
    resume: ResumeMode = "auto",
    unknown: Unknown = "error",
    on_event: Callable[[Event], None] | None = None,
    quiet: bool = True,
) -> Plan:
    """Decide everything that `train` would decide with the same arguments; trains nothing and leaves nothing on disk.

    `Plan.refusal` says why the training cannot run on this machine, if it cannot. Raises GptcliError.
    """
    request = new_request(
        data,
        out=out,
        preset=preset,
        family=family,
        config=config,
        settings=settings,
        resume=resume,
        unknown=unknown,
    )
    return make_plan(request, on_progress=_reporter(on_event or _ignore), quiet=quiet, dry_run=True)


def _reporter(on_event: Callable[[Event], None]) -> Callable[[str, int, int], None]:
    return lambda stage, done, total: on_event(Preparing(stage, done, total))


def _ignore(event: Event) -> None:
    """No callback was given."""
