"""The law of expected losses."""

from __future__ import annotations

import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import law as fitting
from gptcli.runs.expected import LAW

RESULTS = Path(__file__).parents[2] / "docs" / "recipes.jsonl"


def test_more_training_helps_until_the_text_is_memorized() -> None:
    harmless = LAW.harmless_passes(parameters=1e5, characters=1e5, dropout=0.0)
    passes = [harmless / 8, harmless / 4, harmless / 2]
    early = [LAW.ratio(1e5, 1e5, 100 * count, count, 0.0) for count in passes]
    assert early == sorted(early, reverse=True)
    assert LAW.ratio(1e5, 1e5, 800 * harmless, 8 * harmless, 0.0) > early[-1]


def test_dropout_and_small_models_bear_more_passes() -> None:
    plain = LAW.harmless_passes(1e6, 1e5, 0.0)
    assert LAW.harmless_passes(1e6, 1e5, 0.2) > plain
    assert LAW.harmless_passes(1e5, 1e5, 0.0) > plain


def test_more_parameters_help_where_there_is_text_and_time() -> None:
    small, large = (LAW.ratio(size, 1e8, 20_000, 1.0, 0.0) for size in (1e5, 1e7))
    assert large < small


def test_the_constants_fit_the_published_trainings() -> None:
    examples = [one for one in fitting.read(RESULTS) if one.weight == 1]
    errors = [abs(error) for error in fitting.errors_of(LAW, examples)]
    assert statistics.median(errors) < 0.04
    other = replace(LAW, size=2 * LAW.size)
    assert statistics.median(map(abs, fitting.errors_of(other, examples))) > 0.04, "the test cannot fail"


def test_the_fit_computes_the_same_ratios() -> None:
    examples = fitting.read(RESULTS)
    ratios = [LAW.ratio(one.parameters, one.tokens, one.steps, one.passes, one.dropout) for one in examples]
    assert fitting.ratios(LAW, examples).tolist() == pytest.approx(ratios, rel=1e-12)
