"""The tokenizer that the tests of this room share, and its encoder for long texts also for short ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gptcli.tokenizer import bytelevel
from gptcli.tokenizer.bpe import train_bpe
from gptcli.tokenizer.bytelevel import Tokenizer
from tests.tokenizer.text_samples import LESSON


@pytest.fixture(autouse=True, scope="session")
def _texts_of_any_length_are_long() -> Iterator[None]:
    """The library encodes short texts, which are easy to write down; these tests are about our own encoder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bytelevel, "_SHORT_CHARACTERS", 0)
        yield


@pytest.fixture(scope="session")
def bpe() -> Tokenizer:
    return train_bpe([LESSON * 3], 420)
