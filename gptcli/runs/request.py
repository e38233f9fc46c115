"""What the user asked of a training, before anything is filled in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from gptcli.config.presets import default_family, family, preset
from gptcli.config.values import Values, flatten, merge
from gptcli.errors import UsageError

Resume = Literal["auto", "never", "must"]


@dataclass(frozen=True)
class Request:
    """The layers that the user stated."""

    preset: str | None = None
    file: Values = field(default_factory=dict)
    """Values of the config file."""
    flags: Values = field(default_factory=dict)
    """Values of flags and `--set`."""
    resume: Resume = "auto"
    has_dataset: bool = False
    """Whether the data was given as a dataset folder, with its tokenizer, rather than as text."""
    family: str | None = None
    """`--family`, which stands for several keys of the model."""

    @property
    def explicit(self) -> Values:
        """Everything that was stated, by file or flag."""
        return merge(self.file, self.flags)

    def family_layer(self, preset_name: str) -> Values:
        """What `--family` stands for, between the config file and the other flags.

        Raises ConfigError for a family that is not there, UsageError where something else says what the model is.
        """
        if self.family is None:
            return {}
        if self.stated("train.init_from"):
            self.refuse_family()
        if self.family != "gpt2" and default_family(preset_name) == "gpt2":
            hint = "Choose another preset, or state the sizes: --n-layer, --n-head, --n-embd, --block-size."
            raise UsageError(f"The preset '{preset_name}' is GPT-2, and no model of the family '{self.family}'.", hint)
        return family(self.family, merge(preset(preset_name), self.explicit)["model"].get("n_head"))

    def refuse_family(self) -> None:
        """Raise UsageError if `--family` was given, where weights that are there say what the model is."""
        if self.family is not None:
            hint = "Leave it out: the shape comes from the weights that training starts from."
            raise UsageError("--family cannot be combined with --init-from.", hint)

    def states(self, *keys: str) -> bool:
        """Whether one of the dotted `keys` was stated."""
        return not flatten(self.explicit).keys().isdisjoint(keys)

    def stated(self, key: str) -> Any:
        """What was stated for the dotted `key`; None if nothing was."""
        return flatten(self.explicit).get(key)
