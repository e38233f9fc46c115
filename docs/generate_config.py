"""Write `config.md`, the reference of all settings, from the config tree and the presets.

    python docs/generate_config.py

A test checks that the page is up to date.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gptcli.cli.flags import flag_of, settings_as_flags
from gptcli.cli.sample import sample
from gptcli.cli.train import train
from gptcli.config import (
    CHANGEABLE_ON_RESUME,
    MAX_COUNT,
    DataConfig,
    ModelConfig,
    OptimConfig,
    RunConfig,
    SamplingConfig,
    TokenizerConfig,
    TrainConfig,
    field_names,
)
from gptcli.config.presets import FAMILIES, PRESETS
from gptcli.config.types import Section
from gptcli.config.values import flatten

PAGE = Path(__file__).with_name("config.md")
SECTIONS: dict[str, type[Section]] = {
    "model": ModelConfig,
    "optim": OptimConfig,
    "train": TrainConfig,
    "data": DataConfig,
    "tokenizer": TokenizerConfig,
}

INTRODUCTION = """\
# Settings

Every field of a run's config, with its flag where `gptcli train` has one. `--set optim.beta2=0.95` sets any field, and
so does a TOML file for `-c`:

```toml
[optim]
lr = 1e-3
beta2 = 0.95
```

In Python: `settings={"optim.lr": 1e-3}`. Flags and `--set` override files, files override the preset, and the preset
overrides the defaults in the tables below. `gptcli train TEXT --dry-run` shows the choices for a text. The complete
config of a run is `gptcli.toml` in its folder. `make docs` generates this page.
"""
PRESETS_BEGIN = """
## Presets

A dash stands for the default. `--preset` names one; without it, the program [chooses](recipes.md).

"""
FAMILIES_BEGIN = """
The presets named `gpt2` have the family `gpt2`, the others `modern`; `--family` sets it. In `modern`, two query heads
share a key and value head where their number is even.

"""
WITHOUT_DEFAULT = {"model.vocab_size": "from the tokenizer"}
"""Fields that have neither a default nor a value in presets."""
DEFAULT = re.compile(r" \(default: ((?:[^()]|\([^()]*\))*)\)")


def render() -> str:
    """The whole page."""
    presets = {name: flatten(values) for name, values in PRESETS.items()}
    families = {name: {f"model.{key}": value for key, value in values.items()} for name, values in FAMILIES.items()}
    parts = [INTRODUCTION, PRESETS_BEGIN, comparison(presets), FAMILIES_BEGIN, comparison(families)]
    for name, section in SECTIONS.items():
        parts += [f"\n## {name}\n\n{summary(section)}\n\n", fields(section, f"{name}.", flag_of_training)]
    parts += [f"\n## sampling\n\n{summary(SamplingConfig)} The flags are those of `gptcli sample`.\n\n"]
    parts += [fields(SamplingConfig, "", partial(flag_of, sample))]
    changeable = ", ".join(f"`{name}`" for name in field_names(RunConfig) if name in CHANGEABLE_ON_RESUME)
    parts += [
        f"\n## What a resumed run may change\n\n{changeable}. A run refuses to resume with other values of the rest.\n"
    ]
    return "".join(parts)


def summary(section: type[Section]) -> str:
    """The first paragraph of a section's docstring, for readers of the page."""
    return re.sub(r"docs/(\w+\.md)", r"[\1](\1)", " ".join((section.__doc__ or "").split("\n\n")[0].split()))


def comparison(columns: Mapping[str, Mapping[str, Any]]) -> str:
    """A table with a row for each setting and a column for each preset or family."""
    rows = [
        [f"`{name}`", *(in_words(values.get(name)) or "–" for values in columns.values())]
        for name in field_names(RunConfig)
        if any(name in values for values in columns.values())
    ]
    return table(["", *(f"`{name}`" for name in columns)], rows)


def fields(section: type[Section], prefix: str, flag: Callable[[str], str]) -> str:
    """The table of a section's fields."""
    schema = section.model_json_schema()
    rows = []
    for name, field in schema["properties"].items():
        meaning = " ".join(field["description"].split()).replace("|", "\\|")
        stated = DEFAULT.search(meaning)
        default = stated[1] if stated else in_words(field.get("default"))
        key, typed = f"{prefix}{name}", flag(f"{prefix}{name}")
        names = f"`{key}`" + ("" if typed == key else f"<br>`{typed}`")
        rows.append(
            [names, values_of(field), default or WITHOUT_DEFAULT.get(key, "from the preset"), DEFAULT.sub("", meaning)]
        )
    return table(["setting", "values", "default", "meaning"], rows)


def flag_of_training(key: str) -> str:
    """The flag of `gptcli train` for a config field; the field itself where there is none."""
    return settings_as_flags(train, f"`{key}`").strip("`")


def values_of(field: Mapping[str, Any]) -> str:
    """Type and range of a field in words, from its JSON schema."""
    kind = next((part for part in field.get("anyOf", []) if part["type"] != "null"), field)
    if kind["type"] == "array":
        return f"list of {values_of(kind['items'])}"
    if "enum" in kind:
        return ", ".join(f"`{value}`" for value in kind["enum"])
    return {"string": "text", "boolean": "`true`, `false`"}.get(kind["type"]) or _number(kind)


def _number(kind: Mapping[str, Any]) -> str:
    whole = "whole " if kind["type"] == "integer" else ""
    bounds = [
        (("from {}", kind.get("minimum")), ("above {}", kind.get("exclusiveMinimum"))),
        (("to {}", kind.get("maximum")), ("below {}", kind.get("exclusiveMaximum"))),
    ]
    said = [
        words.format(f"{value:,}")
        for pair in bounds
        for words, value in pair
        if value is not None and value < MAX_COUNT
    ]
    return f"{whole}number " + " ".join(said) if said else f"{whole}number"


def in_words(value: Any) -> str:
    """A value as TOML has it, without the quotes of texts; an empty list is `none`."""
    if value is None or isinstance(value, bool):
        return "" if value is None else f"`{str(value).lower()}`"
    if isinstance(value, int | float):
        return f"{value:g}".replace("e-0", "e-") if isinstance(value, float) else str(value)
    return f"`{value}`" if isinstance(value, str) else ", ".join(map(in_words, value)) or "none"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
