"""Check and measure gptcli on a GPU: one part at a time, or all of them (docs/gpu.md).

    python -m benchmarks.gpu [--part correctness|speed|ablations] [--device cpu] [--only NAME]

Each part takes less than nine minutes on an H200 and writes its results as it goes: gpu/PART.json and gpu/PART.md below
`--out`. What is left when the time is over is not begun. Without a GPU, small models run through the same code on the
CPU, as a test: their figures mean nothing.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu import ablations, decoding, losses, pace, saving, training
from benchmarks.gpu.correctness import check
from benchmarks.gpu.report import Report
from benchmarks.gpu.setting import Setting
from benchmarks.measure import RESULTS, machine
from gptcli.errors import first_line
from gptcli.model.devices import choose_device
from gptcli.training import runtime

Stage = Callable[[Setting], Mapping[str, Any] | Iterator[Mapping[str, Any]]]
"""A measurement: figures, or the rows of a table one after another."""

STAGES: dict[str, dict[str, Stage]] = {
    "speed": {
        "train_gpt2": training.train_gpt2,
        "train_small": training.train_preset,
        "sample_gpt2": decoding.sample_gpt2,
        "first_token": decoding.first_token,
        "save_gpt2": saving.save_gpt2,
        "max_time": pace.max_time,
        "phases": training.phases,
        "kernels": training.kernels,
    },
    "ablations": {
        "losses": losses.losses,
        "padded_head": ablations.padded_head,
        "chunk_sizes": ablations.chunk_sizes,
        "fused_loss": ablations.fused_loss,
        "attention_kernels": ablations.attention_kernels,
        "optimizers": ablations.optimizers,
        "micro_batches": ablations.micro_batches,
        "cudnn_attention": ablations.cudnn_attention,
        "experts": ablations.experts,
        "eval_batches": ablations.eval_batches,
    },
}
"""The stages of each part, the most wanted first."""
PARTS = ("correctness", *STAGES)
MINUTES = 8.0
"""Minutes after which a part begins nothing new."""


def run(report: Report, stages: Mapping[str, Stage], setting: Setting, deadline: float) -> bool:
    """Run stages until the deadline, a reading of `time.monotonic`; whether all of them succeeded."""
    problems: dict[str, str] = {}
    for name, stage in stages.items():
        begun = time.monotonic()
        if begun > deadline:
            problems[name] = "not begun: out of time"
        else:
            runtime.prepare(setting.device, deterministic=False)
            try:
                _carry_out(report, name, stage(setting))
            except Exception as error:
                traceback.print_exc()
                problems[name] = f"failed: {first_line(error)}"
            if setting.device.type == "cuda":
                torch.cuda.empty_cache()
        sys.stderr.write(f"{name}: {problems.get(name, f'{time.monotonic() - begun:.0f} s')}\n")
        report.put("problems", problems)
    return not problems


def _carry_out(report: Report, name: str, results: Mapping[str, Any] | Iterator[Mapping[str, Any]]) -> None:
    if isinstance(results, Mapping):
        report.put(name, results)
        return
    for row in results:
        report.append(name, row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, help="one part instead of all")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", default="", help="the checks or measurements whose names contain this")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    setting = Setting(choose_device(arguments.device))
    succeeded = True
    for part in [arguments.part] if arguments.part else PARTS:
        report, deadline = Report(arguments.out.resolve() / "gpu", part), time.monotonic() + 60 * MINUTES
        report.start(device=str(setting.device), machine=machine(setting.device))
        if part == "correctness":
            succeeded &= check(report, setting.device, arguments.only, deadline)
        else:
            stages = {name: stage for name, stage in STAGES[part].items() if arguments.only in name}
            succeeded &= run(report, stages, setting, deadline)
        sys.stdout.write(report.tables())
    sys.exit(not succeeded)


if __name__ == "__main__":
    main()
