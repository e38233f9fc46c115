"""The request for a training: everything that was stated, before anything is decided or filled in."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gptcli.config import ResumeMode, load_config_file
from gptcli.config.presets import default_family, family, preset
from gptcli.config.values import Values, flatten, merge, nest
from gptcli.dataset.folder import is_dataset
from gptcli.dataset.place import restore_interrupted
from gptcli.dataset.vocabulary import require_bpe_for_size
from gptcli.errors import MissingPackageError, UsageError
from gptcli.interop.hub import is_address
from gptcli.paths import given_path, output_path, text_paths
from gptcli.runs.weights import Data, weighted_paths
from gptcli.tokenizer import Unknown
from gptcli.tokenizer.tokenizer import is_path

BUDGET = ("max_steps", "epochs", "max_time")


@dataclass(frozen=True)
class Request:
    """A request for a training; layers of settings are kept apart, since each is stronger than the one before."""

    data: tuple[str, ...] = ()
    """Text files, folders, `-` for standard input, or one dataset folder; or the parts of a mixture."""
    out: Path | None = None
    """The run folder; None: named after the data, below `runs/`."""
    preset: str | None = None
    file: Values = field(default_factory=dict)
    """Values of the config files."""
    flags: Values = field(default_factory=dict)
    """Values stated for this call; they override the config files."""
    resume: ResumeMode = "auto"
    has_dataset: bool = False
    """Whether the data is a dataset folder, which brings its own tokenizer."""
    family: str | None = None
    """An architecture by name, which stands for several settings of the model."""
    unknown: Unknown = "error"
    """Treatment of characters that a given tokenizer does not know."""

    @property
    def explicit(self) -> Values:
        """Everything stated, by config file or call."""
        return merge(self.file, self.flags)

    @property
    def file_layer(self) -> Values:
        """The config files' values, without their number of steps where the call states the budget in another way."""
        train = self.flags.get("train", {})
        if not {"epochs", "max_time"} & train.keys() or "max_steps" in train or "train" not in self.file:
            return self.file
        kept = {name: value for name, value in self.file["train"].items() if name != "max_steps"}
        return {**self.file, "train": kept}

    @property
    def budget(self) -> Values:
        """The stated ones of `max_steps`, `epochs` and `max_time`; they replace all of those that a preset states."""
        stated = merge(self.file_layer, self.flags).get("train", {})
        return {name: value for name, value in stated.items() if name in BUDGET}

    def family_layer(self, preset_name: str) -> Values:
        """The settings that `family` stands for; they override config files and are overridden by `flags`.

        Raises ConfigError for an unknown family, UsageError where something else decides the architecture.
        """
        if self.family is None:
            return {}
        if self.stated("train.init_from"):
            self.refuse_family()
        if self.family != "gpt2" and default_family(preset_name) == "gpt2":
            hint = (
                "Choose another preset, or state `model.n_layer`, `model.n_head`, `model.n_embd`, `model.block_size`."
            )
            raise UsageError(f"The preset '{preset_name}' is GPT-2, not of the family '{self.family}'.", hint)
        return family(self.family, merge(preset(preset_name), self.explicit)["model"].get("n_head"))

    def refuse_family(self) -> None:
        """Raise UsageError if a family was stated where pretrained weights decide the architecture."""
        if self.family is not None:
            hint = "Leave `family` out: the architecture comes from the pretrained weights."
            raise UsageError("`family` cannot be combined with `train.init_from`.", hint)

    def states(self, *keys: str) -> bool:
        """Whether one of the dotted `keys` was stated."""
        return not flatten(self.explicit).keys().isdisjoint(keys)

    def stated(self, key: str) -> Any:
        """The stated value of the dotted `key`; None if none was stated."""
        return flatten(self.explicit).get(key)


def new_request(
    data: Data,
    *,
    out: str | Path | None = None,
    preset: str | None = None,
    family: str | None = None,
    config: str | Path | Sequence[str | Path] = (),
    settings: Mapping[str, Any] | None = None,
    resume: ResumeMode = "auto",
    unknown: Unknown = "error",
) -> Request:
    """A request from plain values; later config files override earlier ones, `settings` (dotted keys) override both.

    Weights in `data` become the setting `data.weights`. Raises ConfigError for a config file that cannot be read, and
    UsageError for empty `data` and for settings that would have no effect.
    """
    inputs, weights = weighted_paths(data)
    if not inputs:
        hint = "Name a text file, a folder, a dataset, or - for standard input."
        raise UsageError("There is no text to train on.", hint)
    restore_interrupted(*inputs)
    request = Request(
        data=inputs,
        out=None if out is None else output_path(out),
        preset=preset,
        file=merge(*(_read_config_file(Path(path)) for path in text_paths(config))),
        flags=nest(_with_weights(flatten(settings or {}), weights)),
        resume=resume,
        has_dataset=any(map(is_dataset, inputs)),
        family=family,
        unknown=unknown,
    )
    for key in ("tokenizer.kind", "train.init_from"):  # paths, or names that a file could have
        if (stated := request.stated(key)) is not None:
            given_path(str(stated))
    _refuse_idle_settings(request)
    _require_trackers(request)
    return request


def _with_weights(settings: dict[str, Any], weights: tuple[float, ...] | None) -> dict[str, Any]:
    """The settings with the weights that the data brings. Raises UsageError where both have them."""
    if weights is None:
        return settings
    if "data.weights" in settings:
        raise UsageError("`data.weights` was given twice.", "State the weights with the data, or as a setting.")
    return settings | {"data.weights": weights}


def _read_config_file(path: Path) -> Values:
    """The values of a config file; its relative paths start at the file's folder."""
    values = load_config_file(path)
    kind, init_from = (flatten(values).get(key) for key in ("tokenizer.kind", "train.init_from"))
    if isinstance(kind, str) and is_path(kind):
        values = merge(values, {"tokenizer": {"kind": str(path.parent / kind)}})
    if isinstance(init_from, str) and not is_address(init_from):
        values = merge(values, {"train": {"init_from": str(path.parent / init_from)}})
    return values


def _refuse_idle_settings(request: Request) -> None:
    """Raise UsageError for stated settings that would have no effect.

    A config file may contain them: that of each run says how its text was read and how large its vocabulary is.
    """
    flags = flatten(request.flags)
    all_read = all(map(is_dataset, request.data))
    idle = [key for key in flags if key.startswith(("tokenizer.", "data.") if all_read else "tokenizer.")]
    idle = [key for key in idle if key != "data.weights"]
    if idle and request.has_dataset:
        message = f"`{idle[0]}` says how to read text, but the data is a dataset, which was read already."
        raise UsageError(message, "Leave it out, or give the text itself.")
    if "model.vocab_size" in flags:
        message = "`model.vocab_size` cannot be set: the model has a row for each id of its tokenizer."
        raise UsageError(message, "Choose the size of a BPE vocabulary with `tokenizer.vocab_size`.")
    layer = request.explicit if "tokenizer.vocab_size" in flags else request.file
    tokenizer = layer.get("tokenizer", {})
    require_bpe_for_size(tokenizer.get("kind"), tokenizer.get("vocab_size"))


def _require_trackers(request: Request) -> None:
    """Raise MissingPackageError for an experiment tracker whose package is not installed."""
    for name in request.stated("train.loggers") or ():
        if isinstance(name, str) and importlib.util.find_spec(name) is None:
            raise MissingPackageError(f"`train.loggers = {name}`", name, "loggers")
