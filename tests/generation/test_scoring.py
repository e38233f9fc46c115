"""`gptcli eval`: the windows, and the same figures as transformers' way of measuring perplexity."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterable, Iterator
from itertools import islice, repeat
from pathlib import Path

import numpy as np
import pytest
import torch

from gptcli.config import ModelConfig
from gptcli.errors import CorpusError, TokenizerError, UsageError
from gptcli.generation import scoring
from gptcli.generation.loaded_model import LoadedModel
from gptcli.generation.scoring import strided_windows
from gptcli.interop.huggingface import config_to_hf, tensors_to_hf
from gptcli.model import loss
from gptcli.model.gpt import GPT, gpt_on_meta
from gptcli.model.resize import with_context
from gptcli.tokenizer.char import char_tokenizer

TEXT = "the quick brown fox jumps over the lazy dog, é and 中. " * 4
CONTEXT = 16
FLOAT32 = 1e-6
"""transformers takes its loss in float32 whatever the model is in."""


@pytest.fixture
def folder() -> LoadedModel:
    tokenizer = char_tokenizer(TEXT)
    torch.manual_seed(5)
    config = ModelConfig(vocab_size=tokenizer.vocab_size, n_layer=2, n_head=2, n_embd=16, block_size=CONTEXT)
    model = GPT(config).double().requires_grad_(False).eval()
    for parameter in model.parameters():
        parameter.mul_(5)  # far from uniform, so that each window's context matters
    return LoadedModel(Path("x"), model, tokenizer, start_id=0)


def transformers_loss(folder: LoadedModel, ids: list[int], stride: int) -> float:
    """The loop of transformers' page "Perplexity of fixed-length models", with its model."""
    transformers = pytest.importorskip("transformers")
    settings = config_to_hf(folder.model.config, bos_token_id=0, eos_token_id=None)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**settings)).double().eval()
    state = tensors_to_hf(folder.model.state_dict(), folder.model.config)
    missing, unexpected = model.load_state_dict(state | {"lm_head.weight": folder.model.wte.weight}, strict=False)
    assert not missing
    assert not unexpected
    encoded = torch.tensor([ids])
    nats, counted, previous_end = 0.0, 0, 0
    for begin in range(0, len(ids), stride):
        end = min(begin + CONTEXT, len(ids))
        target = encoded[:, begin:end].clone()
        target[:, : -(end - previous_end)] = -100
        valid = int((target[:, 1:] != -100).sum())
        if valid:
            nats += model(encoded[:, begin:end], labels=target).loss.item() * valid
            counted += valid
        previous_end = end
        if end == len(ids):
            break
    return nats / counted


def score(folder: LoadedModel, path: Path, stride: int) -> float:
    path.write_text(TEXT, encoding="utf-8")
    return folder.score([str(path)], stride=stride).total.loss


@pytest.mark.parametrize("stride", [1, 5, 8, CONTEXT - 1, CONTEXT])
def test_the_figure_is_that_of_transformers(folder: LoadedModel, tmp_path: Path, stride: int) -> None:
    expected = transformers_loss(folder, folder.tokenizer.encode(TEXT), stride)
    assert score(folder, tmp_path / "a.txt", stride) == pytest.approx(expected, rel=FLOAT32)


def test_control_scoring_from_another_token_on_changes_the_figure(
    folder: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = transformers_loss(folder, folder.tokenizer.encode(TEXT), 8)
    true_windows = strided_windows

    def shifted(parts: Iterable[np.ndarray], context: int, stride: int) -> Iterator[scoring.ScoredWindow]:
        for window in true_windows(parts, context, stride):
            yield scoring.ScoredWindow(window.ids, min(len(window.ids), window.first_scored + 1))

    monkeypatch.setattr(scoring, "strided_windows", shifted)
    assert score(folder, tmp_path / "a.txt", 8) != pytest.approx(expected, rel=FLOAT32)


@pytest.mark.parametrize(("tokens", "stride"), [(2, 1), (16, 16), (17, 4), (50, 7), (33, 15)])
def test_with_overlap_every_token_but_the_first_is_scored_once(tokens: int, stride: int) -> None:
    windows = strided_windows([np.arange(tokens)], 16, stride)
    scored = [place for window in windows for place in window.ids[window.first_scored :].tolist()]
    assert scored == [place for place in range(1, tokens) if stride < 16 or place % 16]


def whole_windows(tokens: int, context: int, stride: int) -> list[tuple[list[int], int]]:
    """The windows of a text that is in memory as a whole: their ids, and the first scored place in each."""
    found, scored_to = [], 0
    for begin in range(0, tokens, stride):
        end = min(begin + context, tokens)
        found.append((list(range(begin, end)), max(begin + 1, scored_to) - begin))
        scored_to = end
        if end == tokens:
            break
    return found


@pytest.mark.parametrize("stride", [1, 3, 5, 8])
@pytest.mark.parametrize("tokens", [1, 2, 7, 8, 9, 13, 16, 17, 40])
def test_parts_of_any_length_give_the_windows_of_the_whole_text(
    tokens: int, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "PART_TOKENS", 11)
    for cuts in ([], [1], [5], [3, 4, 9], list(range(1, 40)), [8, 16]):
        parts = np.split(np.arange(tokens, dtype=np.uint16), [cut for cut in cuts if cut < tokens])
        windows = [(window.ids.tolist(), window.first_scored) for window in strided_windows(parts, 8, stride)]
        assert windows == whole_windows(tokens, 8, stride)


def test_windows_come_while_the_text_is_read() -> None:
    endless = strided_windows(repeat(np.arange(5)), 16, 4)
    assert len(next(islice(endless, 5000, None)).ids) == 16


def test_a_long_text_is_read_as_it_is_scored(
    folder: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory does not grow with the text: neither its windows nor their losses wait for the end."""
    live: list[int] = []
    plain = scoring._nats

    def watched(model: GPT, windows: list[scoring.ScoredWindow]) -> torch.Tensor:
        gc.collect()
        live.append(sum(type(thing) in (torch.Tensor, scoring.ScoredWindow) for thing in gc.get_objects()))
        return plain(model, windows)

    monkeypatch.setattr(scoring, "_nats", watched)
    monkeypatch.setattr(scoring, "BATCH_TOKENS", {"cpu": 4 * CONTEXT})
    score(folder, tmp_path / "a.txt", 4)
    assert len(live) > 10
    assert len(set(live[2:-2])) == 1, "the first and the last window have other shapes"


def test_the_host_waits_for_many_batches_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the meta device, where values cannot be read, only the end fails."""
    monkeypatch.setitem(scoring.BATCH_TOKENS, "meta", 4 * CONTEXT)
    monkeypatch.setitem(loss.PLAIN_LOGITS, "meta", 1 << 20)
    model = gpt_on_meta(ModelConfig(vocab_size=7, n_layer=1, n_head=2, n_embd=16, block_size=CONTEXT)).eval()
    seen: list[int] = []
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        scoring._score_windows(
            model, strided_windows([np.arange(500) % 7], CONTEXT, 4), lambda count, last: seen.append(count)
        )
    assert seen[-1] == len(whole_windows(500, CONTEXT, 4))
    assert 10 < len(seen) < scoring.LOSSES_AT_ONCE


@pytest.mark.parametrize("at_once", [1, 2, 3, 1000])
def test_losses_read_together_are_those_read_one_by_one(
    folder: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(scoring, "BATCH_TOKENS", {"cpu": CONTEXT})
    expected = score(folder, tmp_path / "a.txt", 4)
    monkeypatch.setattr(scoring, "LOSSES_AT_ONCE", at_once)
    assert score(folder, tmp_path / "a.txt", 4) == expected


def test_bits_and_totals(folder: LoadedModel, tmp_path: Path) -> None:
    for name, text in (("a.txt", TEXT), ("b.txt", "the dog é")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    result = folder.score([str(tmp_path)])
    one, two = result.texts
    assert [one.name, two.name] == ["a.txt", "b.txt"]
    assert result.total.nats == pytest.approx(one.nats + two.nats)
    assert one.tokens == one.characters == len(TEXT)
    assert one.bits_per_character == pytest.approx(one.loss / math.log(2))
    assert one.bits_per_byte == pytest.approx(one.bits_per_character * len(TEXT) / len(TEXT.encode()))
    assert one.perplexity == pytest.approx(math.exp(one.loss))


def test_progress_goes_from_text_to_text(folder: LoadedModel, tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(TEXT, encoding="utf-8")
    seen: list[tuple[str, int, int]] = []
    folder.score([str(tmp_path)], on_progress=lambda *now: seen.append(now))
    done = [count for _, count, _ in seen]
    size = len(TEXT.encode())
    assert {(stage, total) for stage, _, total in seen} == {("scoring", 2 * size)}
    assert done == sorted(done)
    assert size in done
    assert done[-1] == 2 * size


def test_texts_and_settings_that_cannot_be_scored(folder: LoadedModel, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("dog!", encoding="utf-8")
    with pytest.raises(TokenizerError, match=r"a\.txt' cannot be encoded: the tokenizer does not know .*!"):
        folder.score([str(path)])
    scores = folder.score([str(path)], unknown="skip")
    assert scores.total.tokens == 3
    assert "1 character" in scores.notes[0]
    with pytest.raises(UsageError, match=r"stride.*16"):
        folder.score([str(path)], stride=17, unknown="skip")
    path.write_text("d", encoding="utf-8")
    with pytest.raises(CorpusError, match="too short"):
        folder.score([str(path)], unknown="skip")
    with_context(folder.model, 1)
    with pytest.raises(UsageError, match="context of 1 token"):
        folder.score([str(path)], unknown="skip")


def test_one_text_needs_no_list(folder: LoadedModel, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    one = folder.score([str(tmp_path / "a.txt")])
    assert folder.score(str(tmp_path / "a.txt")) == folder.score(tmp_path / "a.txt") == one
    with pytest.raises(UsageError, match="5 is not a path"):
        folder.score(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("prompt", [None, 5, b"a"])
def test_a_prompt_is_text(folder: LoadedModel, prompt: object) -> None:
    with pytest.raises(UsageError, match="not text"):
        folder.generate(prompt)  # type: ignore[arg-type]
