"""The worked examples in the docstrings."""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest

from gptcli.generation import context_window, filters, stops


@pytest.mark.parametrize("module", [context_window, filters, stops])
def test_examples(module: ModuleType) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
