"""The program that runs the checks and measurements: results stay when a part is cut short or a measurement fails."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks.gpu import __main__ as program
from benchmarks.gpu import correctness
from benchmarks.gpu.report import Report
from benchmarks.gpu.setting import Setting, beside_transformers
from benchmarks.gpu.training import busy_seconds

CPU = torch.device("cpu")
QUICK = {
    "speed": ("first_token", "save_gpt2", "max_time"),
    "ablations": (
        *("padded_head", "chunk_sizes", "fused_loss"),
        *("attention_kernels", "optimizers", "micro_batches", "cudnn_attention", "experts", "eval_batches"),
    ),
}
"""Measurements that take seconds on a CPU: the others compile or train longer."""


def figures(folder: Path, part: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{part}.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("part", QUICK)
def test_measurements_run_on_a_cpu(tmp_path: Path, part: str) -> None:
    stages = {name: program.STAGES[part][name] for name in QUICK[part]}
    assert program.run(Report(tmp_path, part), stages, Setting(CPU), time.monotonic() + 1000)
    assert figures(tmp_path, part).keys() == {*QUICK[part], "problems"}
    assert all(f"## {name}" in (tmp_path / f"{part}.md").read_text(encoding="utf-8") for name in QUICK[part])


def test_a_failure_loses_nothing(tmp_path: Path) -> None:
    def rows(setting: Setting) -> Iterator[dict[str, int]]:
        yield {"size": 1}
        assert figures(tmp_path, "speed")["rows"] == [{"size": 1}], "each row is written as it comes"
        raise RuntimeError("CUDA error: an illegal memory access\nand a long story")

    stages: dict[str, program.Stage] = {"rows": rows, "later": lambda setting: {"a": {"b": 2.0}}}
    assert not program.run(Report(tmp_path, "speed"), stages, Setting(CPU), time.monotonic() + 1000)
    found = figures(tmp_path, "speed")
    assert found["rows"] == [{"size": 1}]
    assert found["later"] == {"a": {"b": 2.0}}
    assert "illegal memory access" in found["problems"]["rows"]
    assert "| a.b | 2 |" in (tmp_path / "speed.md").read_text(encoding="utf-8")


def test_without_transformers_gptcli_is_measured() -> None:
    def missing() -> Any:
        raise ImportError("No module named 'transformers'")

    calls, problem = beside_transformers(lambda: 1, missing)
    assert calls.keys() == {"gptcli"}
    assert "transformers" in problem
    assert beside_transformers(lambda: 1, lambda: lambda: 2)[0].keys() == {"gptcli", "transformers"}


def test_nothing_begins_after_the_deadline(tmp_path: Path) -> None:
    stages: dict[str, program.Stage] = {"one": lambda setting: {"a": 1}}
    assert not program.run(Report(tmp_path, "speed"), stages, Setting(CPU), time.monotonic() - 1)
    assert "out of time" in figures(tmp_path, "speed")["problems"]["one"]


def test_checks_are_reported_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of checks that succeed, fail, and end the process."""
    checks = tmp_path / "checks"
    checks.mkdir()
    lines = [
        "import os",
        "def test_good(record_property): record_property('peak', '5')",
        "def test_bad(): assert 1 == 2",
    ]
    (checks / "conftest.py").write_text("from tests.gpu.conftest import pytest_runtest_logreport\n", encoding="utf-8")
    (checks / "test_some.py").write_text("\n".join(lines), encoding="utf-8")
    (checks / "test_worse.py").write_text("import os\ndef test_worse(): os._exit(9)", encoding="utf-8")
    monkeypatch.setattr(correctness, "CHECKS", checks)
    report = Report(tmp_path, "correctness")
    report.start()
    assert not correctness.check(report, CPU, "", time.monotonic() + 1000)
    found = figures(tmp_path, "correctness")
    outcomes = {row["check"]: row["outcome"] for row in found["checks"]}
    assert outcomes == {"test_some.py::test_good": "passed", "test_some.py::test_bad": "failed"}
    assert found["checks"][0]["figures"] == "peak 5"
    assert found["problems"].keys() == {"test_some.py", "test_worse.py"}


def test_checks_end_with_the_time(tmp_path: Path) -> None:
    report = Report(tmp_path, "correctness")
    report.start()
    assert not correctness.check(report, CPU, "", time.monotonic() - 1)
    assert len(figures(tmp_path, "correctness")["problems"]) >= 10


def test_busy_time_counts_overlaps_once_and_no_names() -> None:
    def event(start: int, end: int, name: bool = False) -> Any:
        span = SimpleNamespace(start=start, end=end)
        kind = torch.autograd.DeviceType.CPU
        return SimpleNamespace(time_range=span, device_type=kind, is_user_annotation=name)

    events = [event(0, 10), event(5, 20), event(30, 40), event(0, 100, name=True)]
    assert busy_seconds(events, CPU) == pytest.approx(30e-6)
