"""Each filter against a worked example and against the processor of transformers that people know."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from gptcli.generation import filters

INF = math.inf


def test_repetition_penalty_makes_seen_tokens_less_likely() -> None:
    logits = torch.tensor([[2.0, -2.0, 2.0, -2.0]])
    seen = torch.tensor([[True, True, False, False]])
    assert filters.penalize_repetition(logits, seen, 2.0).tolist() == [[1.0, -4.0, 2.0, -2.0]]


def test_top_k_keeps_the_order_of_the_vocabulary() -> None:
    values, ids = filters.top_k_candidates(torch.tensor([[0.0, 5.0, 1.0, 7.0], [9.0, 1.0, 2.0, 0.0]]), 2)
    assert ids.tolist() == [[1, 3], [0, 2]]
    assert values.tolist() == [[5.0, 7.0], [9.0, 2.0]]


def test_top_k_among_equals_keeps_k() -> None:
    values, ids = filters.top_k_candidates(torch.zeros(1, 9), 4)
    assert values.shape == (1, 4)
    assert len(set(ids[0].tolist())) == 4


def test_temperature_divides_log_odds() -> None:
    cooled = filters.apply_temperature(torch.tensor([[1.0, 3.0]]), 0.5)
    assert cooled.tolist() == [[2.0, 6.0]]


@pytest.mark.parametrize("temperature", [1e-320, 1e-40, 1e300])
def test_no_temperature_is_too_extreme(temperature: float) -> None:
    probabilities = filters.apply_temperature(torch.tensor([[1.0, 3.0, -INF]]), temperature).softmax(-1)
    assert probabilities.sum().item() == pytest.approx(1)


def probabilities(*values: float) -> Tensor:
    return torch.tensor([values], dtype=torch.float64).log()


def kept(logits: Tensor) -> list[int]:
    return torch.isfinite(logits[0]).nonzero()[:, 0].tolist()


def test_top_p_keeps_the_fewest_that_reach_p() -> None:
    logits = probabilities(0.1, 0.5, 0.15, 0.25)
    assert kept(filters.keep_top_p(logits, 0.4)) == [1]
    assert kept(filters.keep_top_p(logits, 0.6)) == [1, 3]
    assert kept(filters.keep_top_p(logits, 0.8)) == [1, 2, 3]
    assert kept(filters.keep_top_p(logits, 0.95)) == [0, 1, 2, 3]
    assert kept(filters.keep_top_p(logits, 1e-12)) == [1]


@pytest.mark.parametrize("p", [0.3, 0.9, 0.9999])
@pytest.mark.parametrize("spread", [0.5, 3.0])
def test_top_p_of_a_large_vocabulary_is_that_of_a_full_sort(
    p: float, spread: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the likeliest thousand suffice (a spread of 3) or not."""
    logits = spread * torch.randn(3, 5000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    quick = filters.keep_top_p(logits, p)
    monkeypatch.setattr(filters, "NUCLEUS", 5000)
    assert torch.equal(quick, filters.keep_top_p(logits, p))


def test_min_p_is_a_share_of_the_likeliest() -> None:
    logits = probabilities(0.1, 0.5, 0.15, 0.25)
    assert kept(filters.keep_min_p(logits, 0.4)) == [1, 3]
    assert kept(filters.keep_min_p(logits, 1.0)) == [1]


def test_draw_inverts_the_cumulative_distribution() -> None:
    logits = probabilities(0.25, 0.0, 0.5, 0.25)
    just_below_1 = 1 - 2**-53
    numbers = torch.tensor([[0.0], [0.2499], [0.2501], [0.7499], [0.7501], [just_below_1]], dtype=torch.float64)
    assert filters.draw(logits.expand(6, -1), numbers)[:, 0].tolist() == [0, 0, 2, 2, 3, 3]


def test_draw_never_takes_a_removed_token_at_the_ends() -> None:
    logits = probabilities(0.0, 0.3, 0.7, 0.0)
    numbers = torch.tensor([[0.0], [1 - 2**-53]], dtype=torch.float64)
    assert filters.draw(logits.expand(2, -1), numbers)[:, 0].tolist() == [1, 2]


def test_draw_follows_the_probabilities() -> None:
    numbers = torch.rand(40_000, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    drawn = filters.draw(probabilities(0.1, 0.6, 0.3).expand(40_000, -1), numbers)
    shares = drawn[:, 0].bincount(minlength=3) / 40_000
    assert torch.allclose(shares, torch.tensor([0.1, 0.6, 0.3]), atol=0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_few_candidates_are_drawn_as_many_are(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(5000, 20, generator=generator, dtype=dtype)
    logits[:, 4] = -INF
    numbers = torch.rand(5000, 1, generator=generator, dtype=torch.float64)
    many = filters.draw(logits, numbers)
    monkeypatch.setattr(filters, "FEW", logits.numel())
    assert filters.draw(logits, numbers).equal(many)
    assert not filters.draw(logits, 1 - numbers).equal(many)


@pytest.mark.parametrize("few", [0, 100])
def test_draw_from_a_broken_model_stays_inside_every_way(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "FEW", few)
    for logits in ([math.nan, 1.0, 900.0], [1.0, math.nan, INF], [-INF, -INF, -INF]):
        drawn = filters.draw(torch.tensor([logits]), torch.tensor([[0.5]], dtype=torch.float64))
        assert 0 <= drawn.item() < 3


def test_draw_from_a_broken_model_stays_inside() -> None:
    assert filters.draw(torch.full((1, 5), math.nan), torch.tensor([[0.5]], dtype=torch.float64)).item() < 5


def full_top_k(logits: Tensor, k: int) -> Tensor:
    values, ids = filters.top_k_candidates(logits, k)
    return torch.full_like(logits, -INF).scatter(-1, ids, values)


def seen_mask(ids: Tensor, like: Tensor) -> Tensor:
    return torch.zeros_like(like, dtype=torch.bool).scatter(1, ids, True)


OURS: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "RepetitionPenalty": lambda ids, x, value: filters.penalize_repetition(x, seen_mask(ids, x), value),
    "Temperature": lambda ids, x, value: filters.apply_temperature(x, value),
    "TopK": lambda ids, x, value: full_top_k(x, int(value)),
    "TopP": lambda ids, x, value: filters.keep_top_p(x, value),
    "MinP": lambda ids, x, value: filters.keep_min_p(x, value),
}
SETTINGS = [
    *(("RepetitionPenalty", value) for value in (0.7, 1.3)),
    *(("Temperature", value) for value in (0.3, 1.7)),
    *(("TopK", value) for value in (1, 5, 50)),
    *(("TopP", value) for value in (0.05, 0.5, 0.9, 0.999)),
    *(("MinP", value) for value in (0.01, 0.3, 1.0)),
]


def theirs(name: str, value: float) -> Callable[[Tensor, Tensor], Tensor]:
    processors = pytest.importorskip("transformers.generation.logits_process")
    kind = getattr(processors, name + ("LogitsProcessor" if name == "RepetitionPenalty" else "LogitsWarper"))
    processor: Callable[[Tensor, Tensor], Tensor] = kind(int(value) if name == "TopK" else value)
    return processor


def check_one_filter(name: str, value: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(4, 97, generator=generator, dtype=torch.float64)
    ids = torch.randint(97, (4, 20), generator=generator)
    ours, known = OURS[name](ids, logits, value), theirs(name, value)(ids, logits)
    assert torch.allclose(ours.softmax(-1), known.softmax(-1), rtol=1e-12, atol=0)


@pytest.mark.parametrize(("name", "value"), SETTINGS)
def test_filters_mean_what_they_mean_in_transformers(name: str, value: float) -> None:
    check_one_filter(name, value)


def test_comparison_notices_another_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs("RepetitionPenalty", 1.3)  # skips without transformers
    monkeypatch.setattr(filters, "penalize_repetition", lambda x, seen, penalty: torch.where(seen, x / penalty, x))
    with pytest.raises(AssertionError):
        check_one_filter("RepetitionPenalty", 1.3)
