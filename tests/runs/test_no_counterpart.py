"""Models that no other program can open: a note says so before training; they train, sample and resume like others."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gptcli.cli.app import app
from gptcli.dataset.folder import Dataset
from tests.model.variants import STRANGE
from tests.runs.small_runs import assert_same_end, plan, run, series

KNOBS = {f"model.{key}": value for key, value in STRANGE["strange"].items()}
"""Every knob as no published family has it."""
NOTE = "Only gptcli can open this model"


def notes(dataset: Dataset, path: Path, knobs: dict[str, object]) -> list[str]:
    return [note for note in plan(dataset, path, knobs).notes if note.startswith(NOTE)]


def test_the_plan_names_the_knobs(dataset: Dataset, tmp_path: Path) -> None:
    told = [f"{NOTE}, because of position = sinusoidal, logit_softcap = 5.0."]
    knobs = {"model.position": "sinusoidal", "model.logit_softcap": 5.0}
    assert notes(dataset, tmp_path / "run", knobs) == told


@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"model.position": "rope", "model.norm": "rmsnorm", "model.mlp": "swiglu", "model.bias": False},
        {"model.tied": False},
    ],
)
def test_the_plan_says_nothing_of_models_that_open_elsewhere(
    dataset: Dataset, tmp_path: Path, knobs: dict[str, object]
) -> None:
    assert notes(dataset, tmp_path / "run", knobs) == []


def gptcli(*arguments: str) -> Result:
    result = CliRunner().invoke(app, [*arguments])
    assert result.exit_code == 0, result.stderr
    return result


def test_the_command_prints_the_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, corpus: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("book.txt").write_text(corpus[:3000])
    result = gptcli("train", "book.txt", "--preset", "nano", "--dry-run", "--set=model.norm_placement=post")
    assert f"{NOTE}, because of norm_placement = post" in " ".join(result.stderr.split())


def test_such_a_run_resumes_to_the_last_bit_and_samples(dataset: Dataset, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    run(dataset, one, KNOBS)
    run(dataset, other, KNOBS, stop_after=7)
    assert NOTE in "\n".join(plan(dataset, other, KNOBS).notes), "told again on resume"
    run(dataset, other, KNOBS)
    assert_same_end(one, other)
    assert series(one, "train/loss") == series(other, "train/loss")
    sampled = [gptcli("sample", str(path), "-n", "40", "--seed", "1", "--device", "cpu") for path in (one, other)]
    assert sampled[0].stdout == sampled[1].stdout
    assert len(sampled[0].stdout) > 40, "more than the context of 16"
