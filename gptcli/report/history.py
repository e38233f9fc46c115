"""The course of a training, read from the log of its run."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gptcli.checkpoints import names
from gptcli.runs.tensorboard import session_starts
from gptcli.untrusted import strict_json

END_BYTES = 4 << 20
"""Bytes at the end of a log in which its last evaluation is looked for: about 20,000 logged steps."""


@dataclass(frozen=True)
class LoggedStep:
    """A logged update; None is a figure that was not finite."""

    step: int
    seconds: float
    """Training time so far, over all sessions."""
    loss: float | None
    """Training loss in nats per token."""
    lr: float | None
    grad_norm: float | None
    """Norm of the gradient before clipping."""
    tokens_per_second: float | None
    activations: tuple[float, ...] = ()
    """Root mean square after each layer, from the embeddings on; empty unless the run logs its layers."""
    gradients: tuple[float, ...] = ()
    """Norm of the loss's gradient there."""


@dataclass(frozen=True)
class LoggedEvaluation:
    step: int
    seconds: float
    loss: float
    """Validation loss in nats per token."""
    bits_per_byte: float | None


@dataclass(frozen=True)
class LoggedSample:
    """A text that was generated during training."""

    step: int
    text: str


@dataclass(frozen=True)
class History:
    """The log of a run, in the order of its steps."""

    steps: tuple[LoggedStep, ...]
    evaluations: tuple[LoggedEvaluation, ...]
    samples: tuple[LoggedSample, ...]
    resumes: tuple[int, ...]
    """Steps from which later sessions continued."""


def read_history(run: Path) -> History:
    """The log of a run that is finished, stopped or being trained; damaged or unfinished lines are skipped."""
    steps: list[LoggedStep] = []
    evaluations: list[LoggedEvaluation] = []
    samples: list[LoggedSample] = []
    path = run / names.METRICS
    if path.is_file():
        with suppress(OSError), open(path, "rb") as lines:
            for line in lines:
                with suppress(ValueError, KeyError, TypeError):
                    _add(strict_json(line), steps, evaluations, samples)
    last = max((found[-1].step for found in (steps, evaluations, samples) if found), default=0)
    resumes = tuple(step for step in session_starts(run) if 0 < step < last)
    return History(tuple(steps), tuple(evaluations), tuple(samples), resumes)


def logged_bits_per_nat(run: Path) -> float | None:
    """The bits per byte that one nat per token is, by the last evaluation in a run's log; None if it names none.

    This depends on the dataset alone. Only the end of the log is read: a run may have logged a million steps.
    """
    path = run / names.METRICS
    end = b""
    if path.is_file():
        with suppress(OSError), open(path, "rb") as log:
            log.seek(max(0, path.stat().st_size - END_BYTES))
            end = log.read(END_BYTES)
    while (found := end.rfind(b'"val/bpb"')) >= 0:
        begin = end.rfind(b"\n", 0, found) + 1
        with suppress(ValueError, KeyError, TypeError, ArithmeticError):
            line = strict_json(end[begin:].split(b"\n", 1)[0])
            return float(line["val/bpb"]) / float(line["val/loss"])
        end = end[:begin]
    return None


def _add(
    line: dict[str, Any], steps: list[LoggedStep], evaluations: list[LoggedEvaluation], samples: list[LoggedSample]
) -> None:
    """Add what a line of the log holds; raises as `read_history` expects where it is not what it should be."""
    step = int(line["step"])
    if "train/loss" in line:
        figures = (line.get(name) for name in ("train/loss", "train/lr", "train/grad_norm", "perf/tok_per_sec"))
        loss, lr, norm, rate = (None if figure is None else float(figure) for figure in figures)
        layers = _layers(line, "activations"), _layers(line, "gradients")
        steps.append(LoggedStep(step, float(line["seconds"]), loss, lr, norm, rate, *layers))
    elif line.get("val/loss") is not None:
        bits = line.get("val/bpb")
        found = LoggedEvaluation(
            step, float(line["seconds"]), float(line["val/loss"]), None if bits is None else float(bits)
        )
        evaluations.append(found)
    elif "sample" in line:
        samples.append(LoggedSample(step, str(line["sample"])))


def _layers(line: dict[str, Any], name: str) -> tuple[float, ...]:
    """The figures `name/0`, `name/1` and so on; none where one is missing or was not finite."""
    count = sum(key.startswith(f"{name}/") for key in line)
    found = [float(norm) for layer in range(count) if (norm := line.get(f"{name}/{layer}")) is not None]
    return tuple(found) if len(found) == count else ()
