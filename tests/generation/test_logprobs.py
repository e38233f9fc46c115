"""Log-probabilities of generated tokens: those of a plain forward pass, whatever the sampler does with the logits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from gptcli.config import ModelConfig
from gptcli.generation.context_window import window_start
from gptcli.generation.loaded_model import LoadedModel, load
from gptcli.generation.logprobs import LogprobRecord, TokenLogprob, likeliest
from gptcli.tokenizer.bpe import train_bpe
from tests.generation.scripted import script
from tests.model.reference import random_model

TOLERANCE = 1e-5
"""Largest difference of float32 log-probabilities."""


@pytest.fixture(scope="module")
def model(folder: Path) -> LoadedModel:
    return load(folder, device="cpu")


def check_plain_pass(model: LoadedModel, prompt: str, **settings: Any) -> None:
    """Every figure is that of an uncached pass over the tokens that the model sees at that step."""
    ids, vocab_size = model.encode(prompt).ids, model.tokenizer.vocab_size
    for sample in model.generate(prompt, logprobs=4, **settings):
        assert len(sample.logprobs) == sample.tokens
        text = [*ids]
        for token in sample.logprobs:
            start = window_start(len(text), model.model.config.block_size)
            expected = model.model(torch.tensor([text[start:]]))[0, -1].log_softmax(-1)
            values, order = expected[:vocab_size].sort(descending=True)
            assert abs(token.logprob - expected[token.id].item()) < TOLERANCE
            assert [other.id for other in token.alternatives] == order[:4].tolist()
            assert [other.logprob for other in token.alternatives] == pytest.approx(values[:4].tolist(), abs=TOLERANCE)
            text.append(token.id)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_new_tokens": 12},
        {"max_new_tokens": 40, "num_samples": 3},
        {"max_new_tokens": 30, "temperature": 0.3, "top_k": 3, "top_p": 0.8, "repetition_penalty": 1.5},
        {"max_new_tokens": 30, "temperature": 0},
        {"max_new_tokens": 40, "temperature": 2.0, "num_samples": 3, "stop": ("a", "b")},
    ],
    ids=["cache", "slides", "filters", "greedy", "stops"],
)
def test_they_are_those_of_a_plain_pass(model: LoadedModel, settings: dict[str, Any]) -> None:
    check_plain_pass(model, "abc", seed=3, **settings)


def test_control_figures_after_the_temperature_are_noticed(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gptcli.generation.stream.log_probabilities", lambda logits: (logits / 0.8).log_softmax(-1))
    with pytest.raises(AssertionError):
        check_plain_pass(model, "abc", seed=3, max_new_tokens=5)


def test_the_text_is_that_without_them(model: LoadedModel) -> None:
    plain, recorded = (model.generate("abc", seed=5, max_new_tokens=40, logprobs=count)[0] for count in (0, 5))
    assert (recorded.text, recorded.tokens, plain.logprobs) == (plain.text, plain.tokens, ())
    assert b"".join(token.bytes for token in recorded.logprobs).decode() == recorded.text


def test_nothing_is_computed_unless_asked_for(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(logits: torch.Tensor) -> torch.Tensor:
        raise AssertionError

    monkeypatch.setattr("gptcli.generation.stream.log_probabilities", refuse)
    assert model.generate("abc", max_new_tokens=3)
    with pytest.raises(AssertionError):
        model.generate("abc", max_new_tokens=3, logprobs=1)


def test_more_alternatives_than_tokens(model: LoadedModel) -> None:
    (sample,) = model.generate("abc", max_new_tokens=2, logprobs=1000)
    assert {len(token.alternatives) for token in sample.logprobs} == {model.tokenizer.vocab_size}
    assert sum(other.probability for other in sample.logprobs[0].alternatives) == pytest.approx(1)


def test_rows_beyond_the_vocabulary_are_no_alternatives() -> None:
    values, ids = likeliest(torch.tensor([[0.0, -1.0, -2.0, 9.0]]), 4, 3)
    assert (ids.tolist(), values.tolist()) == ([[0, 1, 2]], [[0.0, -1.0, -2.0]])


def test_no_step_waits_for_the_device(model: LoadedModel) -> None:
    """On the meta device, where values cannot be read, only the end of a sample fails."""
    record = LogprobRecord(model.tokenizer, 2)
    for _ in range(3):
        record.add(torch.zeros(2, 13, device="meta"), torch.zeros(2, 1, dtype=torch.long, device="meta"))
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        record.of_sample(0, 3)


def test_pieces_of_characters_and_the_end_of_text(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = train_bpe(["a"], 257)
    by_byte = {tokenizer.token_bytes(token): token for token in range(tokenizer.vocab_size)}
    ids = [*(by_byte[bytes([value])] for value in "né".encode()), tokenizer.end_of_text]
    scripted = script(monkeypatch, [[token for token in ids if token is not None]], tokenizer.vocab_size)
    loaded = LoadedModel(Path("x"), scripted.eval(), tokenizer, start_id=0, end_id=tokenizer.end_of_text)
    (sample,) = loaded.generate("n", logprobs=1, temperature=0)
    shown = [(token.text, token.bytes) for token in sample.logprobs]
    assert shown == [("n", b"n"), ("\ufffd", b"\xc3"), ("\ufffd", b"\xa9"), ("<|endoftext|>", b"")]
    assert (sample.text, sample.finish_reason) == ("né", "end_of_text")


def test_half_precision_gives_figures_in_float32() -> None:
    tokenizer = train_bpe(["ab"], 258)
    config = ModelConfig(vocab_size=tokenizer.vocab_size, n_layer=1, n_head=2, n_embd=16, block_size=8)
    loaded = LoadedModel(Path("x"), random_model(config).bfloat16(), tokenizer, start_id=0)
    (sample,) = loaded.generate("a", logprobs=300, max_new_tokens=3)
    assert sum(other.probability for other in sample.logprobs[2].alternatives) == pytest.approx(1, abs=1e-5)


def test_bits() -> None:
    assert TokenLogprob(0, "a", b"a", -2 * 0.6931471805599453, ()).bits == pytest.approx(2)
    assert str(TokenLogprob(0, "a", b"a", 0.0, ()).bits) == "0.0"
