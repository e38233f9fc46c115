"""The command line on a device: every command once; runs that end as one whole run does, whatever stops them."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.gpu.conftest import LONG_ON_A_CPU, GpuCommandLine
from tests.runs.small_runs import assert_same_end

SHAPE: dict[str, list[str]] = {
    "cpu": ["--preset", "nano", "--n-layer", "1", "--n-head", "2", "--n-embd", "16", "--block-size", "16"],
    "cuda": ["--preset", "tiny"],
}
STEPS = 20
LONG = {"cpu": 150, "cuda": 400}
"""Steps of a run that is stopped on its way, by device type."""


def train(device: torch.device, run: str, *, steps: int = STEPS, compiled: str = "off", **changes: Any) -> list[str]:
    """A deterministic training whose recipe does not depend on the number of steps."""
    settings = {"train.deterministic": "true", "optim.schedule": "constant", "optim.warmup_steps": 0, **changes}
    return [
        *("train", "book.txt", "-o", run, *SHAPE[device.type], "--max-steps", str(steps), "--quiet"),
        *("--device", str(device), "--compile", compiled, "--dropout", "0.1", "--batch-size", "4"),
        *("--eval-every", "10", "--save-every", "10", "--log-every", "1"),
        *(part for name, value in settings.items() for part in ("--set", f"{name}={value}")),
    ]


@pytest.fixture
def folder(tmp_path: Path, corpus: str) -> Path:
    """A folder with a text."""
    (tmp_path / "book.txt").write_text(corpus[:8000], encoding="utf-8")
    return tmp_path


def succeed(cli: GpuCommandLine, *arguments: str) -> str:
    """The standard output of a command that succeeds."""
    done = cli(*arguments)
    assert done.code == 0, done.stderr
    return done.stdout


@LONG_ON_A_CPU
def test_every_command(device: torch.device, cli: GpuCommandLine, folder: Path) -> None:
    on = ("--device", str(device))
    succeed(cli, "tokenize", "book.txt", "-o", "data/book", "--tokenizer", "bpe", "--vocab-size", "300")
    succeed(cli, "train", "data/book", "-o", "run", *SHAPE[device.type], "--max-steps", "6", "--sample-every", "3", *on)
    samples = succeed(
        cli, "sample", "run", "-p", "def ", "-n", "300", "--num-samples", "3", "--seed", "1", "--json", *on
    )
    assert {line["tokens"] for line in map(json.loads, samples.splitlines())} == {300}
    scores = json.loads(succeed(cli, "eval", "run", "book.txt", "--json", *on))
    assert 0 < scores["loss"] < 8
    assert "finished" in succeed(cli, "inspect", "run")
    succeed(cli, "export", "run", "--to", "hf", "-o", "exported")
    again = json.loads(succeed(cli, "eval", "exported", "book.txt", "--json", *on))
    assert again["loss"] == pytest.approx(scores["loss"], rel=1e-5)


def test_bench(device: torch.device, cli: GpuCommandLine) -> None:
    if device.type == "cpu":
        pytest.skip("tests/bench runs it on a CPU")
    report = json.loads(succeed(cli, "bench", "--preset", "small", "--device", str(device), "--json"))
    assert report["training"]["tokens_per_second"] > 0


@pytest.mark.parametrize("compiled", ["off", "on"])
def test_ten_and_ten_steps_are_twenty(device: torch.device, cli: GpuCommandLine, folder: Path, compiled: str) -> None:
    if device.type == "cpu" and compiled == "on":
        pytest.skip("compiling takes a minute on a CPU")
    check_parts(device, cli, folder, compiled)


def check_parts(device: torch.device, cli: GpuCommandLine, folder: Path, compiled: str) -> None:
    """Fails unless 20 steps end as 10 steps, resumed for 10 more in another process, bit for bit."""
    succeed(cli, *train(device, "whole", compiled=compiled))
    succeed(cli, *train(device, "parts", steps=STEPS // 2, compiled=compiled))
    succeed(cli, *train(device, "parts", compiled=compiled))
    assert_same_end(folder / "whole", folder / "parts")


@LONG_ON_A_CPU
def test_control_another_seed(device: torch.device, cli: GpuCommandLine, folder: Path) -> None:
    succeed(cli, *train(device, "one", steps=10))
    succeed(cli, *train(device, "other", steps=10, **{"train.seed": 2}))
    with pytest.raises(AssertionError):
        assert_same_end(folder / "one", folder / "other")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_stopped_run_ends_as_a_whole_one(
    device: torch.device, cli: GpuCommandLine, folder: Path, number: signal.Signals
) -> None:
    if device.type == "cpu" and number == signal.SIGTERM:
        pytest.skip("one signal is enough on a CPU; tests/crash has all of them")
    steps = LONG[device.type]
    process = cli.start(*train(device, "stopped", steps=steps), env=cli.environment())
    assert wait_for_checkpoint(folder / "stopped", process.poll), "it ended too early"
    process.send_signal(number)
    process.communicate(timeout=120)
    assert process.returncode == {signal.SIGKILL: -signal.SIGKILL, signal.SIGTERM: 143}[number]
    succeed(cli, *train(device, "stopped", steps=steps))
    succeed(cli, *train(device, "whole", steps=steps))
    assert_same_end(folder / "whole", folder / "stopped")


def wait_for_checkpoint(run: Path, ended: Any) -> bool:
    """Wait until a run has a checkpoint; whether it was still training then."""
    while not any((run / "checkpoints").glob("step-*")):
        if ended() is not None:
            return False
        time.sleep(0.02)
    return ended() is None
