"""`gptcli bench`: its figures follow from what it measured, and it measures what training and sampling run.

No figure of time is compared with anything: machines differ, and this one may be busy.
"""

from __future__ import annotations

import json
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner

from gptcli.bench import lengths, limits, speed, target
from gptcli.bench.peak import peak_memory, reset_peak
from gptcli.bench.target import stand_in_tokenizer
from gptcli.cli.app import app
from gptcli.config import ModelConfig, build_config
from gptcli.errors import UsageError
from gptcli.model import memory
from gptcli.model.cost import bytes_per_step, forward_flops, matrix_parameters, prefill_flops, training_flops
from gptcli.model.gpt import GPT
from gptcli.training.trainer import Trainer
from gptcli.training.update import Update
from tests.conftest import CommandLine, Result

CPU = torch.device("cpu")
CONFIG = ModelConfig(vocab_size=700, n_layer=2, n_head=2, n_embd=128, block_size=64)
MODERN = ModelConfig(
    **CONFIG.model_dump(include={"vocab_size", "n_layer", "n_head", "n_embd", "block_size"}),
    position="rope",
    norm="rmsnorm",
    mlp="swiglu",
    n_kv_head=1,
    bias=False,
    tied=False,
)
SMALL = 0.02
"""Share by which the formula may be off: biases, norms and lookups are no matrix products."""


@pytest.fixture(autouse=True)
def _soon_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small matrices, little memory and few repetitions."""
    monkeypatch.setitem(limits.MATRIX_SIZE, "cpu", 64)
    monkeypatch.setitem(limits.READ_BYTES, "cpu", 1 << 16)
    monkeypatch.setattr(limits, "LIMIT_SECONDS", 0.0)
    monkeypatch.setattr(speed, "MEASURED_SECONDS", 0.0)
    monkeypatch.setattr(lengths, "LENGTH_SECONDS", 0.0)
    monkeypatch.setattr(target, "TEXT_TOKENS", 4096)


def bench(folder: Path, *arguments: str) -> Result:
    """The command in this process, in `folder`."""
    with chdir(folder):
        done = CliRunner().invoke(app, ["bench", *arguments])
    return Result(done.exit_code, done.stdout, done.stderr)


def measured(folder: Path, *arguments: str) -> dict[str, Any]:
    result = bench(folder, *arguments, "--json")
    assert result.code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture(scope="module")
def workplace(corpus_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a short run. Do not change it: tests share it."""
    folder = tmp_path_factory.mktemp("bench")
    budget = ("--max-steps", "1", "--batch-size", "2", "--set", "train.eval_tokens=256")
    assert CommandLine(folder)("train", corpus_file, "--preset", "nano", *budget, "-q").code == 0
    return folder


def products(call: Any) -> int:
    """Operations of the matrix products in a call, as torch counts them."""
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        call()
    return counter.get_total_flops()


@pytest.mark.parametrize("config", [CONFIG, MODERN])
def test_the_formula_counts_the_products_of_an_update(config: ModelConfig) -> None:
    model, ids = GPT(config), torch.randint(700, (1, 64))
    counted = products(lambda: model(ids).sum().backward())
    assert counted == pytest.approx(training_flops(config, 64) * 64, rel=SMALL)


@pytest.mark.parametrize("config", [CONFIG, MODERN])
def test_the_formula_counts_the_products_of_a_prompt(config: ModelConfig) -> None:
    model, ids = GPT(config).requires_grad_(False), torch.randint(700, (1, 64))
    counted = products(lambda: model.head(model.hidden(ids)[:, -1]))
    assert counted == pytest.approx(prefill_flops(config, 64), rel=SMALL)
    assert counted != pytest.approx(forward_flops(config, 64) * 64, rel=SMALL)  # the head for every token


def test_bytes_of_a_step() -> None:
    model = GPT(CONFIG).bfloat16()
    positions = 64 * 128
    weights = 2 * (sum(parameter.numel() for parameter in model.parameters()) - positions)
    keys_and_values = 2 * 2 * 128 * 2  # of one token: two layers, a key and a value of 128 numbers of two bytes
    assert bytes_per_step(model, 3, 10) == weights + 3 * 10 * keys_and_values


def test_bytes_of_a_step_with_windows_and_shared_heads() -> None:
    config = MODERN.model_copy(update={"sliding_window": 8, "windowed_layers": "alternate"})
    with_none, with_20 = (bytes_per_step(GPT(config), 1, cached) for cached in (0, 20))
    assert with_20 - with_none == (8 + 20) * 2 * 64 * 4  # the first layer keeps 8; one head of 64 numbers of four bytes


def test_the_figures_follow_from_each_other(tmp_path: Path) -> None:
    found = measured(tmp_path, "--preset", "nano", "--batch-size", "3", "--length", "32")
    training, prefill, decoding = found["training"], found["prefill"], found["decoding"]
    rate = found["limits"]["matrix_rate"]["float32"]
    config = build_config("nano", vocab_size=65).model.model_copy(update={"block_size": 32})
    assert found["parameters"] == sum(parameter.numel() for parameter in GPT(config).parameters())
    assert (training["sequences"], training["length"], training["compiled"]) == (3, 32, False)
    assert training["tokens_per_second"] == pytest.approx(3 * 32 / training["seconds"])
    counted = sum(parameter.numel() for name, parameter in GPT(config).named_parameters() if name != "wpe.weight")
    each = 6 * counted + 12 * config.n_layer * config.n_embd * 32
    assert training["mfu"] == pytest.approx(each * training["tokens_per_second"] / rate)
    assert prefill["tokens_per_second"] == pytest.approx(32 / prefill["seconds"])
    assert prefill["mfu"] == pytest.approx(prefill_flops(config, 32) / prefill["seconds"] / rate)
    assert (decoding["sequences"], decoding["prompt"], decoding["tokens"]) == (3, 16, 16)
    assert decoding["tokens_per_second"] == pytest.approx(3 / decoding["seconds"])
    moved = bytes_per_step(GPT(config), 3, 16 + 16 / 2)
    assert decoding["bytes_per_second"] == pytest.approx(moved / decoding["seconds"])
    assert decoding["bandwidth_share"] == pytest.approx(
        decoding["bytes_per_second"] / found["limits"]["read_bandwidth"]
    )


def test_an_update_is_of_what_goes_through_the_model_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = build_config("nano", vocab_size=65).train.batch_size
    assert measured(tmp_path, "--preset", "nano")["training"]["sequences"] == recipe > 1
    monkeypatch.setattr(memory, "HEAP_BLOCK", 1)
    assert measured(tmp_path, "--preset", "nano")["training"]["sequences"] == 1


def test_weights_of_8_bits_are_a_quarter_as_many_bytes(tmp_path: Path) -> None:
    plain, rounded = (measured(tmp_path, "--preset", "nano", "--quantize", kind) for kind in ("none", "int8"))
    assert [found["training"]["dtype"] for found in (plain, rounded)] == ["float32", "float32"]
    assert [found["decoding"]["dtype"] for found in (plain, rounded)] == ["float32", "int8"]
    moved = [found["decoding"]["bytes_per_second"] * found["decoding"]["seconds"] for found in (plain, rounded)]
    weights = matrix_parameters(build_config("nano", vocab_size=65).model)
    assert moved[0] - moved[1] == pytest.approx(3 * weights)


def test_it_runs_what_users_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = {"updates": 0, "texts": 0}
    step, generate = Trainer.step, speed.stream_samples

    def counted_step(trainer: Trainer, *arguments: Any) -> Update | None:
        calls["updates"] += 1
        return step(trainer, *arguments)

    def counted_generate(*arguments: Any, **settings: Any) -> Any:
        calls["texts"] += 1
        return generate(*arguments, **settings)

    monkeypatch.setattr(Trainer, "step", counted_step)
    monkeypatch.setattr(speed, "stream_samples", counted_generate)
    measured(tmp_path, "--preset", "nano")
    assert calls == {"updates": 2 + speed.MIN_CALLS, "texts": 2 * (1 + speed.MIN_CALLS)}


def test_calls_that_warm_up_do_not_count() -> None:
    calls = []
    assert len(limits.seconds_per_call(lambda: calls.append(1), CPU, 0.0, 3)) == 3
    assert len(calls) == 5


@pytest.mark.parametrize(
    "wrong", [{"quantize": "int4"}, {"quantize": "int8", "dtype": "bfloat16"}, {"dtype": "float8"}]
)
def test_a_wrong_format_is_refused_before_anything_is_measured(wrong: dict[str, Any]) -> None:
    stages: list[str] = []
    with pytest.raises(UsageError):
        speed.benchmark(preset="nano", device="cpu", on_stage=stages.append, **wrong)
    assert stages == []


def test_the_newest_run_is_the_default_and_named(workplace: Path) -> None:
    result = bench(workplace)
    assert result.code == 0
    assert "runs/book, the newest run" in result.stderr
    for word in ("Speed of book", "training", "prefill", "decoding", "2 × 128"):
        assert word in result.stdout
    assert measured(workplace, "runs/book")["name"] == "book"


def test_quiet_tells_nothing_but_the_result(workplace: Path) -> None:
    assert bench(workplace, "runs/book", "-q").stderr == ""


def test_a_folder_that_is_no_run(workplace: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        (model / name).write_bytes((workplace / "runs/book" / name).read_bytes())
    assert measured(tmp_path, "model")["decoding"]["prompt"] == 64


def test_markdown_is_one_table(tmp_path: Path) -> None:
    result = bench(tmp_path, "--preset", "nano", "--markdown")
    assert result.code == 0, result.stderr
    head, blank, *rows = result.stdout.splitlines()
    assert head.startswith("Speed of nano. ")
    assert blank == ""
    assert rows[0] == "| work | dtype | tokens | tokens/s | time | reached | share | peak memory |"
    work, by_length = rows[:5], rows[6:]
    assert {row.count("|") for row in work} == {9}
    assert [row.split("|")[1].strip() for row in work[2:]] == ["training", "prefill", "decoding"]
    assert [row.split("|")[1].strip() for row in by_length[2:]] == ["16", "32", "64", "128"]


def test_a_token_with_and_without_the_cache_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways compute the logits of the same token, so that their times can be compared."""
    logits: list[torch.Tensor] = []
    head = GPT.head
    monkeypatch.setattr(GPT, "head", lambda model, hidden: logits.append(head(model, hidden).flatten()))
    model = GPT(CONFIG).eval()
    found = lengths.measure_lengths(model)
    assert [speed.tokens for speed in found] == [16, 32, 64]
    calls = 2 + lengths.MIN_CALLS
    for number in range(3):
        cached, uncached = (logits[2 * calls * number + way * calls :][:calls] for way in (0, 1))
        for one in (*cached, *uncached):
            assert torch.allclose(one, uncached[0], atol=1e-5)
    assert [speed.cache_bytes for speed in found] == [2 * 2 * 128 * 4 * tokens for tokens in (16, 32, 64)]


def test_the_peak_is_of_the_work_alone(tmp_path: Path) -> None:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("this system does not say")
    reset_peak(CPU)
    before = peak_memory(CPU)
    held = torch.ones(64 << 20, dtype=torch.uint8)
    during = peak_memory(CPU)
    del held
    reset_peak(CPU)
    after = peak_memory(CPU)
    assert before is not None
    assert during is not None
    assert after is not None
    assert during - before > 60 << 20
    assert during - after > 60 << 20


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--preset", "nano", "--json", "--markdown"], 2, "--markdown"),
        (["runs/x", "--preset", "nano"], 2, "--preset"),
        (["--preset", "nano", "--length", "129"], 2, "context of 128"),
        (["--preset", "nanno"], 2, "Did you mean 'nano'?"),
        (["--preset", "nano", "--dtype", "float8"], 2, "float8"),
        (["--preset", "nano", "--device", "abacus"], 2, "abacus"),
        (["--preset", "nano", "--batch-size", "0"], 2, "--batch-size"),
        (["nowhere"], 1, "nowhere"),
        ([], 1, "gptcli train"),
    ],
)
def test_what_cannot_be_measured(tmp_path: Path, arguments: list[str], code: int, words: str) -> None:
    result = bench(tmp_path, *arguments)
    assert (result.code, result.stdout) == (code, "")
    assert words in result.stderr


@pytest.mark.parametrize("size", [2, 65, 257, 700])
def test_a_stand_in_has_as_many_ids_as_it_should(size: int) -> None:
    tokenizer = stand_in_tokenizer(size)
    assert (tokenizer.vocab_size, tokenizer.end_of_text) == (size, size - 1)
    entries = [tokenizer.token_bytes(token) for token in range(size - 1)]
    assert len(set(entries)) == size - 1
    assert tokenizer.emittable.any()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_limits_are_measured_within_the_free_memory(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """A GPU of 8 GB has no room for two tensors of 4 GiB."""
    free, allocated = 1 << 20, list[int]()

    def ones(count: int, **options: object) -> torch.Tensor:
        allocated.append(4 * count)
        return torch.zeros(count)

    def randn(*shape: int, dtype: torch.dtype, **options: object) -> torch.Tensor:
        allocated.append(shape[0] * shape[1] * dtype.itemsize)
        return torch.zeros(shape, dtype=dtype)

    monkeypatch.setattr(limits, "READ_BYTES", {device: 4 << 30})
    monkeypatch.setattr(limits, "MATRIX_SIZE", {device: 8192})
    monkeypatch.setattr(limits, "free_memory", lambda device: free)
    monkeypatch.setattr(limits, "wait_for", lambda device: None)
    monkeypatch.setattr(torch, "ones", ones)
    monkeypatch.setattr(torch, "randn", randn)
    limits.read_bandwidth(torch.device(device))
    (read,) = allocated
    assert free / 8 < read <= free * limits.FREE_SHARE / (2 if device == "cuda" else 1)  # on a GPU it is copied too
    allocated.clear()
    limits.matrix_rate(torch.device(device), torch.float32)
    assert free / 16 < 3 * allocated[0] <= free * limits.FREE_SHARE
