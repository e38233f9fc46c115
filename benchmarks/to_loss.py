"""The time of a whole `gptcli train` process to a validation loss, and its loss after three minutes.

The clock starts with the process: loading modules, reading and tokenizing the text, training, evaluations and saves all
count. The losses come from the run's metrics.jsonl: full passes over the held-out tenth of the text with the run's own
context window. The command gets only the option for the run folder, and `--preset` if one is given here.

    python -m benchmarks.to_loss TEXT [--preset P]
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import save

LOSS = 1.886
"""The final loss of nanoGPT's recipe for CPUs on tiny Shakespeare."""
MOMENT = 180.0
"""Seconds after which the best loss is reported."""
PATIENCE = 600.0
"""Seconds after which a run that has not reached the loss is stopped."""
LOOK_EVERY = 0.02


def evaluations(log: Path) -> list[float]:
    """The validation losses of a run so far."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    complete = [json.loads(line) for line in lines if line.endswith("}")]
    return [line["val/loss"] for line in complete if "val/loss" in line]


def follow(text: Path, options: list[str]) -> dict[str, Any]:
    """Train and watch the log, with seconds from the start of the process, until both figures are known."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "gptcli", "train", str(text.resolve()), "-o", "run", "-q", *options]
        start = time.perf_counter()
        process = subprocess.Popen(command, cwd=scratch, stdout=subprocess.DEVNULL)
        seen: list[tuple[float, float]] = []
        reached: float | None = None
        while process.poll() is None:
            now = time.perf_counter() - start
            seen += [(now, loss) for loss in evaluations(Path(scratch) / "run/metrics.jsonl")[len(seen) :]]
            reached = reached or next((when for when, loss in seen if loss <= LOSS), None)
            if now > (MOMENT if reached else PATIENCE):
                process.send_signal(signal.SIGTERM)
                process.wait()
            time.sleep(LOOK_EVERY)
    in_time = [loss for when, loss in seen if when <= MOMENT]
    return {
        "options": " ".join(options),
        "seconds_to_loss": reached,
        "best_in_three_minutes": min(in_time, default=None),
        "losses": seen,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--preset", help="also train with this preset")
    arguments = parser.parse_args()
    rows = {"default": follow(arguments.text, [])}
    if arguments.preset:
        rows[arguments.preset] = follow(arguments.text, ["--preset", arguments.preset])
    times = [row["seconds_to_loss"] for row in rows.values() if row["seconds_to_loss"] is not None]
    soonest = {"loss": LOSS, "soonest_seconds_to_loss": min(times, default=None)}
    save("to_loss", {"text": arguments.text.name, **soonest, "rows": rows})


if __name__ == "__main__":
    main()
