"""How many tokens a second does sampling give, against transformers and llama.cpp, in float32, one text at a time?

32 prompt tokens and 128 new ones, temperature 0.8, top-k 50, random weights. The limit is memory bandwidth: each token
reads every weight once. llama.cpp opens the GGUF file that `gptcli export` writes.

    python -m benchmarks.sampling [tiny|small|gpt2]...
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import alternate, read_bandwidth, save
from gptcli.checkpoints.model_folder import ModelFolder
from gptcli.config import ModelConfig, SamplingConfig
from gptcli.export.gguf_file import export_gguf
from gptcli.generation.load import decoding_threads
from gptcli.generation.stream import generate
from gptcli.interop.huggingface import config_to_hf, tensors_to_hf
from gptcli.model.gpt import GPT
from gptcli.text.bpe import train_bpe

PROMPT, NEW = 32, 128
SHAPES = {"tiny": (4, 4, 128, 256), "small": (6, 6, 384, 256), "gpt2": (12, 12, 768, 1024)}
"""Layers, heads, width, context."""


def sample_gptcli(folder: ModelFolder, prompt: list[int]) -> Callable[[], object]:
    """This program's own stream."""
    config = SamplingConfig(max_new_tokens=NEW, temperature=0.8, top_k=50)
    threads, all_threads = decoding_threads(folder.model), torch.get_num_threads()

    def run() -> None:
        torch.set_num_threads(threads)
        for _ in generate(folder.model, folder.tokenizer, prompt, config):
            pass
        torch.set_num_threads(all_threads)

    return run


def sample_transformers(folder: ModelFolder, prompt: list[int]) -> Callable[[], object]:
    """`generate` of transformers, with its key-value cache."""
    from transformers import GPT2Config, GPT2LMHeadModel

    settings = config_to_hf(folder.model.config, bos_token_id=0, eos_token_id=None)
    model = GPT2LMHeadModel(GPT2Config(**settings, attn_implementation="sdpa")).eval()
    model.load_state_dict(tensors_to_hf(folder.model.state_dict(), folder.model.config), strict=False)
    ids = torch.tensor([prompt])
    options = {"max_new_tokens": NEW, "do_sample": True, "temperature": 0.8, "top_k": 50, "pad_token_id": 0}
    return lambda: model.generate(ids, attention_mask=torch.ones_like(ids), **options)


def llama_cpp_rate(gguf: Path, prompt: list[int]) -> Callable[[], float]:
    """Tokens a second of llama.cpp's server, by its own count, which leaves the prompt out."""
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = str(gguf)
    settings.port, settings.verbosity, settings.n_gpu_layers, settings.n_parallel = 0, 0, 0, 1
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = torch.get_num_threads()
    server = xllamacpp.Server(settings)
    options = {"n_predict": NEW, "temperature": 0.8, "top_k": 50, "top_p": 1.0, "min_p": 0.0, "ignore_eos": True}
    body = json.dumps({"prompt": prompt, "cache_prompt": False, **options}).encode()

    def run() -> float:
        request = urllib.request.Request(
            server.listening_address + "/completion", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:
            return float(json.load(answer)["timings"]["predicted_per_second"])

    return run


def random_model(name: str, path: Path) -> ModelFolder:
    """A model with random weights, and a small tokenizer: rows beyond its ids are computed and never drawn."""
    n_layer, n_head, n_embd, block_size = SHAPES[name]
    tokenizer = train_bpe([Path(argparse.__file__).read_text(encoding="utf-8")], 512)
    rows = 50257 if name == "gpt2" else tokenizer.vocab_size
    config = ModelConfig(vocab_size=rows, n_layer=n_layer, n_head=n_head, n_embd=n_embd, block_size=block_size)
    torch.manual_seed(0)
    return ModelFolder(path, GPT(config).requires_grad_(False).eval(), tokenizer, 0, None, None, None)


def measure(name: str, bandwidth: float, rounds: int = 5) -> dict[str, Any]:
    """Tokens a second; prefill and start count for gptcli and transformers, not for llama.cpp, which tells its own."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = random_model(name, Path(scratch) / name)
        prompt = list(range(PROMPT))
        export_gguf(folder, Path(scratch) / "model.gguf", "f32")
        llama_cpp = llama_cpp_rate(Path(scratch) / "model.gguf", prompt)
        llama_cpp_rates: list[float] = []
        seconds = alternate(
            {
                "gptcli": sample_gptcli(folder, prompt),
                "transformers": sample_transformers(folder, prompt),
                "llama.cpp": lambda: llama_cpp_rates.append(llama_cpp()),
            },
            rounds,
        )
    rates = {"gptcli": NEW / seconds["gptcli"], "transformers": NEW / seconds["transformers"]}
    rates["llama.cpp"] = statistics.median(llama_cpp_rates[2:])
    weight_bytes = 4 * sum(parameter.numel() for parameter in folder.model.parameters())
    limit = bandwidth / weight_bytes
    ratios = {peer: rates["gptcli"] / rates[peer] for peer in ("transformers", "llama.cpp")}
    return {"tokens_per_second": rates, "ratios": ratios, "limit": limit, "share_of_limit": rates["gptcli"] / limit}


def main() -> None:
    bandwidth = read_bandwidth()
    chosen = sys.argv[1:] or list(SHAPES)
    save("sampling", {"read_bandwidth": bandwidth, "rows": {name: measure(name, bandwidth) for name in chosen}})


if __name__ == "__main__":
    main()
