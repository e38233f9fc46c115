"""Logits that transformers computed once (make_golden.py): a proof that needs no transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from gptcli.model import gpt
from tests.interop.formula import CONFIGS, formula_model
from tests.model.reference import assert_close

GOLDEN = json.loads(Path(__file__).with_name("golden_logits.json").read_text(encoding="utf-8"))


def check_golden(name: str) -> None:
    logits = formula_model(name)(torch.tensor(GOLDEN["ids"]))[:, -1]  # (2, 23)
    dtype = torch.float64 if name == "gpt2" else torch.float32  # in which transformers norms and turns the others
    assert_close(logits.to(dtype), torch.tensor(GOLDEN["last_logits"][name], dtype=dtype))


@pytest.mark.parametrize("name", CONFIGS)
def test_golden_logits(name: str) -> None:
    check_golden(name)


@pytest.mark.parametrize(
    ("name", "owner", "attribute", "wrong"),
    [
        ("gpt2", gpt.F, "gelu", lambda plain: lambda x, approximate: plain(x)),
        ("qwen3", gpt.F, "silu", lambda plain: F.gelu),
        ("qwen3", gpt, "rotate", lambda plain: lambda x, rotation: plain(x, rotation.flip(1))),
        ("mixtral", Tensor, "topk", lambda plain: lambda x, k, dim: plain(x, k - 1, dim=dim)),
    ],
)
def test_golden_logits_notice_another_computation(
    name: str, owner: Any, attribute: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, attribute, wrong(getattr(owner, attribute)))
    with pytest.raises(AssertionError):
        check_golden(name)
