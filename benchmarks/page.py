"""Write docs/performance.md: the measured figures, the figures they are compared with, and the goals.

The other programs of this folder write their figures to results/. This one gathers them in docs/performance.json, keeps
the old figures of programs that did not run again, and generates the page from that file and goals.toml alone.

    python -m benchmarks.page
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from benchmarks.measure import RESULTS

DOCS = Path(__file__).parent.parent / "docs"
FIGURES, PAGE = DOCS / "performance.json", DOCS / "performance.md"
GOALS = Path(__file__).with_name("goals.toml")
NOT_MEASURED, NOT_REACHED = "not measured", "**no**"
UNITS = {
    "ms": lambda value: f"{1e3 * value:.3g} ms" if value < 0.9995 else f"{value:.3g} s",
    "s": lambda value: f"{value:.3g} s",
    "GB": lambda value: f"{value / 1e9:.2f} GB",
    "MB/s": lambda value: f"{value / 1e6:.3g} MB/s",
    "tokens/s": lambda value: f"{value:,.0f} tokens/s" if value >= 100 else f"{value:.3g} tokens/s",
    "": lambda value: f"{value:.3f}",
}
INTRODUCTION = """\
# Performance

The speed of gptcli, compared with other programs and with the limits of the machine. `make bench` generates this page
from `docs/performance.json`; `gptcli bench` measures your own model on your own machine.

The programs take turns in one run on one machine, and ratios of medians are compared, since absolute figures vary with
the machine. The limits are measured too: the rate of a large matrix product, and the memory bandwidth. Training counts
as 6 N + 12 · layers · width · T FLOPs per token, with all parameters and without a discount for causality. Weights and
tokens are random unless a text is named. [log.md](log.md) has the experiments behind these figures.
"""


def gather(results: Path, figures: Path) -> dict[str, Any]:
    """All figures by question: the new results, and the old figures of questions without one."""
    found: dict[str, Any] = json.loads(figures.read_text(encoding="utf-8")) if figures.exists() else {}
    files = {file.stem: file for file in sorted(results.glob("*.json"))} | {"gpu": results / "gpu" / "speed.json"}
    for question, file in files.items():
        if file.exists():
            found[question] = json.loads(file.read_text(encoding="utf-8"))
    if found.get("gpu", {}).get("device") == "cpu":
        del found["gpu"]  # the small test on a CPU, whose figures mean nothing
    return found


def render(figures: dict[str, Any], goals: dict[str, Any]) -> str:
    """The page."""
    sections = [_section(section, figures) for section in goals["sections"]]
    return "\n".join([INTRODUCTION, _machines(figures, goals), *sections])


def value_at(figures: dict[str, Any], path: str) -> float | None:
    """The number at a path of names; None if there is none.

    >>> value_at({"training": {"rows": {"tiny": {"ratio": 0.5}}}}, "training/rows/tiny/ratio")
    0.5
    """
    found: Any = figures
    for name in path.split("/"):
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, int | float) else None


def verdict(row: dict[str, Any], figures: dict[str, Any]) -> tuple[str, str, str]:
    """The compared figure of a row, its goal, and whether the goal is reached, as text."""
    bound, sign = row.get("at_most", row.get("at_least")), "≤" if "at_most" in row else "≥"
    goal = row.get("goal") or ("none" if bound is None else f"{sign} {_written(row, bound)}")
    value = value_at(figures, row["figure"])
    reference = value_at(figures, row["over"]) if "over" in row else 1.0
    if value is None or not reference:
        return "–", goal, NOT_MEASURED
    compared = value / reference
    if bound is None:
        return _written(row, compared), goal, "–"
    reached = compared <= bound if "at_most" in row else compared >= bound
    return _written(row, compared), goal, "yes" if reached else NOT_REACHED


def _written(row: dict[str, Any], value: float) -> str:
    return str(row["as"].format(value)).replace("%", " %")


def _section(section: dict[str, Any], figures: dict[str, Any]) -> str:
    rows = [(row, *verdict(row, figures)) for row in section.get("rows", [])]
    lines = [f"## {section['title']}", "", section["text"].strip(), ""]
    if rows and all(reached == NOT_MEASURED for *_, reached in rows):
        lines += [section.get("unmeasured", "").strip(), ""] if "unmeasured" in section else []
    if rows:
        lines += ["| benchmark | measured | compared | goal | reached |", "|---|---|--:|--:|---|"]
        for row, compared, goal, reached in rows:
            lines.append(f"| {row['what']} | {_shown(row, figures)} | {compared} | {goal} | {reached} |")
        lines.append("")
    for row, _, _, reached in rows:
        if "note" in row and reached == NOT_REACHED:
            lines += [f"**{row['what']}**: {' '.join(row['note'].split())}", ""]
    return "\n".join(lines)


def _shown(row: dict[str, Any], figures: dict[str, Any]) -> str:
    """The absolute figures, such as "gptcli 26.6 ms, transformers 30.1 ms"."""
    parts = []
    for name, path, unit in row.get("shown", []):
        value = value_at(figures, path)
        if value is not None:
            parts.append(f"{name} {UNITS[unit](value)}".strip())
    return ", ".join(parts) or "–"


def _machines(figures: dict[str, Any], goals: dict[str, Any]) -> str:
    lines = ["| figures | date | machine | versions |", "|---|---|---|---|"]
    for name, title in goals["questions"].items():
        if name not in figures:
            lines.append(f"| {title} | {NOT_MEASURED} | | |")
            continue
        result, machine = figures[name], figures[name]["machine"]
        versions = ", ".join(f"{package} {version}" for package, version in machine["versions"].items() if version)
        where = f"{machine['processor']}, {machine['threads']} threads{_limits(result)}"
        lines.append(f"| {title} | {machine['date']} | {where} | Python {machine['python']}, {versions} |")
    return "\n".join([*lines, ""])


def _limits(result: dict[str, Any]) -> str:
    rate, bandwidth = result.get("matrix_rate"), result.get("read_bandwidth")
    told = [f"{rate / 1e9:,.0f} GFLOP/s"] if rate else []
    told += [f"{bandwidth / 1e9:,.1f} GB/s"] if bandwidth else []
    return "".join(f", {limit}" for limit in told)


def main() -> None:
    figures = gather(RESULTS, FIGURES)
    FIGURES.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(render(figures, tomllib.loads(GOALS.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
