"""The stream: pieces that join to the text, each sample's own end, and samples that do not disturb each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
import torch

from gptcli.config import ModelConfig, SamplingConfig
from gptcli.generation.sampler import Sampler
from gptcli.generation.stream import Piece, Sample, stream_samples
from gptcli.model.gpt import GPT
from gptcli.tokenizer.bpe import train_bpe
from gptcli.tokenizer.char import char_tokenizer
from gptcli.tokenizer.tokenizer import Tokenizer
from tests.generation.scripted import script
from tests.model.reference import random_model

ALPHABET = "abcdefghijklmnop \n"
LETTERS = char_tokenizer(ALPHABET)
CONFIG = ModelConfig(vocab_size=LETTERS.vocab_size, n_layer=2, n_head=2, n_embd=16, block_size=16)


def finished(events: Iterable[Piece | Sample]) -> list[Sample]:
    """The summaries by sample number; checks on the way that the pieces of each join to its text."""
    pieces: dict[int, str] = {}
    done: dict[int, Sample] = {}
    for event in events:
        assert event.index not in done, "nothing comes after the end"
        if isinstance(event, Sample):
            done[event.index] = event
            assert pieces.get(event.index, "") == event.text
        else:
            assert event.text, "no empty pieces"
            pieces[event.index] = pieces.get(event.index, "") + event.text
    return [done[sample] for sample in sorted(done)]


def texts(model: GPT, prompt: str, **settings: object) -> list[str]:
    config = SamplingConfig.model_validate(settings)
    return [one.text for one in finished(stream_samples(model, LETTERS, LETTERS.encode(prompt), config))]


def check_samples_alone(model: GPT, **settings: object) -> None:
    """In float64, sample i of several is the one that seed + i gives alone."""
    together = texts(model, "abc", num_samples=4, seed=7, max_new_tokens=60, **settings)
    alone = [texts(model, "abc", seed=7 + sample, max_new_tokens=60, **settings)[0] for sample in range(4)]
    assert together == alone
    assert len(set(together)) == 4


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 1.0},
        {"top_k": 5, "top_p": 0.9, "min_p": 0.01, "repetition_penalty": 1.1},
        {"temperature": 1.5, "stop": ("a", "fg")},
    ],
)
def test_samples_do_not_disturb_each_other(settings: dict[str, object]) -> None:
    check_samples_alone(random_model(CONFIG), **settings)


def test_samples_check_notices_swapped_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    choose = Sampler.choose
    monkeypatch.setattr(Sampler, "choose", lambda self, logits: choose(self, logits.flip(0)))
    with pytest.raises(AssertionError):
        check_samples_alone(random_model(CONFIG), temperature=1.0)


def test_greedy_is_the_argmax_of_uncached_passes() -> None:
    model = random_model(CONFIG)
    ids = LETTERS.encode("abc")
    for _ in range(13):
        logits = model(torch.tensor([ids]))[0, -1]
        ids.append(int(logits[: len(ALPHABET)].argmax()))
    assert texts(model, "abc", temperature=0, max_new_tokens=13) == [LETTERS.decode(ids[3:])]


def test_one_prompt_and_three_new_tokens() -> None:
    """[1, 5] → [1, 8]."""
    model, prompt = random_model(CONFIG), LETTERS.encode("abcde")
    (one,) = finished(stream_samples(model, LETTERS, prompt, SamplingConfig(max_new_tokens=3, seed=1)))
    assert torch.tensor([prompt + LETTERS.encode(one.text)]).shape == (1, 8)


def test_past_the_window() -> None:
    config = SamplingConfig(max_new_tokens=40, seed=3)
    (one,) = finished(stream_samples(random_model(CONFIG), LETTERS, LETTERS.encode("ab"), config))
    assert (one.tokens, one.slides, one.finish_reason) == (40, 4, "length")


def test_ids_that_are_no_text_are_never_sampled() -> None:
    model = random_model(CONFIG.model_copy(update={"vocab_size": LETTERS.vocab_size + 5}))
    (text,) = texts(model, "a", temperature=50.0, max_new_tokens=400, seed=1)
    assert len(text) == 400
    assert set(text) == set(ALPHABET)


def generated(monkeypatch: pytest.MonkeyPatch, *rows: str, end: Iterable[int] = (), **settings: object) -> list[Sample]:
    """The samples of scripted rows of letters; `|` stands for the end-of-text id."""
    assert LETTERS.end_of_text is not None
    ids = [[LETTERS.end_of_text if char == "|" else LETTERS.encode(char)[0] for char in row] for row in rows]
    model = script(monkeypatch, ids, LETTERS.vocab_size)
    config = SamplingConfig.model_validate({"temperature": 0, "num_samples": len(rows), "seed": 1, **settings})
    return finished(stream_samples(model, LETTERS, [0], config, end_id=LETTERS.end_of_text))


def test_rows_end_each_in_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = generated(monkeypatch, "abcdefgh", "ab|c", "aa\n\nb", max_new_tokens=6, stop=["\n\n"])
    assert [(one.text, one.tokens, one.finish_reason, one.seed) for one in ends] == [
        ("abcdef", 6, "length", 1),
        ("ab", 3, "end_of_text", 2),
        ("aa", 4, "stop", 3),
    ]


def test_nothing_is_computed_after_the_last_end(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []
    choose = Sampler.choose
    monkeypatch.setattr(Sampler, "choose", lambda self, logits: (steps.append(1), choose(self, logits))[1])
    generated(monkeypatch, "a|", "abc|", max_new_tokens=100)
    assert len(steps) == 4


def test_held_back_text_comes_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = generated(monkeypatch, "abc", max_new_tokens=3, stop=["bcd"])
    assert (one.text, one.finish_reason) == ("abc", "length")


def test_no_tokens_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = generated(monkeypatch, "abc", max_new_tokens=0)
    assert (one.text, one.tokens, one.finish_reason, one.first_token_seconds) == ("", 0, "length", None)
    assert one.tokens_per_second is None


def test_speed_is_that_after_the_first_token(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([10.0, 12.0, 12.5])  # start, first token, end: two seconds of prefill, half a second for 5 tokens
    model = script(monkeypatch, [[0]], LETTERS.vocab_size)
    config = SamplingConfig(temperature=0, max_new_tokens=6)
    (one,) = finished(stream_samples(model, LETTERS, [0], config, clock=lambda: next(now)))
    assert (one.first_token_seconds, one.seconds, one.tokens_per_second) == (2.0, 2.5, 10.0)


def byte_tokenizer() -> Tokenizer:
    return train_bpe(["a"], 257)


def byte_ids(tokenizer: Tokenizer, data: bytes) -> list[int]:
    by_byte = {tokenizer.token_bytes(token): token for token in range(tokenizer.vocab_size)}
    return [by_byte[bytes([value])] for value in data]


def byte_pieces(monkeypatch: pytest.MonkeyPatch, data: bytes, **settings: object) -> Iterator[Piece | Sample]:
    tokenizer = byte_tokenizer()
    model = script(monkeypatch, [byte_ids(tokenizer, data)], tokenizer.vocab_size)
    config = SamplingConfig.model_validate({"temperature": 0, "max_new_tokens": len(data), **settings})
    return stream_samples(model, tokenizer, [0], config)


def test_characters_come_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = [event.text for event in byte_pieces(monkeypatch, "né🙂".encode()) if isinstance(event, Piece)]
    assert pieces == ["n", "é", "🙂"]


def test_a_cut_character_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = finished(byte_pieces(monkeypatch, "né".encode()[:2]))
    assert one.text == "n\N{REPLACEMENT CHARACTER}"


def test_stop_strings_are_matched_on_text_not_on_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = finished(byte_pieces(monkeypatch, "oui. né! plus".encode(), stop=["né!"]))
    assert (one.text, one.finish_reason, one.tokens) == ("oui. ", "stop", len("oui. né!".encode()))
