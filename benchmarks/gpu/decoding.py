"""The speed of generating: one text against transformers, many at once, and the time to the first token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.setting import Setting, beside_transformers
from benchmarks.measure import alternate, read_bandwidth
from benchmarks.training import transformers_model
from gptcli.bench.limits import wait_for
from gptcli.bench.target import stand_in_tokenizer
from gptcli.config import SamplingConfig
from gptcli.generation.loaded_model import LoadedModel
from gptcli.generation.placement import place
from gptcli.generation.prompt import Prompt
from gptcli.generation.stream import Sample
from gptcli.model.cost import bytes_per_step
from gptcli.model.devices import torch_dtype
from gptcli.model.gpt import GPT

TOP_K, TEMPERATURE = 50, 0.8


class Writer:
    """GPT-2 with random weights, loaded as `sample` loads it."""

    def __init__(self, setting: Setting) -> None:
        torch.manual_seed(0)
        model = place(GPT(setting.size.gpt2).requires_grad_(False).eval(), setting.device, setting.dtype)
        tokenizer = stand_in_tokenizer(setting.size.gpt2.vocab_size)
        self.loaded = LoadedModel(Path("gpt2"), model, tokenizer, start_id=0)

    @property
    def model(self) -> GPT:
        return self.loaded.model

    def generate(self, prompt: int, tokens: int, samples: int = 1) -> Sample:
        """One of `samples` samples of `tokens` tokens after a prompt of `prompt` tokens."""
        config = SamplingConfig(max_new_tokens=tokens, num_samples=samples, temperature=TEMPERATURE, top_k=TOP_K)
        return self.loaded.generate(Prompt("", list(range(prompt)), ()), config)[-1]


def sample_gpt2(setting: Setting) -> dict[str, Any]:
    """One sequence at a time, whole calls with prefill, against transformers; then many sequences at once."""
    size, writer = setting.size, Writer(setting)
    calls, problem = beside_transformers(
        lambda: writer.generate(size.prompt, size.new_tokens), lambda: their_generate(setting)
    )
    seconds = alternate(calls, size.rounds)
    writer.generate(size.prompt, size.new_tokens, size.samples)
    bandwidth = read_bandwidth(setting.device)
    return {
        "dtype": setting.dtype,
        "tokens_per_second": {who: size.new_tokens / taken for who, taken in seconds.items()},
        "times_faster": None if problem else seconds["transformers"] / seconds["gptcli"],
        "problem": problem,
        "bandwidth": bandwidth,
        "one": _decoding(writer, setting, 1, bandwidth),
        "num_samples": size.samples,
        "many": _decoding(writer, setting, size.samples, bandwidth),
    }


def _decoding(writer: Writer, setting: Setting, samples: int, bandwidth: float) -> dict[str, float | None]:
    """Figures of decoding, after the first token."""
    size = setting.size
    text = writer.generate(size.prompt, size.new_tokens, samples)
    steps = text.tokens_per_second or 0.0
    step_bytes = bytes_per_step(writer.model, samples, size.prompt + size.new_tokens / 2)
    return {
        "tokens_per_second": samples * steps,
        "share_of_bandwidth": step_bytes * steps / bandwidth,
        "first_token_seconds": text.first_token_seconds,
    }


def their_generate(setting: Setting) -> Callable[[], object]:
    """`generate` of transformers with default settings and the same filters."""
    size = setting.size
    model = transformers_model(size.gpt2).eval().to(device=setting.device, dtype=torch_dtype(setting.dtype))
    ids = torch.arange(size.prompt, device=setting.device)[None]
    choice = {"do_sample": True, "temperature": TEMPERATURE, "top_k": TOP_K, "pad_token_id": 0}
    length = {"max_new_tokens": size.new_tokens, "min_new_tokens": size.new_tokens}

    def run() -> None:
        model.generate(ids, attention_mask=torch.ones_like(ids), **length, **choice)
        wait_for(setting.device)

    return run


def first_token(setting: Setting) -> Iterator[dict[str, Any]]:
    """Seconds to the first token of prompts whose lengths are new, and of the same prompts again."""
    writer = Writer(setting)
    writer.generate(2, 2)
    context = setting.size.gpt2.block_size
    for prompt in (context // 8 + 1, context // 4 + 1, context // 2 + 1, context // 2 + 2, context - 2):
        new, again = (writer.generate(prompt, 1).first_token_seconds for _ in range(2))
        yield {"prompt": prompt, "new length (s)": new, "again (s)": again}
