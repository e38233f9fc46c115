"""gptcli: train GPT language models on your own text, and generate text from them.

The functions of `gptcli.api` are available here. They are imported when first used, so that `import gptcli` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gptcli.api import (
        Exported,
        LoadedModel,
        Piece,
        Plan,
        Prepared,
        Preview,
        Report,
        Run,
        Sample,
        Scores,
        SpeedReport,
        benchmark,
        export,
        inspect,
        load,
        plan,
        preview,
        tokenize,
        train,
    )

__version__ = "0.1.0"
__all__ = [
    "Exported",
    "LoadedModel",
    "Piece",
    "Plan",
    "Prepared",
    "Preview",
    "Report",
    "Run",
    "Sample",
    "Scores",
    "SpeedReport",
    "benchmark",
    "export",
    "inspect",
    "load",
    "plan",
    "preview",
    "tokenize",
    "train",
]


def __getattr__(name: str) -> object:
    if name in __all__:
        return getattr(importlib.import_module("gptcli.api"), name)
    raise AttributeError(f"module 'gptcli' has no attribute '{name}'")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
