"""The logit lens and the neighbors of a token."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from gptcli.errors import UsageError
from gptcli.generation.loaded_model import LoadedModel
from gptcli.model.gpt import GPT
from gptcli.tokenizer.char import char_tokenizer
from tests.model.reference import random_model, reference_logits
from tests.model.variants import VARIANTS, variant

TEXT = "abcabdacé"
TOKENIZER = char_tokenizer("abcdé")
IDS = TOKENIZER.encode(TEXT)


def loaded(model: GPT) -> LoadedModel:
    return LoadedModel(Path("x"), model, TOKENIZER, start_id=0)


@pytest.mark.parametrize("name", VARIANTS)
def test_the_last_row_is_the_prediction_of_the_model(name: str) -> None:
    model = random_model(variant(name))
    lens = loaded(model).lens(TEXT)
    expected = reference_logits(model, torch.tensor([IDS]))[0].log_softmax(-1)  # (T, V)
    assert len(lens.layers) == model.config.n_layer + 1
    assert [token.id for token in lens.tokens] == IDS
    for place, found in enumerate(lens.layers[-1]):
        best = expected[place, : TOKENIZER.vocab_size].sort(descending=True)
        assert [token.id for token in found.likeliest] == best.indices[:3].tolist()
        assert [token.logprob for token in found.likeliest] == pytest.approx(best.values[:3].tolist(), abs=1e-9)
    own = [found.logprob for found in lens.layers[-1]]
    assert own[:-1] == pytest.approx([expected[t, IDS[t + 1]].item() for t in range(len(IDS) - 1)], abs=1e-9)
    assert math.isnan(own[-1])


def test_the_first_row_reads_the_embeddings_alone() -> None:
    """Without positions and blocks, equal tokens have equal predictions; after a block they differ."""
    lens = loaded(random_model(variant("llama"))).lens(TEXT)
    equal = [place for place, char in enumerate(TEXT) if char == "a"]
    assert len({lens.layers[0][place].likeliest for place in equal}) == 1
    assert len({lens.layers[1][place].likeliest for place in equal}) == len(equal)


def test_a_long_text_is_cut() -> None:
    lens = loaded(random_model(variant("gpt2"))).lens(TEXT * 2)
    assert len(lens.tokens) == len(lens.layers[0]) == 12
    assert "first 12 of 18 tokens" in lens.notes[0]


def test_neighbors_are_sorted_by_the_cosine_of_embeddings() -> None:
    model = random_model(variant("gpt2"))
    found = loaded(model).neighbors("b")
    rows = model.wte.weight.numpy()
    token = found.token.id
    expected = {
        other: rows[other] @ rows[token] / np.linalg.norm(rows[other]) / np.linalg.norm(rows[token])
        for other in np.flatnonzero(TOKENIZER.emittable).tolist()
        if other != token
    }
    assert [near.token.id for near in found.nearest] == sorted(expected, key=expected.__getitem__, reverse=True)
    assert [near.similarity for near in found.nearest] == pytest.approx(sorted(expected.values(), reverse=True))
    assert found.token.text == "b"


def test_several_tokens_have_no_neighbors() -> None:
    with pytest.raises(UsageError, match=r"2 tokens.*'a', 'b'"):
        loaded(random_model(variant("gpt2"))).neighbors("ab")
