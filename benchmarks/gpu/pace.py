"""`--max-time`: the number of steps that it plans, and the time that they take."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.gpu.setting import Setting
from gptcli.bench.target import random_dataset
from gptcli.config.presets import preset_vocabulary
from gptcli.config.values import nest
from gptcli.runs.decision import NewRun
from gptcli.runs.events import RunFinished
from gptcli.runs.plan import plan_for
from gptcli.runs.request import Request
from gptcli.runs.session import carry_out


def max_time(setting: Setting) -> dict[str, Any]:
    """A training of the preset that is given some seconds."""
    size = setting.size
    dataset = random_dataset(preset_vocabulary(size.preset), size.gpt2.block_size, seed=0)
    recipe = {"train.max_time": size.max_time, "train.eval_tokens": size.eval_tokens}
    with tempfile.TemporaryDirectory() as folder:
        plan = plan_for(
            Request(preset=size.preset, flags=nest(recipe)), NewRun(Path(folder) / "run"), dataset, setting.device
        )
        *_, end = carry_out(plan)
    assert isinstance(end, RunFinished)
    return {
        "seconds_given": size.max_time,
        "steps_planned": plan.config.train.max_steps,
        "steps": end.step,
        "seconds": end.seconds,
        "stopped": end.stopped,
    }
