"""What a checkpoint costs a training: how long training stands still, and when the checkpoint is on the disk."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.gpu.setting import Setting
from gptcli.bench.target import random_dataset
from gptcli.config.values import nest
from gptcli.runs.decision import NewRun
from gptcli.runs.events import CheckpointSaved, StepMetrics
from gptcli.runs.plan import plan_for
from gptcli.runs.request import Request
from gptcli.runs.session import carry_out

STEPS, SAVE_EVERY = 20, 5


def save_gpt2(setting: Setting) -> dict[str, Any]:
    """Saves of GPT-2 during a training that logs every step."""
    recipe = setting.gpt2_settings(
        {
            "train.max_steps": STEPS,
            "train.save_every": SAVE_EVERY,
            "train.eval_every": STEPS,
            "train.log_every": 1,
            "train.eval_tokens": setting.size.gpt2.block_size,
        }
    )
    dataset = random_dataset(setting.size.gpt2.vocab_size, setting.size.gpt2.block_size, seed=0)
    logged: dict[int, float] = {}
    saved: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        request = Request(preset="gpt2", flags=nest(recipe))
        plan = plan_for(request, NewRun(Path(folder) / "run"), dataset, setting.device)
        for event in carry_out(plan):
            if isinstance(event, StepMetrics):
                logged[event.step] = time.perf_counter()
            elif isinstance(event, CheckpointSaved):
                saved[event.step] = time.perf_counter()
    steps = {step: logged[step + 1] - logged[step] for step in range(2, STEPS - 1)}
    usual = median(seconds for step, seconds in steps.items() if step % SAVE_EVERY)
    saves = [step for step in steps if step % SAVE_EVERY == 0]
    return {
        "bytes": plan.disk,
        "update_seconds": usual,
        "pause_seconds": median(steps[step] - usual for step in saves),
        "seconds_until_saved": median(saved[step] - logged[step] for step in saves),
    }
