"""Trains small models on one of several ranks, and stores the result: `python -m tests.ranks.trained FOLDER CASE...`

Started once for each rank, with the variables of torchrun; without them, alone. Where the variable PARALLEL is `fsdp`,
the weights are sharded.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.distributed.fsdp import FSDPModule

from gptcli.dataset.folder import Dataset, open_dataset
from gptcli.dataset.mixture import mixture
from gptcli.training import ranks as ranks_module
from gptcli.training import sharding, spikes
from gptcli.training import trainer as trainer_module
from gptcli.training.ranks import ALONE, Ranks
from gptcli.training.trainer import Trainer
from tests.runs.small_runs import CPU, plan

STEPS = 20
BAD_STEP = 7
"""The step whose gradient becomes NaN on the rank that has the first sequence, in the case of that name."""
LARGER: dict[str, Any] = {
    "model.n_layer": 2, "model.n_embd": 32, "model.dropout": 0.0, "train.batch_size": 6, "train.micro_batch_size": 6,
    "train.max_steps": STEPS, "train.compile": "off",
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "adamw": {},
    "muon": {"optim.optimizer": "muon"},
    "micro-batches": {"optim.optimizer": "muon", "train.micro_batch_size": 1},
    "experts": {"model.n_expert": 4, "train.micro_batch_size": 2},
    "checkpointing": {"train.activation_checkpointing": True},
    "spikes": {"optim.skip_spikes": 2.0},
    "nan": {"optim.optimizer": "muon"},
    "dropout": {"model.dropout": 0.2},
    "mixture": {"train.micro_batch_size": 2},
    "uneven": {
        "optim.optimizer": "muon", "model.n_expert": 3,
        "train.batch_size": 5, "train.micro_batch_size": 1, "train.activation_checkpointing": True,
    },
    "bfloat16": {"train.dtype": "bfloat16", "train.micro_batch_size": 3, "optim.grad_clip": 0.0},
    "float16": {"train.dtype": "float16", "train.micro_batch_size": 3, "optim.grad_clip": 0.0},
}  # fmt: skip
"""In `uneven` ranks have different numbers of micro-batches, and of four ranks one has no row of the routers."""
HALF = ("bfloat16", "float16")
"""Cases of two micro-batches in 16 bits, of which two ranks take one each. Their gradients are sums of two numbers,
which are the same in any order, so that nothing but the validation loss rounds differently."""
FIRST_SCALE = 2.0**30
"""Loss scale of float16 at first, with which gradients overflow."""


def trained(case: str, dataset: Dataset, folder: Path, ranks: Ranks) -> dict[str, torch.Tensor]:
    """Weights, state of the optimizer, and losses after some steps: in float64, or in 16 bits with float32."""
    torch.set_default_dtype(torch.float32 if case in HALF else torch.float64)
    sharded = {"train.parallel": os.environ.get("PARALLEL", "replicated")}
    config = plan(dataset, folder / f"{case}-{ranks.size}-{ranks.rank}", LARGER | CASES[case] | sharded).config
    trainer = Trainer(config, dataset, CPU, ranks)
    if scaler := trainer.optimizer.scaler_state():
        trainer.optimizer.load_scaler_state(scaler | {"scale": FIRST_SCALE})
    losses, norms = [], []
    for step in range(STEPS):
        is_bad = case == "nan" and step == BAD_STEP and ranks.rank == 0
        hook = trainer.model.ln_f.register_forward_hook(_nan) if is_bad else None
        update = trainer.step()
        if hook:
            hook.remove()
        assert update, "no stop is asked for"
        losses.append(update.loss)
        norms.append(update.grad_norm)
    live = live_bytes()
    state = trainer.state()
    figures = {"losses": torch.stack(losses), "norms": torch.stack(norms)}
    if scaler:
        figures["scale"] = torch.tensor(trainer.optimizer.scaler_state()["scale"])
    if case != "nan":  # after which an evaluation is refused
        figures["val"] = torch.tensor(trainer.evaluate())
    if ranks.size > 1:
        own = [*(trainer.shards.parameters if trainer.shards else state.model).values()]
        own += trainer.optimizer.tensors().values()
        figures["own"] = torch.tensor(sum(tensor.numel() for tensor in own))
        figures["live"] = torch.tensor(live)
    return {**state.model, **{f"optimizer.{name}": tensor for name, tensor in state.optimizer.items()}, **figures}


def live_bytes() -> int:
    """Bytes of all tensors of this process."""
    gc.collect()
    found = [thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)]
    storages = [getattr(tensor, "_local_tensor", tensor).untyped_storage() for tensor in found]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def _nan(_module: object, _inputs: object, output: torch.Tensor) -> torch.Tensor:
    return output * float("nan")


def main(folder: Path, cases: list[str]) -> None:
    torch.set_num_threads(1)
    spikes.WINDOW = 3
    trainer_module.torch_dtype = lambda name: torch.float64 if name == "float32" else getattr(torch, name)
    ranks = ALONE
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        ranks = Ranks(dist.get_rank(), dist.get_world_size())
    if os.environ.get("BROKEN") == "sums":  # the control: each rank keeps its own gradients
        ranks_module.GradientSums.finish = lambda self: None  # type: ignore[method-assign]
        ranks_module.GradientSums._take = lambda self, parameter: None  # type: ignore[method-assign]
    if os.environ.get("BROKEN") == "norm":  # the control: each rank clips by the norm of its own rows
        sharding.Shards.norm = lambda self, own: own  # type: ignore[method-assign]
    if os.environ.get("BROKEN") == "mean":  # the control: gradients are the means of the ranks instead of their sums
        FSDPModule.set_gradient_divide_factor = lambda self, factor: None  # type: ignore[method-assign]
    dataset = open_dataset(folder / "data")
    mixed = mixture([dataset, open_dataset(folder / "other")], [0.7, 0.3])
    for case in cases:
        tensors = trained(case, mixed if case == "mixture" else dataset, folder, ranks)
        save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()},
                  folder / f"{case}-{ranks.size}-{ranks.rank}{os.environ.get('PARALLEL', '')}.safetensors")  # fmt: skip
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
