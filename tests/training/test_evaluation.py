"""The validation loss: every token scored once, against the obvious loop."""

from __future__ import annotations

import gc
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from gptcli.config import ModelConfig
from gptcli.dataset.folder import Split
from gptcli.dataset.shards import TokenStream
from gptcli.model.gpt import GPT
from gptcli.training import evaluation
from gptcli.training.evaluation import evaluation_batches, mean_loss, validation_starts

TINY = ModelConfig(vocab_size=11, n_layer=1, n_head=2, n_embd=8, block_size=8, dropout=0.5)


def split_of(tokens: int) -> Split:
    ids = np.random.default_rng(0).integers(0, 11, tokens).astype(np.uint16)
    return Split(tokens, tokens, tokens, TokenStream([ids]))


def obvious(model: GPT, split: Split) -> float:
    """The mean loss, token by token, each from the tokens before it in its window."""
    ids = torch.from_numpy(split.stream.windows(np.array([0]), split.tokens))[0]
    model.eval()
    losses = []
    for target in range(1, split.tokens):
        start = (target - 1) // 8 * 8
        logits = model(ids[None, start:target])[0, -1]
        losses.append(F.cross_entropy(logits, ids[target]).item())
    return sum(losses) / len(losses)


def check_every_token_once(tokens: int) -> None:
    torch.manual_seed(0)
    model, split = GPT(TINY).double(), split_of(tokens)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0, 0.5)
    for batch_size in (1, 3, 50):
        loss = mean_loss(evaluation_batches(model, split, batch_size=batch_size, max_tokens=10**6, dtype=torch.float64))
        assert loss == pytest.approx(obvious(model, split), abs=1e-10)


@pytest.mark.parametrize("tokens", [2, 5, 8, 9, 10, 16, 17, 18, 61])
def test_every_token_is_scored_once(tokens: int) -> None:
    """Texts shorter than a window, with a shorter last window, and without one."""
    check_every_token_once(tokens)


def test_control_overlapping_windows_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        evaluation, "validation_starts", lambda tokens, block_size, most: np.arange(0, tokens - 1, block_size - 1)
    )
    with pytest.raises(AssertionError):
        check_every_token_once(61)


def test_a_huge_split_is_scored_on_a_fixed_set_of_windows() -> None:
    starts = validation_starts(8001, 8, 80)
    assert np.array_equal(starts, validation_starts(8001, 8, 87))
    assert len(starts) == len(set(starts.tolist())) == 10
    assert not (starts % 8).any()
    assert starts[0] == 0
    assert starts[-1] > 7900
    assert len(validation_starts(81, 8, 80)) == 10
    assert len(validation_starts(80, 8, 1)) == 1
    counts: Counter[int] = Counter(np.diff(validation_starts(8001, 8, 800)).tolist())
    assert counts.keys() <= {72, 80, 88}, "spread evenly"


def check_no_trace() -> None:
    model = GPT(TINY)
    model.train()
    before = torch.get_rng_state()
    first = mean_loss(evaluation_batches(model, split_of(40), batch_size=2, max_tokens=10**6, dtype=torch.float32))
    assert torch.equal(torch.get_rng_state(), before), "a random number was drawn"
    assert model.training
    assert (
        mean_loss(evaluation_batches(model, split_of(40), batch_size=2, max_tokens=10**6, dtype=torch.float32)) == first
    )
    assert all(parameter.grad is None for parameter in model.parameters())


def test_evaluation_draws_no_random_number() -> None:
    check_no_trace()


def test_control_dropout_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GPT, "eval", lambda self: self)
    with pytest.raises(AssertionError):
        check_no_trace()


def test_compiled_states_are_used_for_whole_batches_only() -> None:
    model, shapes = GPT(TINY), []

    def hidden(ids: torch.Tensor) -> torch.Tensor:
        shapes.append(tuple(ids.shape))
        return model.hidden(ids)

    mean_loss(
        evaluation_batches(
            model, split_of(8 * 7 + 4), batch_size=3, max_tokens=10**6, dtype=torch.float32, hidden=hidden
        )
    )
    assert shapes == [(3, 8), (3, 8)]


@pytest.mark.parametrize("tokens", [40, 61])
def test_the_loss_is_the_sum_of_the_batches_and_memory_stays_flat(tokens: int) -> None:
    """A tensor kept for each batch, between the large ones of the passes, would fragment the heap."""
    model, split, live, sums = GPT(TINY), split_of(tokens), [], []
    plain = evaluation.loss_sum

    def watched(*arguments: Any) -> torch.Tensor:
        gc.collect()
        live.append(sum(type(thing) is torch.Tensor for thing in gc.get_objects()))
        sums.append(plain(*arguments).item())
        return torch.tensor(sums[-1])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "loss_sum", watched)
        loss = mean_loss(evaluation_batches(model, split, batch_size=1, max_tokens=10**6, dtype=torch.float32))
    assert loss == float(torch.tensor(sums).double().sum()) / (tokens - 1)
    assert len(live) >= 4
    assert len(set(live[:-1])) == 1, "the last window may be shorter"
