"""The tokenizer that the tests of this room share."""

from __future__ import annotations

import pytest

from gptcli.tokenizer.bpe import train_bpe
from gptcli.tokenizer.bytelevel import Tokenizer
from tests.tokenizer.text_samples import LESSON


@pytest.fixture(scope="session")
def bpe() -> Tokenizer:
    return train_bpe([LESSON * 3], 420)
