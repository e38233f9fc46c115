"""Estimated peak memory against measured memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gptcli import machine
from gptcli.config import ModelConfig
from gptcli.config.presets import preset
from gptcli.machine import free_memory, process_memory, total_memory
from gptcli.model import attention, memory
from gptcli.model.cache import KVCache
from gptcli.model.cost import parameter_count
from gptcli.model.experts import Experts
from gptcli.model.gpt import GPT
from gptcli.model.memory import largest_micro_batch, training_memory
from gptcli.model.sampling_memory import sampling_memory
from tests.conftest import ROOT
from tests.model.variants import VARIANTS, variant

CPU = torch.device("cpu")
CLOSE = 0.25
SMALL = ModelConfig(vocab_size=65, n_layer=3, n_head=4, n_embd=128, block_size=64)

MEASURED_TRAINING = """
import json, resource, sys, torch
from functools import partial
from pathlib import Path
from gptcli.config import build_config
from gptcli.config.presets import preset
from gptcli.model.gpt import GPT
from gptcli.training.gradients import accumulate_gradients
from gptcli.machine import process_memory
from gptcli.model.memory import training_memory
from gptcli.training.optimizer import Optimizer
from gptcli.training import runtime

runtime.prepare(torch.device("cpu"), deterministic=False)
name, micro, steps, dtype = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), getattr(torch, sys.argv[4])
checkpointing = sys.argv[5] == "True"
config = build_config(name, vocab_size=65)
process = process_memory("cpu", trains=True)
estimate = training_memory(config.model, micro, dtype, "cpu", process, activation_checkpointing=checkpointing)
model = GPT(config.model)
optimizer = Optimizer(model, config.optim, dtype)
for _ in range(steps):
    ids = torch.randint(65, (config.train.batch_size, config.model.block_size + 1))
    hidden = partial(model.hidden, activation_checkpointing=checkpointing)
    loss = accumulate_gradients(
        model, hidden, ids, micro_batch_size=micro, dtype=dtype, backward=optimizer.backward
    )
    optimizer.step(1e-3, loss)
status = Path("/proc/self/status")
if status.exists():
    peak = next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")) * 1024
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"estimate": estimate.total, "peak": peak}))
"""
"""Training steps in a process of their own, since a peak is that of a whole process."""


@pytest.mark.parametrize(
    ("name", "micro_batch_size", "steps", "checkpointing"),
    [("nano", 16, 5, False), ("tiny", 16, 5, False), ("small", 16, 1, False), ("mini", 8, 2, True)],
)
def test_training_is_within_a_quarter_of_the_measured_peak(
    name: str, micro_batch_size: int, steps: int, checkpointing: bool
) -> None:
    arguments = [name, str(micro_batch_size), str(steps), "float32", str(checkpointing)]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED_TRAINING, *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    measured = json.loads(done.stdout)
    assert abs(measured["estimate"] / measured["peak"] - 1) <= CLOSE, measured


def check_activations(name: str, dtype: torch.dtype, dropout: float, device_type: str = "cpu") -> None:
    shape = {"vocab_size": 65, "n_layer": 3, "n_head": 4, "n_embd": 128, "block_size": 64, "dropout": dropout}
    config = variant(name, **shape)
    estimate = training_memory(config, 4, dtype, device_type, 0)
    halves = 2 if config.mlp == "swiglu" else 1
    inside_mlp = 4 * 64 * config.mlp_width * halves * dtype.itemsize  # the last term, made only in the backward pass
    expected = estimate.activations - inside_mlp + estimate.casts
    assert bytes_kept_for_backward(config, 4, dtype) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", VARIANTS)
def test_activations_are_what_autograd_keeps(name: str, dtype: torch.dtype, dropout: float) -> None:
    check_activations(name, dtype, dropout)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["grouped", "one kv head", "llama", "qwen3", "qwen3 windows"])
def test_expanded_heads_are_counted_on_cuda(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU whose kernels take no grouped heads; the forms of attention are those of a CPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(attention, "_takes_groups", lambda *_given, **_options: False)
    check_activations(name, dtype, 0.0, "cuda")


def test_control_expanded_heads_that_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_takes_groups", lambda *_given, **_options: False)
    monkeypatch.setattr(memory, "_expands_heads", lambda *_given: False)
    with pytest.raises(AssertionError):
        check_activations("grouped", torch.float32, 0.0, "cuda")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["experts", "all experts", "mixtral"])
def test_experts_at_once_are_counted_on_cuda(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU without a kernel for grouped products; the operations are those of a CPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(attention, "_takes_groups", lambda *_given, **_options: False)
    monkeypatch.setattr(Experts, "mix_one_by_one", Experts.mix_at_once)
    check_activations(name, dtype, 0.0, "cuda")


def test_expanded_heads_depend_on_the_kernels_of_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    config = variant("qwen3")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(memory, "cuda_takes_groups", lambda *case, **_options: case[1] is torch.float16)
    assert [memory._expands_heads(config, item) for item in (2, 4)] == [False, True]


def test_control_normed_inputs_that_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = memory._attention
    without = {"qk_norm": False}
    monkeypatch.setattr(memory, "_attention", lambda c, *rest: plain(c.model_copy(update=without), *rest))
    with pytest.raises(AssertionError):
        check_activations("qwen3", torch.float32, 0.0)


def test_activation_checkpointing_needs_less() -> None:
    """Of all blocks but one only the input is kept."""
    config = variant("qwen3", n_layer=8)
    kept, recomputed = (
        training_memory(config, 4, torch.float32, "cpu", activation_checkpointing=setting) for setting in (False, True)
    )
    one_less = variant("qwen3", n_layer=7)
    block = kept.activations - training_memory(one_less, 4, torch.float32, "cpu", 0).activations
    inputs = 8 * 4 * config.block_size * config.n_embd * 4
    assert kept.activations - recomputed.activations == 7 * block - inputs


def bytes_kept_for_backward(config: ModelConfig, batch_size: int, dtype: torch.dtype) -> int:
    """Bytes of all storages that autograd saves in a forward pass, parameters left out, each storage once."""
    model = GPT(config)
    parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage
        return tensor

    ids = torch.zeros(batch_size, config.block_size, dtype=torch.long)
    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32),
    ):
        logits = model(ids)  # its output is not kept; its input and the head's cast weights are
    assert logits.shape == (batch_size, config.block_size, config.vocab_size)
    return sum(storage.nbytes() for storage in kept.values())


def test_sampling_counts_weights_and_cache_exactly() -> None:
    cache = KVCache(SMALL, 3, device=CPU, dtype=torch.float32)
    estimate = sampling_memory(SMALL, 3, 10, torch.float32, "cpu", 0)
    assert estimate.cache == sum(part.nbytes for part in cache.keys + cache.values)
    assert estimate.parameters == 4 * parameter_count(SMALL)
    assert sampling_memory(SMALL, 3, 10, torch.bfloat16, "cuda", 0).parameters == 2 * parameter_count(SMALL)


def test_sampling_counts_the_copies_of_experts_on_cuda() -> None:
    """A prefill copies the weights of the expert of each block."""
    config = variant("mixtral", n_embd=128, n_expert=8)
    cpu, cuda = (sampling_memory(config, 1, 12, torch.float32, kind).activations for kind in ("cpu", "cuda"))
    blocks = 24  # 12 tokens with 2 experts each, one row in a block
    assert cuda - cpu >= blocks * 3 * 128 * config.mlp_width * 4


def test_process_counts_in_the_peak_but_not_in_what_is_needed() -> None:
    for estimate in (
        training_memory(SMALL, 4, torch.float32, "cpu", 10**9),
        sampling_memory(SMALL, 4, 8, torch.float32, "cpu", 10**9),
    ):
        assert estimate.total - estimate.needed == estimate.process == 10**9
    assert process_memory("cpu", trains=True) > 50 << 20
    assert process_memory("cuda", trains=True) == 0


def test_large_vocabulary_is_counted_by_the_chunk() -> None:
    def loss(batch_size: int) -> int:
        config = ModelConfig(vocab_size=50_257, **preset("gpt2")["model"])
        return training_memory(config, batch_size, torch.bfloat16, "cuda", 0).loss

    whole_logits = 8 * 1024 * 50_257 * 4
    assert loss(8) < whole_logits
    assert loss(16) - loss(8) == 8 * 1024 * 768 * 2  # only the hidden states' gradient grows


def test_largest_micro_batch() -> None:
    def needed(size: int) -> int:
        return training_memory(SMALL, size, torch.float32, "cpu", 0).needed

    def largest(free: int) -> int | None:
        return largest_micro_batch(SMALL, 12, free, torch.float32, "cpu")

    assert largest(needed(12)) == 12
    assert largest(needed(12) - 1) == 6
    assert largest(needed(5)) == 4  # a divisor of the batch
    assert largest(needed(1)) == 1
    assert largest(needed(1) - 1) is None


def test_no_activation_reaches_the_size_that_is_mapped_anew() -> None:
    """On a CPU, however much memory there is: a block of exactly that size is mapped already."""
    config = ModelConfig(vocab_size=65, n_layer=1, n_head=4, n_embd=512, block_size=1024)  # 8 MiB for each sequence
    assert largest_micro_batch(config, 8, 10**12, torch.float32, "cpu") == 2
    assert largest_micro_batch(config, 8, 10**12, torch.float32, "cuda") == 8


def test_free_memory_is_some_of_the_memory() -> None:
    assert 0 < free_memory(CPU) <= total_memory(CPU)


def test_free_memory_obeys_control_groups(tmp_path: Path) -> None:
    """Both versions; a group's parent counts too, and cached file pages are free."""
    membership = tmp_path / "cgroup"
    membership.write_text("4:cpu,memory:/a/b\n1:name=systemd:/x\n0::/c\n")
    for folder, files in {
        "memory/a": {"memory.limit_in_bytes": "5000", "memory.usage_in_bytes": "4000", "memory.stat": "x 1"},
        "memory/a/b": {
            "memory.limit_in_bytes": "3000",
            "memory.usage_in_bytes": "2500",
            "memory.stat": "total_inactive_file 100",
        },
        "c": {"memory.max": "max", "memory.current": "10", "memory.stat": "inactive_file 7"},
    }.items():
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (tmp_path / folder / name).write_text(text + "\n")
    assert machine._cgroup_room(membership, tmp_path) == [600, 1000]


def test_free_memory_of_macos() -> None:
    text = (
        "Mach Virtual Memory Statistics: (page size of 16384 bytes)\n"
        "Pages free:                                3.\nPages active:                              9.\n"
        "Pages inactive:                            2.\nPages purgeable:                           1.\n"
    )
    assert machine._mac_free_memory(text) == 6 * 16384


def test_every_preset_needs_more_than_its_weights_and_moments() -> None:
    for name in ("nano", "mini", "gpt2-xl"):
        config = ModelConfig(vocab_size=65, **preset(name)["model"])
        for device_type in memory.KERNELS:
            estimate = training_memory(config, 1, torch.float32, device_type, 0)
            assert estimate.total > 16 * parameter_count(config)
