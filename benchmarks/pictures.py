"""Pictures of `benchmarks.cost`, with measured points and the theory as a line, and of `benchmarks.architectures`.

python -m benchmarks.pictures       # draws all results into docs/
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from benchmarks.architectures import by_name
from benchmarks.measure import RESULTS

DOCS = Path(__file__).parent.parent / "docs"
MEASURED, THEORY, OTHER = "#1f5fa8", "#9a9a9a", "#c8641e"
LABELS = {"context": "context, tokens", "width": "width", "layers": "layers", "batch": "batch, sequences"}


def draw(results: Path) -> None:
    """Write the pictures of all results in `results` to docs/."""
    mpl.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False, "svg.fonttype": "none"})
    pictures: dict[str, Callable[[Any], Figure]] = {
        "cost_training": training,
        "cost_writing": writing,
        "cost_tokenizing": tokenizing,
        "architectures": architectures,
    }
    for name, picture in pictures.items():
        if (results / f"{name}.json").exists():
            figure = picture(json.loads((results / f"{name}.json").read_text(encoding="utf-8")))
            figure.savefig(DOCS / f"{name.replace('_', '-')}.png", dpi=120, metadata={"Software": None})


def training(result: Any) -> Figure:
    """Time and memory of an update: a row for each size."""
    sweeps, rate = result["sweeps"], result["matrix_rate"]
    base = result["base"]
    figure = Figure(figsize=(10, 9.5), layout="constrained")
    axes = figure.subplots(4, 2, gridspec_kw={"hspace": 0.04})
    for row, (size, points) in zip(axes, sweeps.items(), strict=True):
        values = [point[size] for point in points]
        time, memory = row
        _lines(time, values, [1e3 * point["seconds"] for point in points], [1e3 * p["flops"] / rate for p in points])
        _lines(
            memory,
            values,
            [point["peak_memory"] / 1e6 for point in points],
            [point["foretold_memory"] / 1e6 for point in points],
        )
        memory.set_yscale("linear")
        memory.set_ylim(bottom=0)
        for ax in row:
            ax.set_xlabel(LABELS[size])
        time.set_ylabel("ms")
        memory.set_ylabel("MB")
    axes[0, 0].set_title("time per update", loc="left")
    axes[0, 1].set_title("peak memory of the process", loc="left")
    axes[0, 0].legend(["measured", "at the machine's matrix rate"], frameon=False, loc="lower right")
    axes[0, 1].legend(["measured", "predicted by gptcli"], frameon=False, loc="lower right")
    shape = f"{base['layers']} layers, {base['width']} wide, {base['batch']} × {base['context']} tokens"
    _title(figure, f"Training {shape}, one size changed at a time (float32, CPU)")
    return figure


def writing(result: Any) -> Figure:
    """Tokens per second of GPT-2 124M by the length of the prompt, and by sequences at once."""
    bandwidth, compute = result["read_bandwidth"], result["matrix_rate"] / result["flops_per_token"]
    figure = Figure(figsize=(10, 3.9), layout="constrained")
    one, many = figure.subplots(1, 2)
    for ax, points, key in ((one, result["context"], "prompt"), (many, result["batch"], "samples")):
        theory = [bandwidth / point["bytes_per_token"] for point in points]
        _lines(ax, [p[key] for p in points], [p["tokens_per_second"] for p in points], theory, log=key == "samples")
        ax.set_ylabel("tokens per second")
    many.axhline(compute, color=OTHER, linestyle=":", linewidth=1.5)
    one.set_ylim(bottom=0)
    one.set_xlabel("prompt tokens, one sequence")
    many.set_xlabel("sequences at once, 64 prompt tokens")
    one.legend(["measured", "memory bandwidth"], frameon=False, loc="lower left")
    many.legend(["measured", "memory bandwidth", "matrix rate"], frameon=False, loc="lower right")
    _title(figure, "Generating with GPT-2 124M (float32, CPU)")
    return figure


def tokenizing(result: Any) -> Figure:
    """Seconds of the whole command by the size of the text; the theory is a constant plus a time per byte."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    ax = figure.subplots()
    for (kind, points), color in zip(result["rows"].items(), (MEASURED, OTHER), strict=True):
        sizes, seconds = [p["bytes"] / 1e6 for p in points], [p["seconds"] for p in points]
        name = {"char": "characters", "bpe": "BPE of 8,192 entries, trained on the text"}[kind]
        ax.plot(sizes, seconds, "o-", color=color, label=name)
        slope = (seconds[-1] - seconds[0]) / (sizes[-1] - sizes[0])
        ax.plot(sizes, [seconds[0] + slope * (size - sizes[0]) for size in sizes], "--", color=color, alpha=0.5)
    ax.plot([], [], "--", color=THEORY, label="start-up time plus a time per byte")
    _logarithmic(ax, sizes)
    ax.set_xlabel("text, MB")
    ax.set_ylabel("seconds")
    ax.legend(frameon=False)
    _title(figure, "gptcli tokenize, the whole command")
    return figure


def architectures(result: Any) -> Figure:
    """Loss by FLOPs for two models, and for every change to GPT-2 at the same FLOPs; each point is a seed."""
    figure = Figure(figsize=(10, 6.2), layout="constrained")
    curve, changes = figure.subplots(1, 2, width_ratios=(2, 3))
    for change, color in (("modern", MEASURED), ("GPT-2", THEORY)):  # the last one's FLOPs are the ticks
        rows = [row for row in result["rows"] if row["change"] == change and row["optimizer"] == "muon"]
        rows.sort(key=lambda row: row["flops"])
        flops = [row["flops"] / 1e9 for row in rows]
        curve.plot(flops, [fmean(row["losses"]) for row in rows], "-", color=color, label=change)
        for size, row in zip(flops, rows, strict=True):
            curve.plot([size] * len(row["losses"]), row["losses"], "o", color=color, markersize=4)
    _logarithmic(curve, flops)
    curve.set_xticks(flops, [f"{size:,.0f}" for size in flops])
    curve.set_yscale("linear")
    curve.set_xlabel("training GFLOPs")
    curve.set_ylabel("validation loss, nats per character")
    curve.legend(frameon=False)
    models = dict(sorted(by_name(result).items(), key=lambda item: -fmean(item[1]["losses"])))
    for place, (name, row) in enumerate(models.items()):
        color = THEORY if name == "GPT-2" else OTHER if "AdamW" in name else MEASURED
        changes.plot(row["losses"], [place] * len(row["losses"]), "o", color=color, markersize=4, alpha=0.6)
        changes.plot(fmean(row["losses"]), place, "|", color=color, markersize=13, markeredgewidth=2)
    spread = models["GPT-2"]["losses"]
    changes.axvspan(min(spread), max(spread), color=THEORY, alpha=0.2, linewidth=0)
    changes.set_yticks(range(len(models)), list(models))
    changes.set_xlabel("validation loss; grey: the seeds of GPT-2")
    _title(figure, "Equal training FLOPs: GPT-2, modern, and each change to GPT-2 (three seeds, CPU)")
    return figure


def _title(figure: Figure, text: str) -> None:
    figure.suptitle(text, x=0.01, ha="left", fontsize=13)


def _lines(
    ax: Axes, values: Sequence[float], measured: Sequence[float], theory: Sequence[float], *, log: bool = True
) -> None:
    ax.plot(values, measured, "o-", color=MEASURED)
    ax.plot(values, theory, "--", color=THEORY)
    if log:
        _logarithmic(ax, values)


def _logarithmic(ax: Axes, values: Sequence[float]) -> None:
    """Logarithmic axes with plain numbers, and ticks at the measured values."""
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks(values, [f"{value:,g}" for value in values])
    ax.yaxis.set_major_locator(LogLocator(10, (1, 2, 5) if np.ptp(np.log10(ax.get_ylim())) < 2 else (1,)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_formatter(NullFormatter())
        axis.set_tick_params(which="minor", size=0)


if __name__ == "__main__":
    draw(RESULTS)
