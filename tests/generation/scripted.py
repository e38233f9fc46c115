"""A stand-in for the context window that generates given ids."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from gptcli.config import ModelConfig
from gptcli.generation import stream
from gptcli.model.gpt import GPT


def script(monkeypatch: pytest.MonkeyPatch, rows: Sequence[Sequence[int]], vocab_size: int) -> GPT:
    """Make `generate` choose the ids of `rows`, one sequence for each sample; past its end a row repeats its last."""

    class ScriptedWindow:
        slides = 0

        def __init__(self, model: GPT, batch_size: int, decoders: object) -> None:
            assert batch_size == len(rows)
            self.step = -1

        def close(self) -> None:
            pass

        def prefill(self, prompt: Tensor) -> Tensor:
            return self.append(prompt)

        def append(self, tokens: Tensor) -> Tensor:
            self.step += 1
            logits = torch.full((len(rows), vocab_size), -1e9)
            for row, ids in enumerate(rows):
                logits[row, ids[min(self.step, len(ids) - 1)]] = 0
            return logits

    monkeypatch.setattr(stream, "ContextWindow", ScriptedWindow)
    return GPT(ModelConfig(vocab_size=vocab_size, n_layer=1, n_head=1, n_embd=1, block_size=1))
