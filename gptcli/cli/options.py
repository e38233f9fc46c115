"""Options that several commands share, each declared once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

if TYPE_CHECKING:
    from gptcli.config import DtypeName

OUTPUT_PANEL = "Output"
MACHINE_PANEL = "Machine"

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only the result and errors.", rich_help_panel=OUTPUT_PANEL)]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Tell more.", rich_help_panel=OUTPUT_PANEL)]
Debug = Annotated[bool, typer.Option("--debug", help="Show a traceback on errors.", rich_help_panel=OUTPUT_PANEL)]
Json = Annotated[bool, typer.Option("--json", help="The result as JSON.", rich_help_panel=OUTPUT_PANEL)]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colours.", rich_help_panel=OUTPUT_PANEL)]

_MODEL_HELP = "A run, a Hugging Face folder, or hf://owner/name"
Run = Annotated[str, typer.Argument(metavar="RUN", help=f"{_MODEL_HELP}.")]
RunOrNewest = Annotated[str | None, typer.Argument(metavar="[RUN]", help=f"{_MODEL_HELP} (default: the newest run).")]
Texts = Annotated[list[str], typer.Argument(metavar="TEXT...", help="Text files, folders, or - (standard input).")]

Device = Annotated[
    str,
    typer.Option("--device", metavar="DEVICE", help="auto, cpu, cuda, cuda:N or mps.", rich_help_panel=MACHINE_PANEL),
]
Dtype = Annotated[
    str,
    typer.Option(
        "--dtype",
        metavar="DTYPE",
        help="Number format of the matrix products: auto, float32, bfloat16 or float16.",
        rich_help_panel=MACHINE_PANEL,
    ),
]

# For a model by its shape: what `inspect` and `bench` ask alike.
MODEL_PANEL = "Model"
UntrainedPreset = Annotated[
    str | None,
    typer.Option(
        "--preset", metavar="P", help="An untrained model with this preset's shape.", rich_help_panel=MODEL_PANEL
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
BatchSize = Annotated[
    int | None,
    typer.Option(
        "--batch-size",
        metavar="B",
        min=1,
        help="Sequences at once (default: as trained).",
        rich_help_panel=MODEL_PANEL,
    ),
]
Length = Annotated[
    int | None,
    typer.Option(
        "--length", metavar="T", min=1, help="Tokens per sequence (default: context).", rich_help_panel=MODEL_PANEL
    ),
]


class UnknownCharacters(StrEnum):
    """What to do with characters that a model's tokenizer does not know."""

    error = "error"
    skip = "skip"


class Quantization(StrEnum):
    """The format of the weights that a model multiplies with."""

    none = "none"
    int8 = "int8"


Quantize = Annotated[
    Quantization,
    typer.Option(
        "--quantize",
        help="int8 rounds the weights to 8 bits: a model of 100 million writes about three times as fast on a CPU.",
        rich_help_panel=MACHINE_PANEL,
    ),
]
Unknown = Annotated[
    UnknownCharacters, typer.Option("--unknown", help="Characters that the model does not know: refuse, or leave out.")
]
Context = Annotated[
    int | None,
    typer.Option(
        "--context",
        metavar="N",
        min=1,
        max=2**20,
        help="Tokens that the model sees at most; more than in training with rope or sinusoidal positions only "
        "(default: as trained).",
    ),
]
Checkpoint = Annotated[str, typer.Option("--checkpoint", metavar="best|last|STEP", help="Which weights of a run.")]


def number_format(name: str) -> DtypeName | None:
    """The value of --dtype: None for auto; raises UsageError for what is no number format."""
    from gptcli.config import DtypeName
    from gptcli.errors import UsageError

    if name not in ("auto", *get_args(DtypeName)):
        raise UsageError(f"--dtype cannot be '{name}'.", "Use auto, float32, bfloat16 or float16.")
    return None if name == "auto" else cast(DtypeName, name)


# For raw text: what `tokenize` and `train` ask alike.
TEXT_PANEL = "Text"
TokenizerKind = Annotated[
    str | None,
    typer.Option(
        "--tokenizer",
        metavar="KIND",
        help="char, bpe, the path of a tokenizer.json or vocab.json, or auto: char below 5 MB of text, else bpe.",
        rich_help_panel=TEXT_PANEL,
    ),
]
VocabSize = Annotated[
    int | None,
    typer.Option(
        "--vocab-size",
        metavar="N",
        help="Entries of a BPE vocabulary (default: 8192); with it, auto is bpe.",
        rich_help_panel=TEXT_PANEL,
    ),
]
ValFraction = Annotated[
    float | None,
    typer.Option(
        "--val-fraction",
        metavar="F",
        help="Share of the text, its last part, held out for validation (default: 10 %, less for large text).",
        rich_help_panel=TEXT_PANEL,
    ),
]
Include = Annotated[
    list[str] | None,
    typer.Option(
        "--include",
        metavar="PATTERN",
        help="File names to read from folders, such as '*.py'; can be repeated (default: *.txt, *.md).",
        rich_help_panel=TEXT_PANEL,
    ),
]


def require_bpe_for_a_size(kind: str | None = None, vocab_size: int | None = None, **_others: object) -> None:
    """Raise UsageError for a vocabulary size that would be passed over: only BPE learns its vocabulary to a size."""
    from gptcli.errors import UsageError

    if vocab_size is not None and kind not in (None, "auto", "bpe"):
        what = "characters has" if kind == "char" else f"'{kind}' has"
        raise UsageError(
            f"A vocabulary of {what} a size of its own.", "Leave out --vocab-size, or use --tokenizer bpe."
        )


DATA_ROOT = Path("data")
"""Where prepared datasets are kept, below the working directory."""
