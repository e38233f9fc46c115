"""The decision about a request: start a run, fine-tune a pretrained model, or resume a run.

The disk is read once, here, and the result is one of three frozen values. Nothing downstream asks again whether there
is a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import torch

from gptcli.checkpoints import names
from gptcli.checkpoints.checkpoint import Progress, read_progress
from gptcli.checkpoints.run_folder import StoredRun, is_run, missing_part, next_free, open_run
from gptcli.config import CHANGEABLE_ON_RESUME, RunConfig, build_config, nearest_preset
from gptcli.config.presets import LR_TIMES_ADAMW, fine_tuning, preset
from gptcli.config.types import parse_duration
from gptcli.config.values import Values, merge
from gptcli.dataset.place import dataset_name
from gptcli.errors import DeviceError, ModelFolderError, StorageError, UsageError
from gptcli.model.devices import choose_device, choose_device_with_note
from gptcli.runs.pretrained import Pretrained, find_pretrained, pretrained_of, refuse_contradictions, stored_name
from gptcli.runs.request import Request
from gptcli.storage import is_occupied, refuse_impossible_place

_MAX_NAME_CHARACTERS = 100


@dataclass(frozen=True)
class Chosen:
    """A preset that was chosen for the text, and the settings over it."""

    preset: str
    settings: Values


@dataclass(frozen=True)
class NewRun:
    """A training from random weights."""

    path: Path
    chosen: Chosen | None = None
    """The model chosen for the text; None until the data is known, or where the user has stated one."""
    pretrained: ClassVar[None] = None

    def default_preset(self, device: torch.device) -> str:
        """The preset where none is stated: the chosen one, else one that trains in minutes on the device."""
        if self.chosen:
            return self.chosen.preset
        return "tiny" if device.type == "cpu" else "small"

    def recipe(self, preset_name: str) -> list[Values]:
        """Layers between the preset and the user's settings, the stronger one last."""
        return [self.chosen.settings] if self.chosen else []

    def kept(self, request: Request) -> Values:
        """Settings of an earlier session that hold where the request is silent."""
        return {}


@dataclass(frozen=True)
class FineTune:
    """A training from the weights of a pretrained model."""

    path: Path
    pretrained: Pretrained

    def default_preset(self, device: torch.device) -> str:
        return nearest_preset(self.pretrained.config)

    def recipe(self, preset_name: str) -> list[Values]:
        return [fine_tuning(preset_name), self.pretrained.layer()]

    def kept(self, request: Request) -> Values:
        return {"train": {"init_from": self.pretrained.name}}


@dataclass(frozen=True)
class Resume:
    """A run that continues."""

    path: Path
    run: StoredRun

    @cached_property
    def pretrained(self) -> Pretrained | None:
        """The model that the run started from; None for random weights."""
        return pretrained_of(self.run) if self.run.config.train.init_from else None

    def default_preset(self, device: torch.device) -> str:
        return self.run.config.preset

    def recipe(self, preset_name: str) -> list[Values]:
        return [fine_tuning(preset_name), self.pretrained.layer()] if self.pretrained else []

    @cached_property
    def progress(self) -> Progress:
        """The counters of the newest checkpoint, whose weights are not read."""
        return read_progress(self.path) or Progress()

    def states_another_time(self, request: Request) -> bool:
        """Whether the request changes the time from which the stored number of steps was computed."""
        stored, stated = self.run.config.train, request.budget
        if None in (stored.max_time, stated.get("max_time")) or stored.epochs is not None or len(stated) > 1:
            return False
        try:
            return parse_duration(stated["max_time"]) != stored.max_time
        except ValueError:
            return False  # building the config reports it

    def kept(self, request: Request) -> Values:
        """Budgets, rhythms, how its text is read, and choices for the text and the machine, as they were stored.

        A field that is open there (None) stays open, whatever a preset or the recipe of fine-tuning says.
        """
        keys = CHANGEABLE_ON_RESUME | {"train.dtype", "train.init_sha256", "train.init_from", "optim.lr"}
        if "epochs" in request.budget:
            keys -= {"train.max_steps"}
        elif "max_steps" in request.budget:
            keys -= {"train.epochs"}
        elif self.states_another_time(request):
            keys -= {"train.max_steps"}
        sections = {"optim": self.run.config.optim, "train": self.run.config.train}
        kept: Values = {
            section: {name: value for name, value in values if f"{section}.{name}" in keys}
            for section, values in sections.items()
        }
        model = {"dropout": self.run.config.model.dropout}
        return kept | {"model": model, "data": self.run.config.data.model_dump()}


Decision = NewRun | FineTune | Resume


def decide(request: Request, *, quiet: bool = False) -> Decision:
    """Decide on a request; a pretrained model is downloaded from the Hub unless it is in the cache.

    Raises StorageError where something other than a run or an empty folder is in the way, ModelFolderError for a
    damaged run or model, UsageError where there is no run to resume or the request contradicts a pretrained model, and
    ConfigError for a request that no data could make valid.
    """
    refuse_runs_as_data(request)
    path = request.out or names.RUNS_ROOT / _run_name(request)
    _refuse_foreign(path)
    if is_run(path) and request.resume != "never":
        resume = Resume(path, open_run(path))
        _refuse_linked_checkpoints(path)
        if resume.pretrained:
            refuse_contradictions(request, resume.pretrained, is_new=False)
        return resume
    if is_run(path):
        path = next_free(path)
    elif request.resume == "must":
        raise UsageError(f"There is no run '{path}' to resume.", "Leave `resume = must` out to start one.")
    new = NewRun(path)
    thing = request.stated("train.init_from")
    if thing is None:
        return new
    check(request, new, torch.device("cpu"), leaving_out="model")  # before anything is downloaded
    pretrained = find_pretrained(str(thing), quiet=quiet)
    refuse_contradictions(request, pretrained, is_new=True)
    return FineTune(path, pretrained)


def _run_name(request: Request) -> str:
    """The name of a run that nobody named: that of its data, with all parts of a mixture."""
    if not request.states("data.weights"):
        return dataset_name(request.data)
    return "+".join(dataset_name([part]) for part in request.data)[:_MAX_NAME_CHARACTERS]


def check(request: Request, decision: Decision, device: torch.device, leaving_out: str = "") -> None:
    """Raise ConfigError or UsageError for what can be refused before any text is read.

    `leaving_out` names a section that cannot be judged yet.
    """
    preset_name = chosen_preset(request, decision, device)
    stated = layers(request, preset_name, decision)
    stated = [{section: layer[section] for section in layer if section != leaving_out} for layer in stated]
    build_config(preset_name, *stated, vocab_size=1)


def run_config(request: Request, decision: Decision, device: torch.device, vocab_size: int) -> RunConfig:
    """The config by the rule of precedence; what nobody stated is still open. Raises ConfigError or UsageError."""
    preset_name = chosen_preset(request, decision, device)
    return build_config(preset_name, *layers(request, preset_name, decision), vocab_size=vocab_size)


def chosen_preset(request: Request, decision: Decision, device: torch.device) -> str:
    """The preset that the user or the situation chooses."""
    stated = request.explicit.get("preset") if request.preset is None else request.preset
    return decision.default_preset(device) if stated is None else str(stated)


def layers(request: Request, preset_name: str, decision: Decision) -> list[Values]:
    """The layers over the preset, each stronger than the one before."""
    recipe = decision.recipe(preset_name)
    return [
        *recipe,
        _rate_of_other_optimizer(request, merge(preset(preset_name), *recipe)["optim"]),
        {"train": {"max_steps": None, "epochs": None}} if request.budget else {},
        decision.kept(request),
        request.file_layer,
        request.family_layer(preset_name),
        request.flags,
        _remembered(request),
    ]


def _rate_of_other_optimizer(request: Request, recipe: Values) -> Values:
    """The recipe's learning rate for another optimizer that is stated without a rate; nothing otherwise."""
    own, stated = recipe.get("optimizer", "adamw"), request.stated("optim.optimizer")
    if stated in (None, own) or request.states("optim.lr"):
        return {}
    return {"optim": {"lr": recipe["lr"] * LR_TIMES_ADAMW.get(str(stated), 1.0) / LR_TIMES_ADAMW.get(own, 1.0)}}


def training_device(request: Request, decision: Decision) -> tuple[torch.device, str]:
    """The stated device, else that of the run that resumes; and a note, or "".

    Runs move between machines: where the run's device is missing, `auto` chooses. Raises DeviceError for a stated one.
    """
    stated = request.stated("train.device")
    if stated is not None or not isinstance(decision, Resume):
        return choose_device_with_note("auto" if stated is None else str(stated))
    wanted = decision.run.config.train.device
    try:
        return choose_device_with_note(wanted)
    except DeviceError:
        device = choose_device("auto")
        return device, f"The run was trained on '{wanted}', which is not available: it resumes on '{device.type}'."


def _remembered(request: Request) -> Values:
    """The name under which a stated pretrained model is stored, instead of its path."""
    stated = request.stated("train.init_from")
    return {} if stated is None else {"train": {"init_from": stored_name(str(stated))}}


def refuse_runs_as_data(request: Request) -> None:
    """Raise UsageError for a run in the place of text."""
    if runs := [given for given in request.data if is_run(Path(given))]:
        raise UsageError(f"'{runs[0]}' is a run, not text.", "Give the text or dataset that it should learn from.")


def _refuse_foreign(path: Path) -> None:
    """Raise StorageError or ModelFolderError for anything at `path` but a run or an empty folder."""
    if not is_occupied(path):
        refuse_impossible_place(path)
    elif not is_run(path):
        if part := missing_part(path):
            hint = "Restore it from a copy, or choose another place with `out`."
            raise ModelFolderError(f"The run '{path}' is damaged: '{part}' is missing.", hint)
        kind = "a folder with other files in it" if path.is_dir() else "a file"
        raise StorageError(f"'{path}' is {kind}, not a run.", "Choose another place with `out`.")


def _refuse_linked_checkpoints(path: Path) -> None:
    """Raise StorageError where `checkpoints` is a link: old checkpoints could be deleted at an unexpected place."""
    if (path / names.CHECKPOINTS).is_symlink():
        message = f"'{path / names.CHECKPOINTS}' is a link to another place."
        raise StorageError(message, "Move the whole run folder instead, and give its new place with `out`.")
