"""Checks that run on CUDA (`pytest -m gpu`) and, where they are short, on the CPU as well."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch

from benchmarks.gpu.correctness import REPORT_VARIABLE
from benchmarks.gpu.report import Report
from tests.conftest import ROOT, CommandLine, Result

ON_CUDA = pytest.param("cuda", marks=pytest.mark.gpu)
LONG_ON_A_CPU = pytest.mark.parametrize(
    "device", [pytest.param("cpu", marks=pytest.mark.campaign), ON_CUDA], indirect=True
)
"""For checks that are no part of `make test`; `python -m benchmarks.gpu --part correctness --device cpu` runs them."""


@pytest.fixture(params=["cpu", ON_CUDA])
def device(request: pytest.FixtureRequest) -> torch.device:
    """The device of a check."""
    chosen = torch.device(request.param)
    if chosen.type == "cuda" and not torch.cuda.is_available():
        pytest.skip("this machine has no CUDA GPU")
    return chosen


@pytest.fixture(autouse=True)
def _settings_of_torch() -> Iterator[None]:
    """Undo what a check set for the whole process."""
    precision = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(precision)
    torch.use_deterministic_algorithms(False)
    if torch.cuda.is_available():
        torch.cuda.set_sync_debug_mode("default")
        torch.cuda.empty_cache()


class GpuCommandLine(CommandLine):
    """The command line with the whole environment, since drivers and compilers are found through it."""

    def environment(self) -> dict[str, str]:
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}

    def __call__(
        self,
        *arguments: str | Path,
        cwd: Path | None = None,
        stdin: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 300,
    ) -> Result:
        return super().__call__(
            *arguments, cwd=cwd, stdin=stdin, env=self.environment() | dict(env or {}), timeout=timeout
        )


@pytest.fixture
def cli(tmp_path: Path) -> GpuCommandLine:
    """`cli("train", path, "--max-steps", "5")` → code, stdout, stderr; it runs in the test's own folder."""
    return GpuCommandLine(tmp_path)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add the outcome of a check, and the figures that it recorded, to the report of `benchmarks.gpu`."""
    folder = os.environ.get(REPORT_VARIABLE)
    if folder is None or (report.when != "call" and report.passed):
        return
    why = ""
    if report.skipped:
        why = str(report.longrepr[2])
    elif report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        why = crash.message if crash else report.longreprtext
    row = {"check": report.nodeid.rpartition("/")[2], "outcome": report.outcome, "seconds": round(report.duration, 1)}
    figures = ", ".join(f"{name} {value}" for name, value in report.user_properties)
    Report(Path(folder), "correctness").append("checks", row | {"figures": figures, "why": why[:300]})
