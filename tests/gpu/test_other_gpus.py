"""GPUs that most machines do not have: a second one, one without bfloat16, one that torch has no kernels for.

Each check is skipped where its GPU is missing, and says which one it needs.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from gptcli.runs.pace import measure_pace
from gptcli.training.state import random_states
from tests.gpu.conftest import GpuCommandLine
from tests.gpu.small_trainer import small_trainer
from tests.gpu.test_memory import measured

TINY = ("--n-layer", "1", "--n-head", "2", "--n-embd", "16", "--block-size", "16", "--max-steps", "5", "--quiet")


@pytest.mark.parametrize("name", ["cpu", pytest.param("cuda:1", marks=pytest.mark.gpu)])
def test_a_run_takes_no_memory_of_another_gpu(name: str, tmp_path: Path, corpus_file: Path) -> None:
    if name != "cpu" and torch.cuda.device_count() < 2:
        pytest.skip("needs a machine with two CUDA GPUs")
    found = measured("tests.gpu.second_gpu", name, str(corpus_file), str(tmp_path))
    assert found == {"tokens": 100, "elsewhere": 0, "where": [name]}


def test_the_dtype_of_the_gpu(device: torch.device, cli: GpuCommandLine, tmp_path: Path, corpus: str) -> None:
    """float16 without bfloat16 units, and a refusal of bfloat16; a CPU trains such a narrow model in float32."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0):
        pytest.skip("needs a GPU without bfloat16 units, such as a T4 or V100")
    (tmp_path / "book.txt").write_text(corpus[:8000], encoding="utf-8")
    command = ("train", "book.txt", "-o", "run", "--preset", "nano", *TINY, "--device", str(device))
    done = cli(*command)
    assert done.code == 0, done.stderr
    found = re.search(r'^dtype = "(\w+)"', (tmp_path / "run/gptcli.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert found
    assert found[1] == {"cpu": "float32", "cuda": "float16"}[device.type]
    if device.type == "cuda":
        refused = cli(*command, "--resume", "never", "--force", "--dtype", "bfloat16")
        assert refused.code == 1
        assert "--dtype float16" in refused.stderr


@pytest.mark.gpu
def test_a_gpu_without_kernels(cli: GpuCommandLine, tmp_path: Path, corpus: str) -> None:
    if not torch.cuda.is_available() or has_kernels(torch.cuda.get_device_capability(), torch.cuda.get_arch_list()):
        pytest.skip("needs a CUDA GPU that this PyTorch has no kernels for; tests/model/test_devices.py imitates one")
    (tmp_path / "book.txt").write_text(corpus[:8000], encoding="utf-8")
    command = ("train", "book.txt", "-o", "run", "--preset", "nano", *TINY, "--device")
    refused = cli(*command, "cuda")
    assert refused.code == 1
    assert "compute capability" in refused.stderr
    assert cli(*command, "auto").code == 0


def has_kernels(capability: tuple[int, int], architectures: list[str]) -> bool:
    """Whether a build of torch has machine code for a GPU, or code that its driver translates."""
    for name in architectures:
        kind, _, number = name.partition("_")
        version = int(re.sub(r"\D", "", number))
        if kind == "compute" and version <= 10 * capability[0] + capability[1]:
            return True
        if kind == "sm" and version // 10 == capability[0] and version % 10 <= capability[1]:
            return True
    return False


@pytest.mark.parametrize(
    ("capability", "expected"), [((9, 0), True), ((8, 9), True), ((7, 0), False), ((12, 0), True), ((3, 7), False)]
)
def test_kernels_by_architecture(capability: tuple[int, int], expected: bool) -> None:
    assert has_kernels(capability, ["sm_75", "sm_80", "sm_90a", "sm_100", "compute_120"]) == expected


def test_measuring_the_pace_leaves_no_trace(device: torch.device) -> None:
    """Random states and memory are as they were before the measurement."""
    trainer = small_trainer(device, model__dropout=0.1)
    config, dataset = trainer.config, trainer.dataset
    before, taken = random_states(device), allocated(device)
    assert measure_pace(config, dataset, device).step > 0
    after = random_states(device)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert allocated(device) == taken


def allocated(device: torch.device) -> int:
    """Bytes of tensors on a GPU."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
