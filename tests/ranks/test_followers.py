"""A training that rank 0 leads: other numbers of ranks on resume, abandoned evaluations, failing followers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gptcli.checkpoints.checkpoint import Checkpoint, newest_checkpoint
from tests.conftest import ROOT
from tests.ranks.led import BAD_STEP, STEPS
from tests.ranks.test_trainer_on_ranks import free_port, largest_difference
from tests.runs.small_runs import small_dataset

CHANGING = ((1, ""), (2, "sharded"), (4, ""), (2, "sharded"), (1, ""))
"""Ranks of one session after the other, and whether their weights are sharded."""


def led(folder: Path, size: int, scenario: str = "training") -> tuple[list[int], str]:
    """Exit codes of all ranks, and their output."""
    base = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    if size > 1:
        base |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(size)}
        base |= {"LOCAL_WORLD_SIZE": str(size)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.ranks.led", str(folder), scenario],
            env=base | ({"RANK": str(rank), "LOCAL_RANK": str(rank)} if size > 1 else {}),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    said = [process.communicate(timeout=300) for process in processes]
    codes = [process.returncode for process in processes]
    assert 1 not in codes or scenario != "training", said
    return codes, "".join(output for output, _ in said)


@pytest.fixture(scope="module")
def start(corpus: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a dataset and no checkpoint."""
    folder = tmp_path_factory.mktemp("led")
    small_dataset(folder, corpus[:5000])
    return folder


def newest(folder: Path) -> Checkpoint:
    checkpoint, damaged = newest_checkpoint(folder)
    assert checkpoint is not None
    assert damaged == {}
    return checkpoint


def test_resumed_with_other_numbers_of_ranks(start: Path, tmp_path: Path) -> None:
    """The end is that of a training on one rank, as near as float64 goes; the control leaves one session out."""
    alone = Path(shutil.copytree(start, tmp_path / "alone"))
    changing = Path(shutil.copytree(start, tmp_path / "changing"))
    assert led(alone, 1, f"{(len(CHANGING) - 1) * STEPS} steps") == ([0], "")
    assert led(alone, 1) == ([0], "")
    for size, scenario in CHANGING:
        assert led(changing, size, scenario or "training") == ([0] * size, "")
        assert newest(changing).state.ranks == size
    assert newest(changing).progress.step == len(CHANGING) * STEPS
    one, other = newest(alone), newest(changing)
    assert abs((one.progress.val_loss or 0) - (other.progress.val_loss or 1)) < 1e-12
    for mine, its in ((one.state.model, other.state.model), (one.state.optimizer, other.state.optimizer)):
        assert largest_difference(mine, its) < 1e-12
    shutil.rmtree(alone / "checkpoints" / f"step-{len(CHANGING) * STEPS:08}")
    assert largest_difference(newest(alone).state.model, other.state.model) > 1e-6


@pytest.mark.parametrize("parallel", ["replicated", "sharded"])
def test_an_abandoned_evaluation_changes_nothing(start: Path, tmp_path: Path, parallel: str) -> None:
    plain = Path(shutil.copytree(start, tmp_path / "plain"))
    abandoned = Path(shutil.copytree(start, tmp_path / "abandoned"))
    assert led(plain, 2, parallel) == ([0, 0], "")
    assert led(abandoned, 2, f"{parallel} abandoned evaluation") == ([0, 0], "")
    assert largest_difference(newest(plain).state.model, newest(abandoned).state.model) == 0


def test_another_number_of_steps_holds_for_all_ranks(start: Path, tmp_path: Path) -> None:
    folders = [Path(shutil.copytree(start, tmp_path / name)) for name in ("alone", "two", "plain")]
    for folder, size, scenario in zip(folders, (1, 2, 1), ("rescheduled", "rescheduled", "training"), strict=True):
        assert led(folder, size, scenario) == ([0] * size, "")
    alone, two, plain = (newest(folder).state.model for folder in folders)
    assert largest_difference(alone, two) < 1e-12
    assert largest_difference(alone, plain) > 1e-6


@pytest.mark.parametrize(
    ("scenario", "code", "said"),
    [
        ("error", 1, ("OutOfMemoryError", "Rank 1", "There is no room.")),
        ("crash", 75, ("LostRank", "Rank 1", "'an update'", "nothing to share")),
        ("time-out", 75, ("LostRank", "Rank 0 waited", "'an update'")),
    ],
)
def test_an_error_in_a_follower_ends_the_training(
    start: Path, tmp_path: Path, scenario: str, code: int, said: tuple[str, ...]
) -> None:
    folder = Path(shutil.copytree(start, tmp_path / "run"))
    codes, text = led(folder, 2, scenario)
    assert codes[0] == code, text
    assert codes[1] != 0
    assert text.count("\n") == 1
    assert all(words in text for words in said), text
    assert newest_checkpoint(folder)[0] is None, f"no step after {BAD_STEP} was made"
