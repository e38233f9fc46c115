"""The growth of time and memory with context, width, layers, batch and text; `benchmarks.pictures` draws it.

Training: a GPT-2 of 4 layers, 256 wide, 8 × 256 tokens per update, float32, one size changed at a time, each point in a
process of its own. The theory is the arithmetic at the machine's matrix rate, and the memory that `inspect` predicts.
Writing: generating with GPT-2 124M, after prompts of several lengths, and several sequences at once. The theory is
weights, keys and values at the machine's memory bandwidth, and the arithmetic at its matrix rate. Tokenizing: the whole
command, on Python's own sources.

    python -m benchmarks.cost [training|writing|tokenizing]...      # these, or all
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.measure import CPU, in_own_process, matrix_rate, peak_memory, read_bandwidth, save
from benchmarks.training import gptcli_trainer
from gptcli.bench.limits import seconds_per_call
from gptcli.bench.target import stand_in_tokenizer
from gptcli.config import ModelConfig, SamplingConfig
from gptcli.generation.placement import place
from gptcli.generation.stream import Sample, stream_samples
from gptcli.machine import process_memory
from gptcli.model.cost import bytes_per_step, forward_flops, training_flops
from gptcli.model.gpt import GPT
from gptcli.model.memory import training_memory

BASE = {"context": 256, "width": 256, "layers": 4, "batch": 8}
SWEEPS = {
    "context": [32, 64, 128, 256, 512, 1024, 2048],
    "width": [64, 128, 256, 512, 768],
    "layers": [1, 2, 4, 8, 16],
    "batch": [1, 2, 4, 8, 16, 32, 64],
}
GPT2 = ModelConfig(vocab_size=50257, n_layer=12, n_head=12, n_embd=768, block_size=1024)
PROMPTS = [1, 128, 256, 512, 768, 1000]
SAMPLES = [1, 2, 4, 8, 16, 32, 64]
PROMPT_OF_SAMPLES = 64
NEW, TEMPERATURE, TOP_K = 16, 0.8, 50
MEGABYTES = [0.25, 1, 4, 16, 64]


def training_point(point: dict[str, int]) -> dict[str, float]:
    """Seconds and peak memory of an update in this process, with its FLOPs and the predicted memory."""
    config = ModelConfig(
        vocab_size=65, n_layer=point["layers"], n_head=4, n_embd=point["width"], block_size=point["context"]
    )
    before = process_memory("cpu", trains=True)
    trainer = gptcli_trainer(config, point["batch"])
    seconds = median(seconds_per_call(trainer.step, CPU, 1.0, 3))
    foretold = training_memory(config, trainer.micro_batch_size, torch.float32, "cpu", before).total
    flops = training_flops(config, config.block_size) * point["batch"] * point["context"]
    return {"seconds": seconds, "flops": flops, "peak_memory": peak_memory(), "foretold_memory": foretold}


def measure_training() -> dict[str, Any]:
    sweeps = {
        size: [
            {size: value, **in_own_process("benchmarks.cost", "--point", json.dumps({**BASE, size: value}))}
            for value in values
        ]
        for size, values in SWEEPS.items()
    }
    return {"base": BASE, "matrix_rate": matrix_rate(), "sweeps": sweeps}


def measure_writing() -> dict[str, Any]:
    torch.manual_seed(0)
    model = place(GPT(GPT2).requires_grad_(False).eval(), CPU, "float32")
    tokenizer = stand_in_tokenizer(GPT2.vocab_size)

    def steps_per_second(prompt: int, samples: int) -> float:
        ids = torch.randint(0, GPT2.vocab_size, (prompt,)).tolist()
        config = SamplingConfig(max_new_tokens=NEW, temperature=TEMPERATURE, top_k=TOP_K, num_samples=samples)
        *_, last = stream_samples(model, tokenizer, ids, config)
        assert isinstance(last, Sample)
        return last.tokens_per_second or 0.0

    def point(prompt: int, samples: int) -> dict[str, float]:
        rate = median(steps_per_second(prompt, samples) for _ in range(3)) * samples
        read = bytes_per_step(model, samples, prompt + NEW // 2) / samples
        return {"prompt": prompt, "samples": samples, "tokens_per_second": rate, "bytes_per_token": read}

    steps_per_second(1, 1)
    return {
        "matrix_rate": matrix_rate(),
        "read_bandwidth": read_bandwidth(),
        "flops_per_token": forward_flops(GPT2, GPT2.block_size),
        "context": [point(prompt, 1) for prompt in PROMPTS],
        "batch": [point(PROMPT_OF_SAMPLES, samples) for samples in SAMPLES],
    }


def measure_tokenizing() -> dict[str, Any]:
    text = python_sources(int(max(MEGABYTES) * 1e6))
    rows: dict[str, list[dict[str, float]]] = {"char": [], "bpe": []}
    with tempfile.TemporaryDirectory() as scratch:
        for megabytes in MEGABYTES:
            file = Path(scratch) / f"{megabytes}.txt"
            file.write_bytes(text[: int(megabytes * 1e6)])
            for kind in rows:
                out = Path(scratch) / f"{kind}-{megabytes}"
                command = [sys.executable, "-m", "gptcli", "tokenize", str(file), "-o", str(out), "-q"]
                start = time.perf_counter()
                subprocess.run([*command, "--tokenizer", kind], check=True, stdout=subprocess.DEVNULL)
                rows[kind].append({"bytes": file.stat().st_size, "seconds": time.perf_counter() - start})
    return {"rows": rows}


def python_sources(most: int) -> bytes:
    """At most `most` bytes of ASCII sources, from the standard library and the installed packages."""
    found, folders = bytearray(), [sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")]
    for file in (file for folder in folders for file in sorted(Path(folder).rglob("*.py"))):
        content = file.read_bytes()
        found += content if content.isascii() else b""
        if len(found) >= most:
            break
    return bytes(found[:most])


PARTS = {"training": measure_training, "writing": measure_writing, "tokenizing": measure_tokenizing}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    parser.add_argument("--point", type=json.loads, help="only print the figures of one point of training")
    arguments = parser.parse_args()
    if arguments.point:
        sys.stdout.write(json.dumps(training_point(arguments.point)))
        return
    for part in arguments.parts or PARTS:
        save(f"cost_{part}", PARTS[part]())


if __name__ == "__main__":
    main()
