"""gptcli: train GPT language models on your own text, and generate text from them.

The public names are imported when first used, each from its own module, so that `import gptcli` is quick and
`gptcli.tokenize` loads no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gptcli.api import Run, plan, train
    from gptcli.bench.speed import SpeedReport, benchmark
    from gptcli.dataset.preparing import Prepared, tokenize
    from gptcli.dataset.previewing import Preview, preview
    from gptcli.exports.export import Exported, export
    from gptcli.generation.loaded_model import LoadedModel, load
    from gptcli.generation.logprobs import TokenLogprob
    from gptcli.generation.scoring import Scores
    from gptcli.generation.stream import Piece, Sample
    from gptcli.generation.surprise import Surprise
    from gptcli.report.inspection import Report, inspect
    from gptcli.report.review import Review, review
    from gptcli.runs.plan import Plan

__version__ = "0.1.0"
__all__ = [
    "Exported",
    "LoadedModel",
    "Piece",
    "Plan",
    "Prepared",
    "Preview",
    "Report",
    "Review",
    "Run",
    "Sample",
    "Scores",
    "SpeedReport",
    "Surprise",
    "TokenLogprob",
    "benchmark",
    "export",
    "inspect",
    "load",
    "plan",
    "preview",
    "review",
    "tokenize",
    "train",
]

_HOMES = {
    "gptcli.api": ("Run", "plan", "train"),
    "gptcli.bench.speed": ("SpeedReport", "benchmark"),
    "gptcli.dataset.preparing": ("Prepared", "tokenize"),
    "gptcli.dataset.previewing": ("Preview", "preview"),
    "gptcli.exports.export": ("Exported", "export"),
    "gptcli.generation.loaded_model": ("LoadedModel", "load"),
    "gptcli.generation.logprobs": ("TokenLogprob",),
    "gptcli.generation.scoring": ("Scores",),
    "gptcli.generation.stream": ("Piece", "Sample"),
    "gptcli.generation.surprise": ("Surprise",),
    "gptcli.report.inspection": ("Report", "inspect"),
    "gptcli.report.review": ("Review", "review"),
    "gptcli.runs.plan": ("Plan",),
}


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'gptcli' has no attribute '{name}'")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
