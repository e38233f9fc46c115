"""The losses of one recipe in each dtype, side by side, on real text."""

from __future__ import annotations

import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu.setting import Setting
from gptcli.config import DtypeName
from gptcli.config.values import nest
from gptcli.dataset.folder import Dataset
from gptcli.dataset.preparing import tokenize
from gptcli.runs.completion import complete
from gptcli.runs.decision import NewRun
from gptcli.runs.request import Request
from gptcli.training.trainer import Trainer

DTYPES: tuple[DtypeName, ...] = ("float32", "bfloat16", "float16")


def losses(setting: Setting) -> Iterator[dict[str, Any]]:
    """The training loss at some steps and the validation loss at the end; every dtype sees the same batches."""
    library = Path(sysconfig.get_path("stdlib"))
    with tempfile.TemporaryDirectory() as folder:
        texts = [library / package for package in setting.size.packages]
        dataset = tokenize(texts, Path(folder) / "data", include=["*.py"]).dataset
        for dtype in DTYPES:
            yield {"dtype": dtype, **_losses_in(setting, dataset, dtype)}


def _losses_in(setting: Setting, dataset: Dataset, dtype: DtypeName) -> dict[str, float]:
    steps = setting.size.loss_steps
    settings = {"model.dropout": 0.0, "train.dtype": dtype, "train.max_steps": steps, "train.compile": "off"} | {
        "train.eval_tokens": setting.size.eval_tokens
    }
    request = Request(preset=setting.size.loss_preset, flags=nest(settings))
    trainer = Trainer(
        complete(request, NewRun(Path()), dataset, setting.device, measures=False).config, dataset, setting.device
    )
    shown = {1, 2, 5, 10, 20, *range(50, steps, 50), steps}
    found = {}
    while trainer.completed_steps < steps:
        update = trainer.step()
        assert update is not None, "nothing asked to stop"
        if trainer.completed_steps in shown:
            found[f"step {trainer.completed_steps}"] = trainer.figures(update).loss
    return found | {"validation": trainer.evaluate()}
