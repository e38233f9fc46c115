"""Ranks with sharded weights train like one process, and each holds its part of the weights and of the optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch import Tensor

from gptcli.dataset.preparing import tokenize
from tests.ranks.test_trainer_on_ranks import largest_difference, result, train
from tests.ranks.trained import CASES, FIRST_SCALE, HALF
from tests.runs.small_runs import small_dataset

EXACT = [case for case in CASES if case not in ("dropout", *HALF)]
QUICK = {2: ["nan", "spikes", "uneven", "float16"]}
"""The cases of `make test` on two ranks, which have Muon and AdamW, experts, micro-batches, checkpointing and
skipped updates among them; the campaign has all, also on four."""
FLOAT64 = 8
FLOAT32_ROUNDING = 1e-6


@pytest.fixture(scope="module")
def folder(corpus: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with datasets."""
    folder = tmp_path_factory.mktemp("sharded")
    small_dataset(folder, corpus[:5000])
    (folder / "other.txt").write_text(corpus[5000:9000], encoding="utf-8", newline="")
    tokenize(folder / "other.txt", folder / "other", tokenizer=folder / "data", unknown="skip")
    return folder


def sharded(folder: Path, case: str, size: int) -> dict[str, Tensor]:
    return result(folder, case, size, parallel="fsdp")


def check_equality(folder: Path, cases: Mapping[int, list[str]]) -> None:
    """Fails unless ranks with sharded weights end as one rank does, up to rounding."""
    train(folder, 1, sorted(set().union(*cases.values())))
    for size, some in cases.items():
        train(folder, size, some, PARALLEL="fsdp")
        for case in some:
            most = FLOAT32_ROUNDING if case in HALF else 1e-12
            assert largest_difference(sharded(folder, case, size), result(folder, case, 1)) < most, (size, case)


def check_parts(folder: Path, case: str) -> None:
    """Fails unless each of two ranks holds half of weights and state, exactly, and hardly any other tensor."""
    whole = result(folder, case, 1)
    numbers = sum(whole[name].numel() for name in whole if name not in ("losses", "norms", "val"))
    scalars = sum(name.startswith("optimizer.") and not whole[name].dim() for name in whole)  # which each rank has
    parts = [load_file(folder / f"{case}-2-{rank}fsdp.safetensors") for rank in range(2)]
    assert parts[0]["own"] + parts[1]["own"] == numbers + scalars
    odd_rows = 3 * whole["wte.weight"].shape[1]  # of the vocabulary, with AdamW's state
    assert abs(parts[0]["own"] - parts[1]["own"]) <= odd_rows
    for part in parts:
        assert 0.5 < part["live"] / (FLOAT64 * numbers) < 0.6


def test_sharded_ranks_equal_one_and_hold_their_parts(folder: Path) -> None:
    """In one test, so that pytest trains once where it has several processes."""
    check_equality(folder, QUICK)
    assert sharded(folder, "nan", 2)["optimizer.skips"] == 1
    assert sharded(folder, "spikes", 2)["optimizer.spikes.skipped"] > 0
    assert 0 < sharded(folder, "float16", 2)["optimizer.skips"] < 20
    assert sharded(folder, "float16", 2)["scale"] < FIRST_SCALE
    check_parts(folder, "nan")
    # The control: ranks that clip by the norm of their own rows.
    train(folder, 2, ["nan"], PARALLEL="fsdp", BROKEN="norm")
    assert largest_difference(sharded(folder, "nan", 2), result(folder, "nan", 1)) > 1e-6


@pytest.mark.campaign
def test_every_case(folder: Path) -> None:
    check_equality(folder, {2: [*EXACT, *HALF], 4: EXACT})
    for broken in ("norm", "mean"):
        train(folder, 2, ["muon"], PARALLEL="fsdp", BROKEN=broken)
        assert largest_difference(sharded(folder, "muon", 2), result(folder, "muon", 1)) > 1e-6, broken
    train(folder, 2, ["muon"])  # replicated: each rank holds everything
    (folder / "muon-2-0.safetensors").rename(folder / "muon-2-0fsdp.safetensors")
    with pytest.raises(AssertionError):
        check_parts(folder, "muon")
