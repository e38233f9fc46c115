"""What a model costs, before it costs: any shape, subtotals, recomputation, and attention by length."""

from __future__ import annotations

import json
import re
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner

from gptcli.cli.app import app
from gptcli.errors import DeviceError, UsageError
from gptcli.model import memory
from gptcli.model.cost import (
    crossover,
    forward_flops,
    forward_flops_by_part,
    parameter_count,
    parameters_by_part,
    recomputed_flops,
)
from gptcli.model.gpt import GPT
from gptcli.model.memory import stores_scores
from gptcli.report.inspection import inspect
from gptcli.report.lengths import LENGTHS
from tests.conftest import Result
from tests.model.variants import VARIANTS, variant


def command(folder: Path, *arguments: str) -> Result:
    with chdir(folder):
        done = CliRunner().invoke(app, [*arguments])
    return Result(done.exit_code, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        *(("gpt3-small", 125), ("gpt3-medium", 356), ("gpt3-large", 760), ("gpt3-xl", 1_316)),
        *(("gpt3-2.7b", 2_652), ("gpt3-6.7b", 6_658), ("gpt3-13b", 12_936), ("gpt3-175b", 174_604)),
    ],
)
def test_published_sizes(name: str, millions: int) -> None:
    report = inspect(preset=name)
    assert round(report.parameters.total / 1e6) == millions
    assert report.name == name


def test_a_shape_alone_is_a_published_size() -> None:
    shape = {"model.n_layer": 96, "model.n_head": 96, "model.n_embd": 12_288, "model.block_size": 2048}
    assert inspect(settings=shape).parameters.total == inspect(preset="gpt3-175b").parameters.total == 174_604_259_328


def test_a_shape_on_the_command_line(tmp_path: Path) -> None:
    flags = ["--n-layer", "2", "--n-head", "4", "--n-embd", "64", "--block-size", "32", "--vocab-size", "100"]
    found = json.loads(command(tmp_path, "inspect", *flags, "--set", "model.mlp=relu", "--json").stdout)
    config = {key: found["config"][key] for key in ("n_layer", "n_embd", "vocab_size", "mlp", "position")}
    assert config == {"n_layer": 2, "n_embd": 64, "vocab_size": 100, "mlp": "relu", "position": "learned"}
    over = json.loads(command(tmp_path, "inspect", "--preset", "nano", "--n-layer", "2", "--json").stdout)
    assert (over["config"]["n_layer"], over["config"]["n_embd"], over["config"]["position"]) == (2, 48, "rope")
    modern = json.loads(command(tmp_path, "inspect", "--family", "modern", *flags, "--json").stdout)
    assert (modern["config"]["norm"], modern["config"]["n_kv_head"]) == ("rmsnorm", 2)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["inspect", "runs/x", "--n-layer", "3"], 2, "--n-layer"),
        (["inspect", "--machine", "--n-layer", "3"], 2, "--n-layer"),
        (["inspect", "--n-layer", "3", "--set", "model.n_layer=4"], 2, "twice"),
        (["inspect", "--n-layer", "3", "--set", "optim.lr=1"], 2, "optim.lr"),
        (["inspect", "--n-layer", "3", "--vocab-size", "5", "--set", "model.vocab_size=6"], 2, "twice"),
        (["inspect", "--n-embd", "100"], 2, "12"),
        (["inspect", "--preset", "gpt3-175b", "--family", "modern"], 2, "GPT-2"),
        (["inspect", "--preset", "gpt2", "--device", "abacus"], 2, "abacus"),
        (["inspect", "--machine", "--lengths"], 2, "--lengths"),
        (["train", "book.txt", "--preset", "gpt3-175b"], 2, "cannot be trained"),
        (["bench", "runs/x", "--n-layer", "3"], 2, "--n-layer"),
        (["bench", "--n-layer", "3", "--set", "train.max_steps=1"], 2, "train.max_steps"),
    ],
)
def test_refusals(arguments: list[str], code: int, told: str, tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("abc def\n" * 400)
    result = command(tmp_path, *arguments)
    assert (result.code, result.stdout) == (code, "")
    assert told in result.stderr


def test_the_settings_that_a_refusal_names_work_as_typed(tmp_path: Path) -> None:
    refused = command(tmp_path, "inspect", "--n-layer", "3", "--set", "optim.optimizer=muon")
    [named] = re.findall(r"train\.\w+|--activation-checkpointing", refused.stderr)
    assert command(tmp_path, "inspect", "--n-layer", "3", "--set", f"{named}=true").code == 0


def test_bench_shows_a_model_that_is_too_large_and_refuses_it(tmp_path: Path) -> None:
    result = command(tmp_path, "bench", "--preset", "gpt3-175b", "--set", "optim.optimizer=muon")
    assert result.code == 1
    assert "174,604,259,328" in result.stdout
    assert "memory" in result.stderr


@pytest.mark.parametrize("name", VARIANTS)
def test_subtotals_are_those_of_the_modules(name: str) -> None:
    config = variant(name)
    model = GPT(config)
    modules = {
        "embeddings": [model.wte, getattr(model, "wpe", None)],
        "attention": [part for block in model.h for part in (block.attn.c_attn, block.attn.c_proj)],
        "mlp": [block.mlp for block in model.h],
        "head": [getattr(model, "lm_head", None)],
    }
    counted = {
        part: sum(p.numel() for module in found if module is not None for p in module.parameters())
        for part, found in modules.items()
    }
    counted["norms"] = parameter_count(config) - sum(counted.values())
    assert parameters_by_part(config) == counted


def test_active_parameters_leave_idle_experts_out() -> None:
    report = inspect(preset="nano", settings={"model.n_expert": 4, "model.n_expert_active": 1})
    one = inspect(preset="nano")
    router = 3 * 48 * 4
    assert report.parameters.active == one.parameters.total + router
    assert one.parameters.active == one.parameters.total


@pytest.mark.parametrize("name", ["gpt2", "qwen3", "mixtral", "window", "untied"])
def test_flops_by_part_are_those_of_the_products(name: str) -> None:
    """torch counts the batched products of attention scores apart from those with matrices."""
    model, T = GPT(variant(name)), 7
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(torch.zeros(2, T, dtype=torch.long))
    work = forward_flops_by_part(model.config, T)
    assert sum(work.values()) == forward_flops(model.config, T)
    batched = sum(count for op, count in counter.get_flop_counts()["Global"].items() if "bmm" in str(op))
    scores = 2 * T * 4 * model.config.n_head * model.config.head_dim * T * model.config.n_layer
    assert batched == scores
    if name != "window":  # torch computes what the window masks, too
        assert work["attention scores"] * 2 * T == scores
    assert work["head"] == 2 * model.config.vocab_size * model.config.n_embd


def check_recomputed(name: str, **changes: Any) -> None:
    """What checkpointing adds to an update, by torch's own count; the formula also counts vectors."""
    model, ids = GPT(variant(name, **changes)).train(), torch.zeros(2, 12, dtype=torch.long)

    def counted(*, activation_checkpointing: bool) -> int:
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            model.hidden(ids, activation_checkpointing=activation_checkpointing).sum().backward()
        return counter.get_total_flops()

    added = counted(activation_checkpointing=True) - counted(activation_checkpointing=False)
    vectors = 2 * sum(p.numel() for n, p in model.named_parameters() if p.dim() == 1 and n.startswith("h."))
    estimate = recomputed_flops(model.config, 12)
    assert estimate - vectors <= added / 24 <= estimate


@pytest.mark.parametrize(
    ("name", "changes"),
    [("gpt2", {}), ("gpt2", {"dropout": 0.1}), ("post-norm", {}), ("qwen3", {}), ("all experts", {}), ("swiglu", {})],
)
def test_recomputation_is_counted(name: str, changes: dict[str, Any]) -> None:
    check_recomputed(name, **changes)


def test_recomputation_is_reported_where_it_is_used() -> None:
    plain, checkpointed = (
        inspect(preset="tiny", settings={"train.activation_checkpointing": on}) for on in (False, True)
    )
    assert (plain.flops.recomputed_per_token, plain.memory.activation_checkpointing) == (0, False)
    assert checkpointed.flops.recomputed_per_token > plain.flops.forward_per_token / 2
    assert checkpointed.memory.training.activations < plain.memory.training.activations


@pytest.mark.parametrize("name", ["gpt2", "qwen3", "alternate windows"])
def test_the_crossover_is_where_scores_take_half(name: str) -> None:
    config = variant(name)
    found = crossover(config)
    assert found is not None

    def scores(length: int) -> float:
        work = forward_flops_by_part(config, length)
        return work["attention scores"] / sum(work.values())

    assert scores(found - 1) < 0.5 <= scores(found)


def test_windows_prevent_a_crossover() -> None:
    assert crossover(variant("window")) is None


def test_lengths() -> None:
    report = inspect(preset="gpt2", dtype="bfloat16", device="cpu")
    assert [cost.length for cost in report.lengths.costs] == list(LENGTHS)
    cost = report.lengths.costs[LENGTHS.index(2048)]
    assert cost.scores == 12 * 12 * 2048**2
    assert cost.stored_bytes == 2 * cost.scores == 12 * cost.recomputed_bytes
    assert cost.fused_bytes == 12 * 12 * 2048 * 4
    assert cost.cache_bytes == 2 * 12 * 768 * 2048 * 4
    assert report.lengths.crossover == 6_709


def stored_matrices(dropout: float) -> list[Tensor]:
    """The T × T matrices that an update on this CPU keeps for its backward pass."""
    config, kept = variant("gpt2", dropout=dropout), list[Tensor]()
    model, T = GPT(config).train(), config.block_size

    def note(tensor: Tensor) -> Tensor:
        kept.extend([tensor] * (tensor.shape[-2:] == (T, T)))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        model(torch.zeros(2, T, dtype=torch.long)).sum()
    return kept


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_it_is_said_whether_the_matrices_are_stored(dropout: float) -> None:
    assert bool(stored_matrices(dropout)) == stores_scores(variant("gpt2", dropout=dropout), "cpu")
    report = inspect(preset="nano", settings={"model.dropout": dropout}, device="cpu")
    assert report.lengths.stores_scores == (dropout > 0)
    (stage,) = (stage for stage in report.activations if stage.name == "h.*.attn weights")
    assert ("fused" in stage.what) == (dropout == 0)


def test_lengths_as_table_and_plot(tmp_path: Path) -> None:
    shown = command(tmp_path, "inspect", "--preset", "gpt2", "--lengths").stdout
    assert "131,072" in shown
    assert "6,709 tokens" in shown
    windowed = command(tmp_path, "inspect", "--preset", "gpt2", "--set", "model.sliding_window=64", "--lengths").stdout
    assert "windows keep" in windowed


def test_a_gpu_that_is_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    report = inspect(preset="gpt2", device="cuda")
    assert (report.memory.device, report.memory.dtype) == ("cuda", "bfloat16")
    assert inspect(preset="gpt2", device="cuda", dtype="float32").memory.dtype == "float32"
    assert report.memory.training.allocator == 0 == memory.ALLOCATOR_SHARE["cuda"]
    with pytest.raises(UsageError):
        inspect(preset="gpt2", device="tpu")


def test_a_dtype_that_the_device_cannot_train_in(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_given: object) -> None:
        raise DeviceError("This GPU has no bfloat16 units.")

    monkeypatch.setattr("gptcli.report.model.choose_dtype", refuse)
    with pytest.raises(DeviceError):
        inspect(preset="gpt2", dtype="bfloat16")
