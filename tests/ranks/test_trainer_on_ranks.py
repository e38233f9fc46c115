"""Several ranks train like one: the same losses, weights and state, up to rounding in float64."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from gptcli.dataset.preparing import tokenize
from tests.conftest import ROOT
from tests.ranks.trained import CASES, HALF
from tests.runs.small_runs import small_dataset

EXACT = [case for case in CASES if case not in ("dropout", "uneven", *HALF)]
CASES_OF = {2: [*EXACT, "dropout"], 4: ["micro-batches", "experts", "nan", "dropout"]}
"""The cases of `make test` by the number of ranks; the campaign has all on four."""
PAIRS = [(size, case) for size, cases in CASES_OF.items() for case in cases]
MEMORY = ("own", "live")
"""Figures of memory among the results."""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def train(folder: Path, size: int, cases: list[str], **variables: str) -> None:
    """Train the cases on `size` ranks, each in a process of its own; one is alone, without a process group."""
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(size)}
    base = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"} | variables
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.ranks.trained", str(folder), *cases],
            env=base | (shared | {"RANK": str(rank)} if size > 1 else {}),
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    ends = [process.communicate(timeout=300)[1] for process in processes]
    assert all(process.returncode == 0 for process in processes), "\n".join(ends)


@pytest.fixture(scope="module")
def results(corpus: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what came of each case on 1, 2 and 4 ranks. Of several processes of pytest one trains for all."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "results-of-ranks"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            small_dataset(folder, corpus[:5000])
            (folder / "other.txt").write_text(corpus[5000:9000], encoding="utf-8", newline="")
            tokenize(folder / "other.txt", folder / "other", tokenizer=folder / "data", unknown="skip")
            train(folder, 1, CASES_OF[2])
            for size, cases in CASES_OF.items():
                train(folder, size, cases)
            (folder / "done").touch()
    return folder


def result(folder: Path, case: str, size: int, rank: int = 0, parallel: str = "") -> dict[str, Tensor]:
    tensors = load_file(folder / f"{case}-{size}-{rank}{parallel}.safetensors")
    return {name: tensor for name, tensor in tensors.items() if name not in MEMORY}


def largest_difference(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """The largest difference of any two numbers; numbers that are NaN or infinite in one must be so in the other."""
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name].isfinite(), other[name].isfinite()), name
    return max((one[name].double() - other[name].double()).nan_to_num(0, 0, 0).abs().max().item() for name in one)


@pytest.mark.parametrize(("size", "case"), [pair for pair in PAIRS if pair[1] != "dropout"])
def test_several_ranks_equal_one(results: Path, case: str, size: int) -> None:
    assert largest_difference(result(results, case, size), result(results, case, 1)) < 1e-12


@pytest.mark.parametrize(("size", "case"), PAIRS)
def test_all_ranks_have_the_same_bits(results: Path, case: str, size: int) -> None:
    first = result(results, case, size)
    for rank in range(1, size):
        other = result(results, case, size, rank)
        assert all(torch.equal(first[name].nan_to_num(), other[name].nan_to_num()) for name in first)


@pytest.mark.campaign
def test_every_case_on_four(results: Path, tmp_path: Path) -> None:
    results = Path(shutil.copytree(results, tmp_path / "copy"))
    train(results, 4, EXACT)
    for case in EXACT:
        test_several_ranks_equal_one(results, case, 4)
        test_all_ranks_have_the_same_bits(results, case, 4)


def test_updates_were_skipped(results: Path) -> None:
    """Else the comparisons above would prove nothing about them."""
    assert result(results, "nan", 4)["optimizer.skips"] == 1
    assert result(results, "spikes", 2)["optimizer.spikes.skipped"] > 0


def test_a_mixture_is_something_else(results: Path) -> None:
    """Else comparing its ranks would say nothing about it."""
    alone, mixed = (result(results, case, 1) for case in ("adamw", "mixture"))
    assert largest_difference(alone, mixed) > 1e-3


def test_dropout_differs_by_rank_and_learns(results: Path) -> None:
    """It cannot equal that of one rank, whose masks come from one stream of random numbers."""
    losses = result(results, "dropout", 2)["losses"]
    assert not torch.equal(losses, result(results, "dropout", 1)["losses"])
    assert losses[-1] < losses[0]


def test_control_ranks_that_keep_their_own_gradients(results: Path, tmp_path: Path) -> None:
    results = Path(shutil.copytree(results, tmp_path / "copy"))
    train(results, 2, ["adamw"], BROKEN="sums")
    broken = result(results, "adamw", 2)
    assert largest_difference(broken, result(results, "adamw", 1)) > 1e-6
    assert not torch.equal(broken["wte.weight"], result(results, "adamw", 2, 1)["wte.weight"])
