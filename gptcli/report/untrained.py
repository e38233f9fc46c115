"""The shape of an untrained model: a preset or a published size, and the settings that change it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gptcli.config import RunConfig, build_config
from gptcli.config.presets import PRESET_ALIASES, SETTINGS_OF_COST, SHAPES, family, preset_vocabulary
from gptcli.config.presets import preset as preset_values
from gptcli.config.values import Values, merge, nest
from gptcli.errors import UsageError
from gptcli.runs.request import Request

DEFAULT_PRESET = "gpt2"
"""The preset below a shape that is stated alone."""


@dataclass(frozen=True)
class Untrained:
    """A model to inspect or to measure, without weights."""

    name: str
    """The preset or published size, and what differs from it."""
    preset: str
    """The preset whose recipe the model has."""
    values: Values
    """The layer of settings over the preset."""
    vocab_size: int

    @property
    def config(self) -> RunConfig:
        """The config of a training; raises ConfigError."""
        return build_config(self.preset, self.values, vocab_size=self.vocab_size)


def untrained(
    preset: str | None,
    family_name: str | None,
    vocab_size: int | None,
    settings: Mapping[str, Any],
    effective: tuple[str, ...] = SETTINGS_OF_COST,
) -> Untrained:
    """The untrained model of a preset or a published size, or of `settings` by dotted name alone.

    `effective` has the fields, and the sections with a dot, that have an effect. Raises UsageError for other settings,
    and ConfigError for an unknown preset or family.
    """
    for key in settings:
        if not key.startswith(effective):
            allowed = ", ".join(f"{one}…" if one.endswith(".") else one for one in effective)
            raise UsageError(f"'{key}' has no effect here.", f"Leave it out. These have one: {allowed}.")
    if vocab_size is not None and "model.vocab_size" in settings:
        raise UsageError("`model.vocab_size` was given twice.", "State it once.")
    rows = settings.get("model.vocab_size", vocab_size)
    stated = nest({key: value for key, value in settings.items() if key != "model.vocab_size"})
    base = DEFAULT_PRESET if preset is None or preset in SHAPES else PRESET_ALIASES.get(preset, preset)
    published = {"model": SHAPES.get(preset or "", {})}
    if preset is None and family_name is not None:
        shape = merge(preset_values(base), stated)["model"]
        architecture = family(family_name, shape.get("n_head"))
    else:
        architecture = Request(preset=preset, family=family_name, flags=merge(published, stated)).family_layer(base)
    changes = [f"{key.removeprefix('model.')} = {value}" for key, value in settings.items()]
    return Untrained(
        name=" with ".join([preset if preset in SHAPES else base, *([", ".join(changes)] if changes else [])]),
        preset=base,
        values=merge(architecture, published, stated),
        vocab_size=preset_vocabulary(base) if rows is None else rows,
    )
