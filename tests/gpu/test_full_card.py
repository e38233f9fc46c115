"""A card whose memory is taken: the errors of the driver and of its libraries, and `bench` in what is left."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.gpu.conftest import LONG_ON_A_CPU, GpuCommandLine
from tests.gpu.full_card import fill
from tests.gpu.test_memory import measured

MEGABYTES = (1, 16, 64)
LEFT_FOR_BENCH = 4 << 30


def check(found: dict[str, Any]) -> None:
    """Fails unless every error was recognized as a lack of memory."""
    assert [row for row in found["errors"] if not row["recognized"]] == []


@pytest.mark.parametrize("left", MEGABYTES)
def test_every_error_means_too_little_memory(
    device: torch.device, left: int, record_property: Callable[[str, object], None]
) -> None:
    if device.type == "cpu" and left != MEGABYTES[0]:
        pytest.skip("on a CPU nothing is taken; one run is enough")
    found = measured("tests.gpu.full_card", str(device), str(left))
    record_property("errors", str(found["errors"]))
    check(found)
    assert any(row["work"] == "large tensor" for row in found["errors"]) == (device.type == "cuda")


def test_control_an_error_that_is_not_recognized() -> None:
    with pytest.raises(AssertionError):
        check({"errors": [{"work": "attention", "error": "an illegal memory access", "recognized": False}]})


@LONG_ON_A_CPU
def test_bench_in_four_gigabytes(device: torch.device, cli: GpuCommandLine) -> None:
    taken = fill(device, LEFT_FOR_BENCH)
    preset = "small" if device.type == "cuda" else "nano"
    done = cli("bench", "--preset", preset, "--device", str(device), "--json")
    assert done.code == 0, done.stderr
    assert json.loads(done.stdout)["decoding"]["tokens_per_second"] > 0
    assert bool(taken) == (device.type == "cuda")
