"""docs/architectures.md tells every knob, and its figures are those of `inspect` and of what was measured."""

from __future__ import annotations

import json
import re
from functools import reduce

import pytest

from benchmarks.architectures import budgets, table, verdict
from benchmarks.page import FIGURES
from gptcli.config import ModelConfig, build_config
from gptcli.config.presets import family, preset_vocabulary
from gptcli.config.values import merge, parse_setting
from gptcli.model.cost import cache_bytes, parameter_count, training_flops
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "architectures.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `([^`]+)` \|(?: [−+]?[\d,.]+(?: %| MiB)? \|){5}$", re.MULTILINE)


def changed(settings: str) -> ModelConfig:
    """GPT-2 124M with the settings of a row, or of the family that it names."""
    if settings.startswith("--family "):
        layer = family(settings.removeprefix("--family "), 12)
    else:
        layer = reduce(merge, (parse_setting(f"model.{setting}") for setting in settings.split()))
    return build_config("gpt2", layer, vocab_size=preset_vocabulary("gpt2")).model


def costs(settings: str) -> str:
    """The row that stands for these settings in the page."""
    model, gpt2 = changed(settings), changed("position=learned")
    count, less = parameter_count(model), parameter_count(gpt2)
    work, usual = (training_flops(config, config.block_size) for config in (model, gpt2))
    cache = cache_bytes(model, 2) / 2**20
    difference = f"{count - less:+,}" if count != less else "0"
    percent = f"{100 * (work / usual - 1):+.2f} %".replace("+0.00", "0").replace("-0.00", "0")
    row = f"| `{settings}` | {count:,} | {difference} | {work:,} | {percent} | {cache:.1f} MiB |"
    return row.replace("| -", "| −")


def test_every_knob_is_told() -> None:
    for knob in ModelConfig.model_fields:
        assert f"`{knob}" in PAGE, knob


def test_what_each_knob_costs() -> None:
    rows = {match[1]: match[0] for match in ROW.finditer(PAGE)}
    assert list(rows.values()) == [costs(settings) for settings in rows]
    told = {setting.partition("=")[0] for settings in rows for setting in settings.split()}
    sizes = {"vocab_size", "n_layer", "n_head", "n_embd", "block_size", "dropout", "n_expert_active"}
    assert set(ModelConfig.model_fields) - sizes <= told


def test_the_comparison_is_what_was_measured() -> None:
    result = json.loads(FIGURES.read_text(encoding="utf-8"))["architectures"]
    assert f"\n{table(result)}\n" in PAGE
    assert f"\n{budgets(result)}\n" in PAGE


@pytest.mark.parametrize(
    ("losses", "expected"),
    [([1.0, 1.8, 1.9], "lower"), ([1.0, 1.8, 2.1], "within the spread"), ([2.3, 2.4, 2.5], "higher")],
)
def test_verdicts(losses: list[float], expected: str) -> None:
    assert verdict({"losses": losses}, {"losses": [2.0, 2.1, 2.2]}) == expected
