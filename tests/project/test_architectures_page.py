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
from gptcli.report.inspection import inspect
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


def test_figures_that_the_literature_states_otherwise() -> None:
    shape = {"model.n_layer": 32, "model.n_head": 32, "model.n_embd": 4096, "model.block_size": 2048}
    plain, checkpointed = (
        inspect(settings=shape | {"train.activation_checkpointing": on}, batch_size=8, device="cuda", dtype="bfloat16")
        for on in (False, True)
    )
    kept, recomputed = (report.memory.training.activations / 1e9 for report in (plain, checkpointed))
    assert f"{kept:.1f} GB in bfloat16 with fused attention, {recomputed:.1f} GB with" in PAGE
    stored = 8 * next(cost.stored_bytes for cost in plain.lengths.costs if cost.length == 2048)
    assert f"{stored / 1e9:.1f} GB more" in PAGE
    assert f"{checkpointed.flops.recomputed_per_token / plain.flops.training_per_token:.0%}".replace("%", " %") in PAGE
    gpt2, gpt3 = inspect(preset="gpt2"), inspect(preset="gpt3-175b")
    shares = (next(part.share for part in one.flops.parts if "scores" in part.name) for one in (gpt2, gpt3))
    told = "{:.0f} % of the FLOPs of GPT-2 124M at 1,024 tokens, half from {:,} on; of GPT-3 175B {:.1f} % at 2,048"
    small, large = shares
    assert told.format(100 * small, gpt2.lengths.crossover, 100 * large) in PAGE
    assert f"half from {gpt3.lengths.crossover:,} on" in PAGE
    matrices = training_flops(changed("position=learned"), 1) - 12 * 12 * 768
    assert f"{gpt2.flops.training_per_token / matrices - 1:.0%} more".replace("%", " %") in PAGE


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
