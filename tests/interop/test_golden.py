"""Logits that transformers computed once (make_golden.py): the proof that this is GPT-2 where it is not installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from gptcli.model import gpt
from tests.interop.formula import formula_model
from tests.model.reference import assert_close

GOLDEN = json.loads(Path(__file__).with_name("golden_logits.json").read_text(encoding="utf-8"))


def check_golden() -> None:
    logits = formula_model()(torch.tensor(GOLDEN["ids"]))[:, -1]  # (2, 23)
    assert_close(logits, torch.tensor(GOLDEN["last_logits"], dtype=torch.float64))


def test_golden_logits() -> None:
    check_golden()


def test_golden_logits_notice_the_other_gelu(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = F.gelu
    monkeypatch.setattr(gpt.F, "gelu", lambda x, approximate: exact(x))
    with pytest.raises(AssertionError):
        check_golden()
