"""File and folder names in a run folder."""

from __future__ import annotations

from pathlib import Path

from gptcli.tokenizer.document import TOKENIZER_FILE

RUNS_ROOT = Path("runs")
"""Where runs are kept, below the working directory."""

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
TOKENIZER = TOKENIZER_FILE
TOKENIZER_CONFIG = "tokenizer_config.json"
RUN_CONFIG = "gptcli.toml"
MODEL = "model.safetensors"
MODEL_INDEX = "model.safetensors.index.json"
README = "README.md"
METRICS = "metrics.jsonl"
CHECKPOINTS = "checkpoints"

OPTIMIZER = "optimizer.safetensors"
STATE = "state.json"

_STEP_PREFIX = "step-"


def checkpoint_name(step: int) -> str:
    """2000 → "step-00002000"."""
    return f"{_STEP_PREFIX}{step:08d}"


def checkpoint_folder(run: Path, step: int) -> Path:
    """runs/book, 2000 → runs/book/checkpoints/step-00002000."""
    return run / CHECKPOINTS / checkpoint_name(step)


def checkpoint_step(name: str) -> int | None:
    """ "step-00002000" → 2000; None for any other name."""
    digits = name.removeprefix(_STEP_PREFIX)
    return int(digits) if name == checkpoint_name(int(digits) if digits.isdecimal() else -1) else None
