"""llama.cpp as the tests use it: its server, run inside this process by the xllamacpp wheel, asked over HTTP."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import xllamacpp
from torch import Tensor


class LlamaCpp:
    """A GGUF file opened by llama.cpp on one CPU thread."""

    def __init__(self, path: Path) -> None:
        settings = xllamacpp.CommonParams()
        settings.model.path = str(path)
        settings.port = 0  # any that is free
        settings.verbosity = 0
        settings.warmup = False
        settings.fit_params = False
        settings.n_gpu_layers = 0
        settings.n_parallel = 1
        settings.n_ctx = 0  # the model's own
        settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
        # Its cache holds half-precision numbers by default, which would be the largest difference of all.
        settings.cache_type_k = settings.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        settings.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self._server = xllamacpp.Server(settings)
        # A server that is let go before its loop has begun waits forever; one token shows that it has.
        self.complete([0], tokens=1)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of a text; `special` lets `<|endoftext|>` be the special token."""
        ids: list[int] = self._post("/tokenize", content=text, add_special=False, parse_special=special)["tokens"]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self._post("/detokenize", tokens=list(ids))["content"]
        return text

    def log_probabilities(self, ids: Sequence[int], vocab_size: int) -> Tensor:
        """(T, V) float64: row t is the distribution after ids[: t + 1]."""
        rows = torch.full((len(ids), vocab_size), torch.nan, dtype=torch.float64)
        # The answer names no probabilities after half a character or the end, so it has to go on with an `a`. That does
        # not touch them: they are those before sampling.
        options = {"n_predict": 1, "n_probs": vocab_size, "logit_bias": [[self.encode("a")[0], 1e6]]}
        for end in range(1, len(ids) + 1):
            answer = self._post("/completion", prompt=list(ids[:end]), cache_prompt=False, **options)
            for entry in answer["completion_probabilities"][0]["top_logprobs"]:
                rows[end - 1, entry["id"]] = entry["logprob"]
        assert not rows.isnan().any(), "some tokens have no probability"
        return rows

    def complete(self, ids: Sequence[int], tokens: int) -> dict[str, Any]:
        """Its greedy continuation."""
        return self._post("/completion", prompt=list(ids), n_predict=tokens, temperature=0)

    def _post(self, path: str, **body: Any) -> Any:
        request = urllib.request.Request(
            self._server.listening_address + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)
