"""Which tokens may come, and whose random numbers choose them."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gptcli.config import SamplingConfig
from gptcli.generation import sampler
from gptcli.generation.sampler import DRAWS_AHEAD, Sampler
from gptcli.generation.stream import allowed_ids
from gptcli.tokenizer.char import char_tokenizer

CPU = torch.device("cpu")
V = 13


def new_sampler(allowed: Tensor | None = None, prompt: tuple[int, ...] = (0,), **settings: float) -> Sampler:
    config = SamplingConfig(**{"temperature": 1.0, "seed": 5, **settings})
    all_allowed = torch.ones(V, dtype=torch.bool)
    return Sampler(config, all_allowed if allowed is None else allowed, torch.tensor([prompt]), CPU)


def draws(product: Sampler, steps: int, rows: int) -> Tensor:
    """(rows, steps) tokens from the same even distribution at every step."""
    return torch.cat([product.choose(torch.zeros(rows, V, dtype=torch.float64)) for _ in range(steps)], dim=1)


def check_own_streams() -> None:
    together = draws(new_sampler(num_samples=3), 40, 3)
    for row in range(3):
        assert torch.equal(together[row : row + 1], draws(new_sampler(seed=5 + row), 40, 1))
    assert not torch.equal(together[0], together[1])


def test_each_sample_has_its_own_stream() -> None:
    check_own_streams()


def test_stream_check_notices_a_shared_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = torch.Generator().manual_seed(5)

    class Shared:
        def manual_seed(self, seed: int) -> torch.Generator:
            return shared

    monkeypatch.setattr(sampler.torch, "Generator", Shared)
    with pytest.raises(AssertionError):
        check_own_streams()


def test_streams_go_on_where_a_block_ends() -> None:
    tokens = draws(new_sampler(), 2 * DRAWS_AHEAD + 3, 1)[0]
    assert len(set(tokens.tolist())) == V
    assert not torch.equal(tokens[:DRAWS_AHEAD], tokens[DRAWS_AHEAD : 2 * DRAWS_AHEAD])


def test_temperature_0_takes_the_likeliest_and_no_random_number() -> None:
    logits = torch.randn(4, V)
    assert torch.equal(new_sampler(temperature=0, num_samples=4).choose(logits.clone())[:, 0], logits.argmax(-1))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_forbidden_ids_never_come(temperature: float) -> None:
    allowed = torch.zeros(V, dtype=torch.bool)
    allowed[[3, 7]] = True
    product = new_sampler(allowed, num_samples=50, temperature=temperature)
    logits = torch.full((50, V), 100.0)
    logits[:, [3, 7]] = torch.tensor([-100.0, -101.0])
    chosen = set(product.choose(logits)[:, 0].tolist())
    assert chosen == ({3} if temperature == 0 else {3, 7})


@pytest.mark.parametrize("settings", [{"top_k": 2}, {"top_p": 0.6}, {"min_p": 0.5}, {"top_k": 2, "top_p": 0.99}])
def test_filters_are_used(settings: dict[str, float]) -> None:
    logits = torch.tensor([[0.4, 0.1, 0.3] + [0.2 / 10] * 10]).log().repeat(200, 1)
    chosen = new_sampler(num_samples=200, **settings).choose(logits)
    assert set(chosen[:, 0].tolist()) == {0, 2}


def test_repetition_penalty_knows_the_prompt_and_the_text() -> None:
    product = new_sampler(prompt=(12, 11), temperature=0, repetition_penalty=1e9)
    logits = torch.arange(1.0, V + 1).unsqueeze(0)
    assert [product.choose(logits.clone()).item() for _ in range(3)] == [10, 9, 8]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_filtered_in_float32(dtype: torch.dtype) -> None:
    # In half precision the cumulative distribution of 60,000 even tokens would stop growing.
    config = SamplingConfig(temperature=1.0, top_p=0.999, num_samples=64, seed=1)
    product = Sampler(config, torch.ones(60_000, dtype=torch.bool), torch.tensor([[0]]), CPU)
    chosen = product.choose(torch.zeros(64, 60_000, dtype=dtype))
    assert chosen.max().item() > 50_000
    assert chosen.min().item() < 10_000


def test_broken_logits_crash_nothing() -> None:
    product = new_sampler(top_k=3, top_p=0.5, min_p=0.1)
    assert 0 <= product.choose(torch.full((1, V), math.nan)).item() < V


def test_allowed_ids_are_text_and_the_end() -> None:
    tokenizer = char_tokenizer("aé")  # a, é, the two bytes of é, <|endoftext|>
    assert tokenizer.vocab_size == 5
    assert allowed_ids(tokenizer, 8, None).tolist() == [True, True, *[False] * 6]
    assert allowed_ids(tokenizer, 8, 4).tolist() == [True, True, False, False, True, False, False, False]


@pytest.mark.parametrize("strict", [True, False])
def test_a_draw_may_use_any_algorithm(monkeypatch: pytest.MonkeyPatch, strict: bool) -> None:
    """A deterministic training leaves torch strict, and CUDA's cumulative sum is not deterministic."""
    plain = Tensor.cumsum

    def cumsum(self: Tensor, *arguments: int, **options: int) -> Tensor:
        assert not torch.are_deterministic_algorithms_enabled()
        return plain(self, *arguments, **options)

    monkeypatch.setattr(Tensor, "cumsum", cumsum)
    torch.use_deterministic_algorithms(strict)
    try:
        draws(new_sampler(num_samples=30, top_p=0.9), 2, 30)
        assert torch.are_deterministic_algorithms_enabled() == strict
    finally:
        torch.use_deterministic_algorithms(False)
