"""A run whose text is markup: trained, stopped, resumed, with samples in its log."""

from __future__ import annotations

import json
from pathlib import Path

from tests.runs import small_runs

MARKUP = "<script>window.bad = 1</script>"
STEADY = {"train.compile": "off"}
"""A slow machine would compile: that takes longer than these trainings."""
TEXT = f"{MARKUP}\n<b>\"a\" & 'b'</b> é\x1b\u202e\n" * 60


def awkward_run(folder: Path, name: str = "a <b> & c") -> Path:
    """20 steps in two sessions, of which the second begins at step 10."""
    dataset = small_runs.small_dataset(folder / "text", TEXT)
    path = folder / name
    flags = STEADY | {"train.sample_every": 10, "train.eval_every": 5}
    small_runs.run(dataset, path, flags, stop_after=10)
    small_runs.run(dataset, path, flags)
    with open(path / "metrics.jsonl", "a", encoding="utf-8") as log:
        log.write(json.dumps({"step": 20, "sample": MARKUP}) + "\n")
    return path
