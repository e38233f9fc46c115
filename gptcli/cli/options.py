"""Options that several commands share, and `setting`, which makes an option of a config field."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args

import typer
from typer.core import HAS_RICH

from gptcli.cli.flags import FieldsInfo, SettingInfo, stated_settings
from gptcli.config import Quantization, RunConfig, SamplingConfig
from gptcli.config.presets import PRESETS, SETTINGS_OF_COST, preset_vocabulary
from gptcli.config.values import flatten, parse_setting
from gptcli.errors import UsageError
from gptcli.tokenizer import Unknown as UnknownCharacters

if TYPE_CHECKING:
    from gptcli.config import DtypeName

OUTPUT_PANEL, MACHINE_PANEL, MODEL_PANEL, TEXT_PANEL = "Output", "Machine", "Model", "Text"

_OTHER_FLAGS = {"tokenizer.kind": "--tokenizer", "train.loggers": "--logger"}
"""Flags that are not the last part of the field's name."""


def setting(
    key: str, metavar: str | None, *short: str, panel: str | None = None, default: str = "", note: str = ""
) -> Any:
    """The option for the config field `key`, such as train.max_steps: flag, help and default come from the field.

    `key` may be a field of a run's config or, as sampling.top_k, of SamplingConfig. `short` are further names of the
    option, `default` describes the command's own default, if it has one, and `note` follows the help.
    """
    section, _, name = key.partition(".")
    sections = {part: field.annotation for part, field in RunConfig.model_fields.items()} | {"sampling": SamplingConfig}
    field = cast(Any, sections[section]).model_fields[name]
    text = re.split(r"(?<=[.])\s+(?=[A-Z`])", " ".join(field.description.split()))[0].replace("`", "")
    default = default or _default_in_words(key, field.default)
    if default and "(default: " not in text:
        text = f"{text.rstrip('.')} (default: {default})."
    if isinstance(field.default, tuple):
        text += " Can be repeated."
    text = f"{text} {note}".rstrip()
    text = text.replace("[", r"\[") if HAS_RICH else text  # which reads markup
    flag = _OTHER_FLAGS.get(key) or f"--{name.replace('_', '-')}"
    return SettingInfo(key, flag, *short, metavar=metavar, help=text, rich_help_panel=panel, show_default=False)


def untrained_settings(*more: str) -> Any:
    """The option `--set` for an untrained model; it takes settings of its cost, and those in `more`."""
    text = "A setting of an untrained model, over the preset or alone (then over gpt2). Can be repeated."
    return FieldsInfo(SETTINGS_OF_COST + more, metavar="model.KEY=VALUE", help=text, rich_help_panel=MODEL_PANEL)


def _default_in_words(key: str, default: Any) -> str:
    section, _, name = key.partition(".")
    if any(name in preset.get(section, {}) for preset in PRESETS.values()):
        return "from the preset"
    if isinstance(default, tuple):
        return ", ".join(default)
    return str(default) if isinstance(default, int | float | str) and not isinstance(default, bool) else ""


Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print only the result and errors.", rich_help_panel=OUTPUT_PANEL)
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print details.", rich_help_panel=OUTPUT_PANEL)]
Debug = Annotated[bool, typer.Option("--debug", help="Show a traceback on errors.", rich_help_panel=OUTPUT_PANEL)]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.", rich_help_panel=OUTPUT_PANEL)]
NoColor = Annotated[bool, typer.Option("--no-color", help="Print without colors.", rich_help_panel=OUTPUT_PANEL)]

TEXTS_HELP = "Text files, folders, https:// and hf://datasets/ addresses, corpora by name, or - (standard input)"
_MODEL_HELP = "A run, a Hugging Face folder, or hf://owner/name"
Run = Annotated[str, typer.Argument(metavar="RUN", help=f"{_MODEL_HELP}.")]
RunOrNewest = Annotated[str | None, typer.Argument(metavar="[RUN]", help=f"{_MODEL_HELP} (default: the newest run).")]
Texts = Annotated[list[str], typer.Argument(metavar="TEXT...", help=f"{TEXTS_HELP}.")]

DEVICE = setting("train.device", "DEVICE", panel=MACHINE_PANEL)
DTYPE = setting("train.dtype", "DTYPE", panel=MACHINE_PANEL)
Device = Annotated[str, DEVICE]
Dtype = Annotated[str, DTYPE]

# The shape of an untrained model, for `inspect` and `bench`.
UntrainedPreset = Annotated[
    str | None,
    typer.Option(
        "--preset",
        metavar="P",
        help="An untrained model with this preset's shape, or with a shape of GPT-3: gpt3-small to gpt3-175b.",
        rich_help_panel=MODEL_PANEL,
    ),
]
Family = Annotated[
    str | None,
    typer.Option(
        "--family",
        metavar="F",
        help="Architecture: gpt2, or modern (rope, RMSNorm, SwiGLU, grouped heads).",
        rich_help_panel=MODEL_PANEL,
    ),
]
NLayer = Annotated[int | None, setting("model.n_layer", "N", panel=MODEL_PANEL)]
NHead = Annotated[int | None, setting("model.n_head", "N", panel=MODEL_PANEL)]
NEmbd = Annotated[int | None, setting("model.n_embd", "N", panel=MODEL_PANEL)]
BlockSize = Annotated[int | None, setting("model.block_size", "N", panel=MODEL_PANEL)]
UntrainedVocabSize = Annotated[
    int | None,
    typer.Option(
        "--vocab-size",
        metavar="V",
        min=1,
        help=f"Of an untrained model (default: {preset_vocabulary('tiny')}; gpt2: {preset_vocabulary('gpt2')}).",
        rich_help_panel=MODEL_PANEL,
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        "--batch-size",
        metavar="B",
        min=1,
        help="Sequences per batch (default: as in training).",
        rich_help_panel=MODEL_PANEL,
    ),
]
Length = Annotated[
    int | None,
    typer.Option(
        "--length",
        metavar="T",
        min=1,
        help="Tokens per sequence (default: the context length).",
        rich_help_panel=MODEL_PANEL,
    ),
]


Quantize = Annotated[
    Literal["none", Quantization],
    typer.Option(
        "--quantize",
        help="int8 rounds the weights to 8 bits: a model of 100 million generates about three times as fast on a CPU.",
        rich_help_panel=MACHINE_PANEL,
    ),
]
Unknown = Annotated[
    UnknownCharacters,
    typer.Option("--unknown", help="Characters that are not in the model's vocabulary: refuse the text, or skip them."),
]
Context = Annotated[
    int | None,
    typer.Option(
        "--context",
        metavar="N",
        min=1,
        max=2**20,
        help="Context length in tokens (default: as in training). A longer one needs other than learned positions.",
    ),
]
Checkpoint = Annotated[str, typer.Option("--checkpoint", metavar="best|last|STEP", help="Weights of the run to load.")]


def shape_settings(
    command: Callable[..., None], values: Mapping[str, Any], settings: list[str] | None
) -> dict[str, Any]:
    """The settings of an untrained model by dotted name: those of flags, and those of `--set`.

    `values` has all parameters of the command by name. Raises UsageError for a setting that was given twice.
    """
    flags = {key: value for key, value in stated_settings(command, values).items() if key.startswith("model.")}
    return each_once(flags, settings or [])


def each_once(stated: Mapping[str, Any], settings: list[str]) -> dict[str, Any]:
    """The settings of flags and of `--set` by dotted name; raises UsageError for one that was given twice."""
    combined = dict(stated)
    for text in settings:
        for key, value in flatten(parse_setting(text)).items():
            if key in combined:
                raise UsageError(f"`{key}` was given twice.", "State it once.")
            combined[key] = value
    return combined


def dtype_or_none(name: str) -> DtypeName | None:
    """The value of --dtype, None for auto; raises UsageError for an unknown dtype."""
    from gptcli.config import DtypeName

    if name not in ("auto", *get_args(DtypeName)):
        raise UsageError(f"`dtype` cannot be '{name}'.", "Use auto, float32, bfloat16 or float16.")
    return None if name == "auto" else cast(DtypeName, name)


# How to read raw text, for `tokenize` and `train`.
TokenizerKind = Annotated[str | None, setting("tokenizer.kind", "KIND", panel=TEXT_PANEL)]
VocabSize = Annotated[int | None, setting("tokenizer.vocab_size", "N", panel=TEXT_PANEL)]
ValFraction = Annotated[float | None, setting("data.val_fraction", "F", panel=TEXT_PANEL)]
Include = Annotated[list[str] | None, setting("data.include", "PATTERN", panel=TEXT_PANEL)]
Exclude = Annotated[list[str] | None, setting("data.exclude", "PATTERN", panel=TEXT_PANEL)]
Format = Annotated[str | None, setting("data.format", "FORMAT", panel=TEXT_PANEL)]
TextField = Annotated[str | None, setting("data.text_field", "NAME", panel=TEXT_PANEL)]
Encoding = Annotated[str | None, setting("data.encoding", "NAME", panel=TEXT_PANEL)]
Errors = Annotated[str | None, setting("data.errors", "MODE", panel=TEXT_PANEL)]
DocSeparator = Annotated[str | None, setting("data.doc_separator", "TEXT", panel=TEXT_PANEL)]
Dedup = Annotated[str | None, setting("data.dedup", "MODE", panel=TEXT_PANEL)]
Newline = Annotated[str | None, setting("data.newline", "MODE", panel=TEXT_PANEL)]
