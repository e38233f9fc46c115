"""The report of `gptcli bench` as tables, markdown or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from gptcli.bench.speed import SpeedReport
from gptcli.errors import size
from gptcli.ui.console import Output
from gptcli.ui.tables import Column, facts, left, operations, right, share, table

COLUMNS = [*left("work", "dtype"), *right("tokens", "tokens/s", "time", "reached", "share", "peak memory")]
LENGTH_COLUMNS = right("tokens", "with cache", "without", "times", "cache")


def show_speed(report: SpeedReport, output: Output, *, markdown: bool) -> None:
    """Print the report on standard output."""
    if output.as_json:
        output.json(asdict(report))
    elif markdown:
        output.result(as_markdown(report))
    else:
        output.show(facts(f"Speed of {report.name}", _facts(report)), "", table("Measured", COLUMNS, _rows(report)))
        if report.lengths:
            output.show("", table("One more token by length", LENGTH_COLUMNS, _length_rows(report)))


def as_markdown(report: SpeedReport) -> str:
    """Markdown tables, with the machine in the line before them."""
    described = "; ".join(f"{name}: {value}" for name, value in _facts(report))
    parts = [f"Speed of {report.name}. {described}.", _markdown_table(COLUMNS, _rows(report))]
    if report.lengths:
        parts.append(_markdown_table(LENGTH_COLUMNS, _length_rows(report)))
    return "\n\n".join(parts)


def _markdown_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    lines = [[name for name, _ in columns], ["--:" if align == "right" else "---" for _, align in columns]]
    return "\n".join("| " + " | ".join(line) + " |" for line in [*lines, *rows])


def si_time(seconds: float) -> str:
    """0.0123 → "12.3 ms"."""
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}" if seconds < 999.5 * unit else f"{seconds / unit:,.0f} {name}"
    return f"{seconds * 1e6:.3g} µs"


def _facts(report: SpeedReport) -> list[tuple[str, str]]:
    rates = [f"{operations(int(rate))}/s in {dtype}" for dtype, rate in report.limits.matrix_rate.items()]
    bandwidth = f"memory read at {size(int(report.limits.read_bandwidth))}/s"
    threads = f"{report.threads} and, to generate, {report.decoding.threads}" if report.device == "cpu" else ""
    return [
        ("parameters", f"{report.parameters:,}"),
        ("device", f"{report.device}, {report.device_name}"),
        *([("threads", threads)] if threads else []),
        ("torch", report.torch + (", compiled" if report.training.compiled else "")),
        ("limits", ", ".join([f"matrix products {rate}" for rate in rates] + [bandwidth])),
    ]


def _rows(report: SpeedReport) -> list[list[str]]:
    training, prefill, decoding = report.training, report.prefill, report.decoding
    return [
        [
            *("training", training.dtype, f"{training.sequences:,} × {training.length:,}"),
            *(_rate(training.tokens_per_second), f"{si_time(training.seconds)} per update"),
            *(f"{operations(int(training.flops_per_second))}/s", share(training.mfu), _peak(training.peak_memory)),
        ],
        [
            *("prefill", prefill.dtype, f"{prefill.tokens:,}"),
            *(_rate(prefill.tokens_per_second), f"{si_time(prefill.seconds)} per prompt"),
            *(f"{operations(int(prefill.flops_per_second))}/s", share(prefill.mfu), _peak(prefill.peak_memory)),
        ],
        [
            *("decoding", decoding.dtype, f"{decoding.sequences:,} × {decoding.tokens:,}"),
            *(_rate(decoding.tokens_per_second), f"{si_time(decoding.seconds)} per token"),
            *(
                f"{size(int(decoding.bytes_per_second))}/s",
                share(decoding.bandwidth_share),
                _peak(decoding.peak_memory),
            ),
        ],
    ]


def _length_rows(report: SpeedReport) -> list[list[str]]:
    return [
        [
            *(f"{speed.tokens:,}", si_time(speed.cached_seconds), si_time(speed.uncached_seconds)),
            *(f"{speed.gain:.1f}", size(speed.cache_bytes)),
        ]
        for speed in report.lengths
    ]


def _peak(bytes: int | None) -> str:
    return "–" if bytes is None else size(bytes)


def _rate(tokens_per_second: float) -> str:
    return f"{tokens_per_second:,.0f}" if tokens_per_second >= 100 else f"{tokens_per_second:.3g}"
