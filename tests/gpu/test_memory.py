"""Memory: measured peaks against the estimate, and the micro-batch that fits on a card of 8 GB."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.conftest import ROOT

CLOSE = 0.25
GPT2 = {"train.compile": "off", "train.max_steps": 100}
CASES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "small, Muon, dropout": ("small", 65, {"train.compile": "off"}),
    "small, experts": ("small", 65, {"train.compile": "off", "model.n_expert": 8}),
    "GPT-2, bfloat16": ("gpt2", 50257, {**GPT2, "train.batch_size": 8, "train.micro_batch_size": 8}),
    "GPT-2, float32": (
        "gpt2", 50257, {**GPT2, "train.batch_size": 4, "train.micro_batch_size": 4, "train.dtype": "float32"},
    ),
    "GPT-2, float16, micro-batches": (
        "gpt2", 50257, {**GPT2, "train.batch_size": 16, "train.micro_batch_size": 4, "train.dtype": "float16"},
    ),
    "GPT-2, checkpointing": (
        "gpt2", 50257,
        {**GPT2, "train.batch_size": 16, "train.micro_batch_size": 16, "train.activation_checkpointing": True},
    ),
}  # fmt: skip
ON_A_CPU = ("nano", 65, {"train.compile": "off", "train.dtype": "float32", "train.micro_batch_size": 8})
SMALL_CARD: dict[str, dict[str, Any]] = {
    "cpu": {"model.n_layer": 1, "model.n_head": 2, "model.n_embd": 16, "model.block_size": 16, "train.batch_size": 8},
    "cuda": {"train.batch_size": 64},
}


def measured(module: str, *arguments: str) -> dict[str, Any]:
    """The JSON output of a module in a process of its own."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def check_peak(device: torch.device, preset: str, vocabulary: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Fails unless the estimate is within a quarter of the peak; the figures."""
    found = measured("tests.gpu.peak", str(device), preset, str(vocabulary), "3", json.dumps(settings))
    assert abs(found["estimate"] / found["peak"] - 1) <= CLOSE, found
    return found


@pytest.mark.parametrize("name", CASES)
def test_the_estimate_is_near_the_peak(
    device: torch.device, name: str, record_property: Callable[[str, object], None]
) -> None:
    if device.type == "cpu" and name != "small, Muon, dropout":
        pytest.skip("one case is enough on a CPU; tests/model/test_memory.py has more")
    case = ON_A_CPU if device.type == "cpu" else CASES[name]
    record_property("bytes", str(check_peak(device, *case)))


def test_control_an_estimate_for_another_model(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"estimate": 130, "peak": 100}
    monkeypatch.setitem(globals(), "measured", lambda *_: found)
    with pytest.raises(AssertionError):
        check_peak(device, *ON_A_CPU)


def test_the_named_micro_batch_fits_on_a_small_card(
    device: torch.device, record_property: Callable[[str, object], None]
) -> None:
    settings = {"train.compile": "off", "train.max_steps": 100, **SMALL_CARD[device.type]}
    found = measured("tests.gpu.small_card", str(device), "8", json.dumps(settings))
    record_property("micro-batch", str(found))
    assert 0 < found["named"] < settings["train.batch_size"]
    if device.type == "cpu":
        assert found["named"] == 2
