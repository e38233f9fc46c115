"""Several processes: torch's collectives as `Ranks` uses them, and the command on two GPUs against one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT
from tests.gpu.conftest import LONG_ON_A_CPU
from tests.ranks.test_trainer_on_ranks import free_port

COLLECTIVES = """
import sys, torch, torch.distributed as dist
from torch import nn
from gptcli.runs.team import Team
from gptcli.training.ranks import Ranks, _Bucket
device = torch.device(sys.argv[1])
Team(Ranks(0, 1)).meet()
parameter = nn.Parameter(torch.zeros(1000, device=device))
parameter.grad = torch.arange(1000.0, device=device)
bucket = _Bucket([parameter])
bucket.begin()
bucket.finish()
assert torch.equal(parameter.grad.cpu(), torch.arange(1000.0))
parts = [torch.empty(4, device=device)]
dist.all_gather(parts, torch.ones(4, device=device))
assert parts[0].sum().item() == 4
state = torch.arange(16, dtype=torch.uint8, device=device)
dist.broadcast(state, 0)
assert state[15].item() == 15
print(dist.get_backend_config() if hasattr(dist, "get_backend_config") else dist.get_backend())
dist.destroy_process_group()
"""
SHARDED = """
import sys, torch, torch.distributed as dist
from unittest import mock
from gptcli.runs.team import Team
from gptcli.training.ranks import Ranks
from gptcli.training.sharding import Shards
from tests.gpu.small_trainer import small_trainer, step
device = torch.device(sys.argv[1])
Team(Ranks(0, 1)).meet()
shards_of = "gptcli.training.trainer.shards_of"
for settings in ({}, {"optim__optimizer": "muon", "train__micro_batch_size": 2, "train__compile": sys.argv[2]}):
    figures, weights = [], []
    for is_sharded in (False, True):
        make = lambda model, parallel, device, ranks: Shards(model, device, Ranks(0, 1)) if is_sharded else None
        with mock.patch(shards_of, make):
            trainer = small_trainer(device, model__dropout=0.0, **settings)
        trainer.compile()
        before = {name: tensor.cpu().clone() for name, tensor in trainer.weights().items()}
        updates = [step(trainer) for _ in range(5)]
        figures.append([*(float(update.loss) for update in updates), trainer.evaluate()])
        state = trainer.state()
        assert all(tensor.device.type == "cpu" for tensor in state.model.values()) or not is_sharded
        trainer.load_state(state)
        figures[-1].append(float(step(trainer).loss))
        weights.append({name: tensor.cpu() - before[name] for name, tensor in trainer.weights().items()})
    differences = [abs(one - other) for one, other in zip(*figures, strict=True)]
    print(max(differences), *figures[1])
    assert max(differences) < 0.01, figures
    matrices = {name: change for name, change in weights[0].items() if change.dim() > 1}
    for name, change in matrices.items():
        assert change.abs().max() > 0
        assert (weights[1][name] - change).abs().mean() < 0.2 * change.abs().mean(), name
dist.destroy_process_group()
"""
TRAIN = ["train", "book.txt", "--preset", "nano", "--max-steps", "20", "--dropout", "0", "--dtype", "float32"]


def test_the_collectives_of_an_update(device: torch.device) -> None:
    """On one process: the group of a GPU is NCCL's."""
    done = on_one_rank(COLLECTIVES, device.type)
    assert done.returncode == 0, done.stderr
    assert ("nccl" if device.type == "cuda" else "gloo") in done.stdout


@LONG_ON_A_CPU
def test_sharded_weights_on_one_rank(device: torch.device) -> None:
    """The losses are those without shards; a second trainer is compiled where there is a GPU."""
    done = on_one_rank(SHARDED, device.type, "on" if device.type == "cuda" else "off")
    assert done.returncode == 0, done.stderr


def on_one_rank(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "RANK": "0", "WORLD_SIZE": "1"}
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=os.environ | variables | {"PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@LONG_ON_A_CPU
def test_two_processes_train_like_one(device: torch.device, tmp_path: Path, corpus: str) -> None:
    if device.type == "cuda" and torch.cuda.device_count() < 2:
        pytest.skip("this machine has one GPU")
    (tmp_path / "book.txt").write_text(corpus, encoding="utf-8")
    losses = []
    for devices in ("1", "2"):
        run = ["-o", f"runs/{devices}", "--devices", devices, "--device", device.type, "--json", "--compile", "off"]
        done = subprocess.run(
            [sys.executable, "-m", "gptcli", *TRAIN, *run],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        losses.append(json.loads(done.stdout)["val_loss"])
    assert losses[0] == pytest.approx(losses[1], abs=1e-3)
    assert losses[0] < 4
