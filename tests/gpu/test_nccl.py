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
TRAIN = ["train", "book.txt", "--preset", "nano", "--max-steps", "20", "--dropout", "0", "--dtype", "float32"]


def test_the_collectives_of_an_update(device: torch.device) -> None:
    """On one process: the group of a GPU is NCCL's."""
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "RANK": "0", "WORLD_SIZE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", COLLECTIVES, device.type],
        env=os.environ | variables | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert ("nccl" if device.type == "cuda" else "gloo") in done.stdout


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
