"""Out of memory during training: the error names a micro-batch size that fits."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gptcli.dataset.folder import Dataset
from gptcli.errors import OutOfMemoryError
from gptcli.model.gpt import GPT
from gptcli.runs import completion, pace
from gptcli.training.optimizer import Optimizer
from gptcli.training.out_of_memory import room_for_gradients
from tests.runs.small_runs import plan, run, series


def allow(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Let the model run out of memory with more than `most` sequences while it trains."""
    plain = GPT.hidden

    def hidden(self: GPT, ids: Tensor, *others: Any) -> Tensor:
        if self.training and len(ids) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain(self, ids, *others)

    monkeypatch.setattr(GPT, "hidden", hidden)


@pytest.mark.parametrize(("most", "named"), [(3, 2), (2, 2), (1, 1)])
def test_the_size_that_fits_is_named(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, named: int
) -> None:
    run(dataset, tmp_path / "whole", {"model.dropout": 0.0})
    allow(monkeypatch, most)
    with pytest.raises(OutOfMemoryError, match=r"out of memory.* 4 ") as caught:
        run(dataset, tmp_path / "run", {"model.dropout": 0.0})
    assert caught.value.exit_code == 1
    assert f"`train.micro_batch_size = {named}`" in caught.value.hint
    run(dataset, tmp_path / "run", {"model.dropout": 0.0, "train.micro_batch_size": named})
    assert series(tmp_path / "run", "train/loss") == pytest.approx(series(tmp_path / "whole", "train/loss"), abs=1e-4)


def test_a_pace_that_cannot_be_measured_names_the_size_too(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "measure_pace", pace.measure_pace)
    allow(monkeypatch, 2)
    with pytest.raises(OutOfMemoryError, match=r"out of memory.* 4 ") as caught:
        plan(dataset, tmp_path / "run", {"train.max_steps": None, "train.max_time": 60.0})
    assert "`train.micro_batch_size = 2`" in caught.value.hint


def test_nothing_fits(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, 0)
    with pytest.raises(OutOfMemoryError) as caught:
        run(dataset, tmp_path / "run")
    assert "micro_batch_size" not in caught.value.hint


def test_the_failed_pass_is_freed_before_others_are_tried(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the exception's frames would keep its tensors, and the size in the hint would be too small."""
    held: list[weakref.ref[Tensor]] = []
    plain = GPT.hidden

    def hidden(self: GPT, ids: Tensor, *others: Any) -> Tensor:
        if len(ids) == 4:
            activations = torch.zeros(8)
            held.append(weakref.ref(activations))
            raise torch.OutOfMemoryError
        gc.collect()
        assert held[0]() is None
        return plain(self, ids, *others)

    monkeypatch.setattr(GPT, "hidden", hidden)
    with pytest.raises(OutOfMemoryError, match=" 4 "):
        run(dataset, tmp_path / "run")


def test_the_optimizer_counts(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AdamW allocates its state at the first update: a size that fits before need not fit after it."""
    allow(monkeypatch, 2)

    def no_room(self: Optimizer) -> list[Tensor]:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(Optimizer, "state_to_come", no_room)
    with pytest.raises(OutOfMemoryError) as caught:
        run(dataset, tmp_path / "run")
    assert "micro_batch_size" not in caught.value.hint


def test_no_room_for_the_update(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(self: torch.optim.AdamW) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(torch.optim.AdamW, "step", no_room)
    with pytest.raises(OutOfMemoryError, match="optimizer"):
        run(dataset, tmp_path / "run")


def test_sizes_are_tried_as_the_run_trains_but_never_compiled(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each size would be compiled anew, and activation checkpointing decides what fits."""
    tried: list[tuple[int, bool]] = []
    compiled: list[int] = []
    plain = GPT.hidden

    def hidden(self: GPT, ids: Tensor, *others: Any, activation_checkpointing: bool = False) -> Tensor:
        if len(ids) < 4:
            tried.append((len(ids), activation_checkpointing))
        if not activation_checkpointing and len(ids) > 1:
            raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
        return plain(self, ids, *others, activation_checkpointing=activation_checkpointing)

    def full(hidden: Any, dynamic: bool) -> Any:
        def compiled_hidden(ids: Tensor, *others: Any) -> Tensor:
            compiled.append(len(ids))
            raise torch.AcceleratorError("CUDA error: out of memory")

        return compiled_hidden

    monkeypatch.setattr(GPT, "hidden", hidden)
    monkeypatch.setattr(torch, "compile", full)
    with pytest.raises(OutOfMemoryError) as caught:
        run(dataset, tmp_path / "run", {"train.compile": "on", "train.activation_checkpointing": True})
    assert "`train.micro_batch_size = 2`" in caught.value.hint
    assert tried == [(2, True)]
    assert compiled == [4]


def test_other_errors_are_not_taken_for_it(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: GPT, *others: Any) -> Tensor:
        raise torch.AcceleratorError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(GPT, "hidden", broken)
    with pytest.raises(torch.AcceleratorError):
        run(dataset, tmp_path / "run")


def test_a_rank_that_cannot_try_alone_names_the_half() -> None:
    """Nothing is tried: there is no model here that could be."""
    unused: Any = None
    options = {"micro_batch_size": 4, "dtype": torch.float32, "searches": False}
    with (
        pytest.raises(OutOfMemoryError) as caught,
        room_for_gradients(torch.nn.Linear(1, 1), unused, unused, torch.zeros(4, 2), **options),  # type: ignore[arg-type]
    ):
        raise torch.OutOfMemoryError("CUDA out of memory")
    assert "`train.micro_batch_size = 2`" in caught.value.hint
