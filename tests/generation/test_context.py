"""`--context`: more tokens than a model was trained with, where its positions allow it."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from gptcli.generation.loaded_model import open_model
from gptcli.model.resize import with_context
from gptcli.tokenizer.char import char_tokenizer
from tests.generation.conftest import ALPHABET, Sample, model_folder
from tests.model.reference import assert_close, random_model
from tests.model.variants import variant

CHARACTERS = sorted(ALPHABET)


def test_a_context_beyond_the_training(tmp_path: Path) -> None:
    """A model with rope has no last position; one with learned positions has. A shorter context works for all."""
    turning = model_folder(tmp_path / "turning", position="rope")
    prompt = ["-p", "abcdefg" * 6, "-n", "5", "-t", "0", "-v"]
    assert "more than the context window of 16" in Sample([turning])(*prompt).err
    longer = Sample([turning])(*prompt, "--context", "64")
    assert longer.code == 0
    assert "more than the context window" not in longer.err
    model = open_model(turning).model
    ids = torch.tensor([char_tokenizer(ALPHABET).encode("abcdefg" * 6)])
    first = with_context(model, 64)(ids)[0, -1, : len(ALPHABET)].argmax()
    assert longer.out[42] == CHARACTERS[first]


def test_learned_positions_end(sample: Sample) -> None:
    answer = sample("-p", "abc", "-n", "2", "--context", "17")
    assert answer.code == 2
    assert re.search("learned positions for 16 .*17", answer.err)
    assert "model.position" in answer.err
    assert sample("-p", "abcdefgabcdefg", "-n", "2", "--context", "8").code == 0


def test_longer_tables_begin_as_the_short_ones() -> None:
    """Inside the old context nothing changes."""
    for name in ("sinusoidal", "qwen3", "rope_scaling"):
        model = random_model(variant(name))
        ids = torch.randint(23, (2, 12))
        before = model(ids)
        longer = with_context(model, 30)
        assert_close(longer(ids), before)
        assert longer(torch.randint(23, (1, 30))).shape == (1, 30, 23)
