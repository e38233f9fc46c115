"""Tokens per second of sampling on a CPU, compared with transformers, llama.cpp and CTranslate2.

32 prompt tokens and 128 new ones, temperature 0.8, top-k 50, random weights. The limit is memory bandwidth: each token
reads every weight once. llama.cpp reports its own rate without the prompt, which is compared with gptcli's rate without
the prompt; transformers and CTranslate2 are compared by whole calls. Questions that are not named keep their figures.

    python -m benchmarks.sampling [gpt2|int8|prefill|many|small|tiny|start|divergence]...
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.competitors import Rates, medians
from benchmarks.measure import CPU, RESULTS, read_bandwidth, save
from benchmarks.peers import ctranslate2_rate, hf_folder, llama_cpp_rate, transformers_model
from gptcli.checkpoints import names
from gptcli.checkpoints.tensors import tensor_file
from gptcli.cli.threads import ALONE as ALONE_COUNT
from gptcli.cli.threads import SPIN_COUNT
from gptcli.config import ModelConfig, SamplingConfig
from gptcli.exports.gguf import write_gguf
from gptcli.generation.context_window import ContextWindow
from gptcli.generation.loaded_model import LoadedModel
from gptcli.generation.placement import decoding_threads, place
from gptcli.generation.stream import Sample, stream_samples
from gptcli.interop.huggingface import config_to_hf, tensors_to_hf
from gptcli.model.gpt import GPT
from gptcli.model.int8 import Int8GPT
from gptcli.storage import to_json
from gptcli.tokenizer.bpe import train_bpe
from gptcli.tokenizer.char import char_tokenizer

PROMPT, NEW, LONG_PROMPT, MANY = 32, 128, 512, 32
SHAPES = {"tiny": (4, 4, 128, 256), "small": (6, 6, 384, 256), "gpt2": (12, 12, 768, 1024)}
"""Layers, heads, width, context. `gpt2` has GPT-2's 50,257 rows, the others have rows for 65 characters."""
WRITING: dict[str, Any] = {"max_new_tokens": NEW, "temperature": 0.8, "top_k": 50}
ALONE = {SPIN_COUNT: ALONE_COUNT}
"""The spin count of `gptcli sample` on an idle machine; the other programs keep their own defaults."""


def random_model(name: str) -> LoadedModel:
    """A model with random weights; rows beyond the ids of its tokenizer are computed, but never sampled."""
    n_layer, n_head, n_embd, block_size = SHAPES[name]
    tokenizer = train_bpe([Path(__file__).read_text(encoding="utf-8")], 512)
    if name != "gpt2":
        tokenizer = char_tokenizer("".join(map(chr, range(33, 98))))
    rows = 50257 if name == "gpt2" else tokenizer.vocab_size
    config = ModelConfig(vocab_size=rows, n_layer=n_layer, n_head=n_head, n_embd=n_embd, block_size=block_size)
    torch.manual_seed(0)
    return LoadedModel(Path(name), GPT(config).requires_grad_(False).eval(), tokenizer, start_id=0)


def writing(name: str, int8: bool, samples: int) -> Callable[[], Rates]:
    """Generating as `sample` does: tokens per second of whole calls, and after the prompt."""
    folder = random_model(name)
    model = place(folder.model, CPU, None, int8=int8)
    config = SamplingConfig(**WRITING, num_samples=samples)
    torch.set_num_threads(decoding_threads(model, samples))

    def run() -> Rates:
        started = time.perf_counter()
        *_, last = stream_samples(model, folder.tokenizer, list(range(PROMPT)), config)
        seconds = time.perf_counter() - started
        assert isinstance(last, Sample)
        assert last.tokens_per_second
        return {"": samples * NEW / seconds, " after the prompt": samples * last.tokens_per_second}

    return run


def transformers_writing(folder: Path) -> Callable[[], Rates]:
    """Tokens per second of transformers, in whole calls."""
    model, ids = transformers_model(folder), torch.arange(PROMPT)[None]
    options = {"max_new_tokens": NEW, "do_sample": True, "temperature": 0.8, "top_k": 50, "pad_token_id": 0}

    def run() -> Rates:
        started = time.perf_counter()
        model.generate(ids, attention_mask=torch.ones_like(ids), **options)
        return {"": NEW / (time.perf_counter() - started)}

    return run


def decoding(
    name: str, bandwidth: float, peers: Mapping[str, tuple[Any, ...]], *, int8: bool = False
) -> dict[str, Any]:
    """Rates of gptcli and of `peers`, ratios, and the share of the rate that memory bandwidth allows."""
    rates = medians({"gptcli": (writing, name, int8, 1), **peers}, environments={"gptcli": ALONE})
    compared = {peer: "gptcli after the prompt" if peer.startswith("llama.cpp") else "gptcli" for peer in peers}
    parameters = sum(parameter.numel() for parameter in random_model(name).model.parameters())
    limit = bandwidth / (parameters * (1 if int8 else 4))
    return {
        "tokens_per_second": rates,
        "ratios": {peer: rates[own] / rates[peer] for peer, own in compared.items()},
        "limit": limit,
        "share_of_limit": rates["gptcli after the prompt"] / limit,
    }


def float32(name: str, bandwidth: float, scratch: Path) -> dict[str, Any]:
    """gptcli against transformers, llama.cpp and CTranslate2, all in float32."""
    folder = random_model(name)
    write_gguf(folder, scratch / "f32.gguf", "f32")
    written = hf_folder(folder.model, scratch / "hf")
    peers: dict[str, tuple[Any, ...]] = {"transformers": (transformers_writing, written)}
    peers["llama.cpp"] = (llama_cpp_rate, scratch / "f32.gguf", list(range(PROMPT)), NEW, "predicted_per_second")
    if name == "gpt2":
        peers["CTranslate2"] = (ctranslate2_rate, written, scratch, "float32", PROMPT, NEW)
    return decoding(name, bandwidth, peers)


def eight_bits(bandwidth: float, scratch: Path) -> dict[str, Any]:
    """`--quantize int8` against the 8-bit weights of other programs."""
    folder = random_model("gpt2")
    write_gguf(folder, scratch / "q8_0.gguf", "q8_0")
    written = hf_folder(folder.model, scratch / "hf")
    prompt = list(range(PROMPT))
    peers: dict[str, tuple[Any, ...]] = {
        "llama.cpp q8_0": (llama_cpp_rate, scratch / "q8_0.gguf", prompt, NEW, "predicted_per_second"),
        "CTranslate2 int8": (ctranslate2_rate, written, scratch, "int8", PROMPT, NEW),
    }
    return decoding("gpt2", bandwidth, peers, int8=True)


def reading(prompt: list[int], int8: bool) -> Callable[[], Rates]:
    """Prefill with GPT-2 124M, in tokens per second."""
    model, ids = place(random_model("gpt2").model, CPU, None, int8=int8), torch.tensor([prompt])

    def run() -> Rates:
        window, started = ContextWindow(model, 1), time.perf_counter()
        window.prefill(ids)
        return {"": len(prompt) / (time.perf_counter() - started)}

    return run


def prefill(scratch: Path) -> dict[str, Any]:
    """Prefill of 512 tokens, up to the logits of the next token."""
    folder = random_model("gpt2")
    prompt = [token % folder.tokenizer.vocab_size for token in range(LONG_PROMPT)]
    write_gguf(folder, scratch / "f32.gguf", "f32")
    rates = medians(
        {
            "gptcli": (reading, prompt, False),
            "gptcli int8": (reading, prompt, True),
            "llama.cpp": (llama_cpp_rate, scratch / "f32.gguf", prompt, 1, "prompt_per_second"),
        },
        environments={"gptcli": ALONE, "gptcli int8": ALONE},
    )
    return {"tokens_per_second": rates, "ratios": {"llama.cpp": rates["gptcli"] / rates["llama.cpp"]}}


def many() -> dict[str, Any]:
    """32 sequences at once, all together, against one."""
    rows: dict[str, Any] = {}
    for name, int8 in (("gpt2", False), ("gpt2 int8", True), ("tiny", False)):
        numbers = {str(samples): (writing, name.split()[0], int8, samples) for samples in (1, MANY)}
        rates = medians(numbers, rounds=3, environments=dict.fromkeys(numbers, ALONE))
        rows[name] = {"tokens_per_second": rates, "times_one": rates[str(MANY)] / rates["1"]}
    return rows


def process(*arguments: str) -> Callable[[], Rates]:
    """Seconds of a whole Python process."""

    def run() -> Rates:
        started = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        return {"": time.perf_counter() - started}

    return run


def start(scratch: Path) -> dict[str, Any]:
    """Whole processes: `gptcli sample RUN -n 1` with a tiny model, against `import torch`."""
    run, folder = scratch / "run", random_model("tiny")
    run.mkdir()
    config = config_to_hf(folder.model.config, bos_token_id=0, eos_token_id=None)
    weights = tensors_to_hf(folder.model.state_dict(), folder.model.config)
    (run / names.CONFIG).write_bytes(to_json(config))
    (run / names.MODEL).write_bytes(b"".join(tensor_file(weights, {})))
    (run / names.TOKENIZER).write_text(folder.tokenizer.to_json(), encoding="utf-8")
    sample = (process, "-m", "gptcli", "sample", str(run), "-n", "1", "-q", "-p", "A")
    seconds = medians({"import torch": (process, "-c", "import torch"), "gptcli": sample})
    return {"seconds": seconds, "ratio": seconds["gptcli"] / seconds["import torch"]}


@torch.inference_mode()
def divergence() -> dict[str, float]:
    """KL divergence in nats between a random GPT-2 124M and its 8-bit version, over 512 random tokens."""
    plain, rounded = random_model("gpt2").model, Int8GPT(random_model("gpt2").model)
    ids = torch.randint(0, 50257, (1, LONG_PROMPT), generator=torch.Generator().manual_seed(0))

    def likely(model: GPT) -> Tensor:
        return model(ids)[0].log_softmax(-1)

    each = F.kl_div(likely(rounded), likely(plain), log_target=True, reduction="none").sum(-1)  # (512)
    return {"mean": each.mean().item(), "largest": each.max().item()}


def main() -> None:
    bandwidth = read_bandwidth()
    questions: dict[str, Callable[[Path], Any]] = {
        "gpt2": lambda scratch: float32("gpt2", bandwidth, scratch),
        "int8": lambda scratch: eight_bits(bandwidth, scratch),
        "prefill": prefill,
        "many": lambda _scratch: many(),
        "small": lambda scratch: float32("small", bandwidth, scratch),
        "tiny": lambda scratch: float32("tiny", bandwidth, scratch),
        "start": start,
        "divergence": lambda _scratch: divergence(),
    }
    before = RESULTS / "sampling.json"
    rows = json.loads(before.read_text(encoding="utf-8")).get("rows", {}) if before.exists() and sys.argv[1:] else {}
    for question in sys.argv[1:] or questions:
        with tempfile.TemporaryDirectory() as scratch:
            rows[question] = questions[question](Path(scratch))
    save("sampling", {"read_bandwidth": bandwidth, "rows": rows})


if __name__ == "__main__":
    main()
