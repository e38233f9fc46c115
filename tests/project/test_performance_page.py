"""docs/performance.md is what docs/performance.json and the goals say, and a goal is judged by its figure."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from benchmarks.page import FIGURES, GOALS, NOT_MEASURED, PAGE, gather, render, value_at, verdict

GOALS_OF_ALL: dict[str, Any] = tomllib.loads(GOALS.read_text(encoding="utf-8"))
MACHINE = {"processor": "Abacus", "threads": 2, "python": "3.11", "versions": {"torch": "2.13"}, "date": "2026-01-01"}


def rows() -> list[dict[str, Any]]:
    return [row for section in GOALS_OF_ALL["sections"] for row in section.get("rows", [])]


def test_is_up_to_date() -> None:
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    assert PAGE.read_text(encoding="utf-8") == render(figures, GOALS_OF_ALL), (
        "generate it again: python -m benchmarks.page"
    )


def test_without_any_figure_every_row_says_so() -> None:
    assert render({}, GOALS_OF_ALL).count(f"| {NOT_MEASURED} |") == len(rows()) + len(GOALS_OF_ALL["questions"])


def test_every_path_names_a_question() -> None:
    for row in rows():
        shown = [path for _, path, _ in row.get("shown", [])]
        for path in [row["figure"], *([row["over"]] if "over" in row else []), *shown]:
            assert path.split("/")[0] in GOALS_OF_ALL["questions"], path


@pytest.mark.parametrize(
    ("bound", "figure", "expected"),
    [
        ({"at_most": 0.5}, 0.5, ("0.50 × x", "≤ 0.50 × x", "yes")),
        ({"at_most": 0.5}, 0.51, ("0.51 × x", "≤ 0.50 × x", "**no**")),
        ({"at_least": 0.5}, 0.49, ("0.49 × x", "≥ 0.50 × x", "**no**")),
        ({"at_least": 0.5}, 0.51, ("0.51 × x", "≥ 0.50 × x", "yes")),
        ({}, 0.51, ("0.51 × x", "none", "–")),
        ({"at_most": 0.5}, None, ("–", "≤ 0.50 × x", NOT_MEASURED)),
    ],
)
def test_verdicts(bound: dict[str, float], figure: float | None, expected: tuple[str, str, str]) -> None:
    row = {"what": "w", "figure": "a/b", "as": "{:.2f} × x", **bound}
    assert verdict(row, {"a": {"b": figure}}) == expected


def test_a_figure_over_another() -> None:
    row = {"what": "w", "figure": "a/b", "over": "c", "as": "{:.0f}", "at_most": 4}
    assert verdict(row, {"a": {"b": 10}, "c": 2}) == ("5", "≤ 4", "**no**")
    assert verdict(row, {"a": {"b": 10}})[2] == NOT_MEASURED


def test_names_may_hold_dots() -> None:
    assert value_at({"rows": {"llama.cpp": 2}}, "rows/llama.cpp") == 2


def test_figures_of_other_questions_stay(tmp_path: Path) -> None:
    results, figures = tmp_path / "results", tmp_path / "performance.json"
    results.mkdir()
    figures.write_text(json.dumps({"old": {"a": 1}, "training": {"a": 1}}), encoding="utf-8")
    (results / "training.json").write_text('{"a": 2}', encoding="utf-8")
    (results / "gpu").mkdir()
    (results / "gpu" / "speed.json").write_text('{"device": "cpu"}', encoding="utf-8")  # the test on a CPU
    assert gather(results, figures) == {"old": {"a": 1}, "training": {"a": 2}}
    (results / "gpu" / "speed.json").write_text('{"device": "cuda"}', encoding="utf-8")
    assert gather(results, figures)["gpu"] == {"device": "cuda"}


def test_notes_and_machines_are_told() -> None:
    row = {"what": "speed", "figure": "training/a", "as": "{:.0%}", "at_least": 0.9, "note": "A reason\nin words."}
    section = {"title": "T", "text": "t", "unmeasured": "Nobody looked.", "rows": [row]}
    goals = {"questions": {"training": "updates"}, "sections": [section]}
    page = render({"training": {"a": 0.5, "machine": MACHINE, "matrix_rate": 3e9}}, goals)
    assert "| updates | 2026-01-01 | Abacus, 2 threads, 3 GFLOP/s | Python 3.11, torch 2.13 |" in page
    assert "| speed | – | 50 % | ≥ 90 % | **no** |" in page
    assert "**speed**: A reason in words." in page
    assert "Nobody looked." not in page
    assert "Nobody looked." in render({}, goals)
