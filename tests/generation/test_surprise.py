"""The surprise of each token: the summands of `score`, the same windows, and the places where it is largest."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from gptcli.config import ModelConfig
from gptcli.errors import UsageError
from gptcli.generation import surprise
from gptcli.generation.loaded_model import LoadedModel
from gptcli.generation.surprise import TextSurprise
from gptcli.model.gpt import GPT
from gptcli.tokenizer.bpe import train_bpe
from gptcli.tokenizer.char import char_tokenizer
from gptcli.tokenizer.tokenizer import Tokenizer
from tests.model.reference import random_model

TEXT = "the quick brown fox\njumps over the lazy dog,\n\né and 中. " * 4
CONTEXT = 16


def loaded(tokenizer: Tokenizer, dtype: torch.dtype = torch.float64) -> LoadedModel:
    """A model that is far from uniform, with more rows than the tokenizer has ids."""
    shape = ModelConfig(
        vocab_size=tokenizer.vocab_size + 3, n_layer=2, n_head=2, n_embd=16, block_size=CONTEXT, logit_softcap=20.0
    )
    return LoadedModel(Path("x"), random_model(shape, dtype), tokenizer, start_id=0)


@pytest.fixture
def model() -> LoadedModel:
    return loaded(char_tokenizer(TEXT))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def check_sum(model: LoadedModel, path: Path, stride: int, tolerance: float) -> None:
    """The tokens' sum is the report's to the last bit, and that of `score` as its own sum rounds."""
    found = model.surprise(path, stride=stride)
    (one,), expected = found.texts, model.score(path, stride=stride)
    logprobs = [token.logprob for token in one if not math.isnan(token.logprob)]
    assert -math.fsum(logprobs) == one.score.nats == found.scores.total.nats
    assert one.score.nats == pytest.approx(expected.total.nats, rel=tolerance)
    assert (len(one), len(logprobs)) == (one.score.tokens, one.score.scored)
    assert (one.score.tokens, one.score.scored) == (expected.total.tokens, expected.total.scored)


@pytest.mark.parametrize("stride", [1, 5, 8, CONTEXT - 1, CONTEXT])
def test_the_sum_is_the_score(model: LoadedModel, text: Path, stride: int) -> None:
    check_sum(model, text, stride, 1e-13)


def test_the_sum_in_float32(text: Path) -> None:
    check_sum(loaded(char_tokenizer(TEXT), torch.float32), text, 8, 1e-6)


def test_control_another_distribution_is_noticed(
    model: LoadedModel, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surprise, "log_probabilities", lambda logits: (logits / 1.001).log_softmax(-1))
    with pytest.raises(AssertionError):
        check_sum(model, text, 8, 1e-6)


@pytest.mark.parametrize("stride", [5, CONTEXT - 1, CONTEXT])
def test_each_token_is_that_of_a_pass_over_its_window(model: LoadedModel, text: Path, stride: int) -> None:
    (one,) = model.surprise(text, stride=stride).texts
    ids = model.tokenizer.encode(TEXT)
    assert [token.id for token in one] == ids
    for index in range(1, len(ids)):
        start = max(0, math.ceil((index + 1 - CONTEXT) / stride)) * stride
        if start == index:
            assert math.isnan(one[index].logprob)
            assert one[index].alternatives == ()
            continue
        expected = model.model(torch.tensor([ids[start:index]]))[0, -1].log_softmax(-1)
        values, order = expected[: model.tokenizer.vocab_size].sort(descending=True)
        assert one[index].logprob == pytest.approx(expected[ids[index]].item(), abs=1e-12)
        assert [other.id for other in one[index].alternatives] == order[:5].tolist()
        assert [other.logprob for other in one[index].alternatives] == pytest.approx(values[:5].tolist(), abs=1e-12)


def test_few_logits_are_in_memory_at_once(model: LoadedModel, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large vocabulary: the figures are the same, a few tokens at a time."""
    expected = model.surprise(text).texts[0]
    sizes: list[int] = []
    plain: Callable[[Tensor], Tensor] = surprise.log_probabilities
    monkeypatch.setattr(surprise, "log_probabilities", lambda logits: (sizes.append(logits.numel()), plain(logits))[1])
    monkeypatch.setattr(surprise, "LOGITS_AT_ONCE", 100)
    assert model.surprise(text).texts[0].score.nats == pytest.approx(expected.score.nats, rel=1e-12)
    assert max(sizes) <= 100


def test_several_texts(model: LoadedModel, text: Path, tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("the dog", encoding="utf-8")
    found = model.surprise(tmp_path)
    assert [(one.score.name, len(one)) for one in found.texts] == [("a.txt", len(TEXT)), ("b.txt", 7)]
    assert found.scores.total.nats == pytest.approx(model.score(tmp_path).total.nats, rel=1e-12)
    with pytest.raises(UsageError, match=r"stride.*16"):
        model.surprise(text, stride=17)


def crafted(tokenizer: Tokenizer, content: str, bits: dict[int, float]) -> TextSurprise:
    """A text in which token number i has `bits[i]` bits, and others 1; the first has no context."""
    ids = np.array(tokenizer.encode(content), dtype=np.int32)
    logprobs = np.array([-math.log(2) * bits.get(index, 1) for index in range(len(ids))])
    logprobs[0] = np.nan
    score = surprise.Score("a.txt", len(ids), len(ids) - 1, len(content), len(content.encode()), 1.0)
    others = np.zeros((len(ids), 1), dtype=np.int32), np.zeros((len(ids), 1))
    return TextSurprise(score, tokenizer, surprise.TokenArrays(ids, logprobs, *others))


def test_places_are_the_most_surprising_with_line_and_excerpt() -> None:
    content = "first line of this text\nsecond one\nand the third, the last"
    places = {content.index("l"): 5.0, content.index("c"): 9.0, content.index("c") + 1: 8.0, content.index(","): 7.0}
    found = crafted(char_tokenizer(content), content, places).places(3)
    assert [(place.line, place.token.text, round(place.token.bits, 6)) for place in found] == [
        (2, "c", 9.0),
        (3, ",", 7.0),
        (1, "l", 5.0),
    ], "the token beside the c is no place of its own"
    assert (found[0].before, found[0].after) == ("se", "ond one")
    assert (found[2].before, found[2].after) == ("first ", "ine of this text")
    assert found[0].index == content.index("c")


def test_a_newline_is_a_place_of_the_line_that_it_ends() -> None:
    content = "one\ntwo three four five"
    (first, *_) = crafted(char_tokenizer(content), content, {3: 9.0}).places()
    assert (first.line, first.token.text, first.before, first.after) == (1, "\n", "one", "")


def test_pieces_of_characters(tmp_path: Path) -> None:
    model = loaded(train_bpe(["a"], 257))
    path = tmp_path / "a.txt"
    path.write_text("né 中", encoding="utf-8")
    (one,) = model.surprise(path).texts
    assert b"".join(token.bytes for token in one).decode() == "né 中"
    assert [token.text for token in one][1:3] == ["\ufffd", "\ufffd"]
    (place,) = one.places(1)
    assert "\ufffd" not in place.before + place.after


def test_the_head_may_be_another(model: LoadedModel, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures come from `GPT.head`, which 8-bit models replace."""
    head = GPT.head
    monkeypatch.setattr(GPT, "head", lambda self, hidden: head(self, hidden) * 0)
    (one,) = model.surprise(text).texts
    assert one[5].logprob == pytest.approx(-math.log(model.model.config.vocab_size))
