"""The time of an update, compared with transformers and with the machine's matrix rate.

An update is forward, backward, clipping and AdamW, without dropout, on random tokens. gptcli's update also draws its
batch, and transformers' model gets torch's fused AdamW, as in its own Trainer. All models are measured in float32, the
wider ones also with matrix products in bfloat16, the default of gptcli on CPUs with bfloat16 units. FLOPs per token =
6 N + 12 · layers · width · T, with all parameters and no discount for causality.

    python -m benchmarks.training [tiny|small|gpt2]...
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.competitors import Rates, medians
from benchmarks.measure import CPU, in_own_process, matrix_rate, peak_memory, save
from gptcli.bench.speed import new_trainer
from gptcli.bench.target import random_dataset
from gptcli.cli.threads import BESIDE_OTHERS, SPIN_COUNT
from gptcli.config import Compile, ModelConfig
from gptcli.config.values import Values
from gptcli.interop.huggingface import config_to_hf
from gptcli.model.cost import training_flops
from gptcli.model.devices import AMX_PAYS_FROM_WIDTH, autocast, dtype_name, has_amx, torch_dtype
from gptcli.runs.completion import complete
from gptcli.runs.decision import NewRun
from gptcli.runs.request import Request
from gptcli.training import runtime
from gptcli.training.trainer import Trainer

MODELS = {
    "tiny": (ModelConfig(vocab_size=65, n_layer=4, n_head=4, n_embd=128, block_size=64), 12, 20),
    "small": (ModelConfig(vocab_size=65, n_layer=6, n_head=6, n_embd=384, block_size=256), 8, 2),
    "gpt2": (ModelConfig(vocab_size=50257, n_layer=12, n_head=12, n_embd=768, block_size=256), 2, 1),
}
"""GPT-2 models, with sequences per update and timed updates per turn."""
ROUNDS = 7
PEAK_UPDATES = 3
"""Updates after which peak memory no longer grows."""
COMPETITORS = ("gptcli", "transformers")


def gptcli_trainer(
    config: ModelConfig,
    sequences: int,
    device: torch.device = CPU,
    dtype: torch.dtype = torch.float32,
    compiled: Compile = "auto",
) -> Trainer:
    """The trainer that `gptcli train` uses for this model."""
    recipe: Values = {
        "model": config.model_dump(exclude={"vocab_size"}),
        "optim": {"lr": 1e-4},
        "train": {"batch_size": sequences, "dtype": dtype_name(dtype), "compile": compiled},
    }
    dataset = random_dataset(config.vocab_size, config.block_size, seed=0)
    completed = complete(Request(preset="gpt2", file=recipe), NewRun(Path()), dataset, device, measures=False)
    return new_trainer(completed.config, dataset, device)


def transformers_update(
    config: ModelConfig,
    sequences: int,
    device: torch.device = CPU,
    dtype: torch.dtype = torch.float32,
    *,
    compiled: bool = False,
) -> Callable[[], object]:
    """The same update with transformers' model and torch's optimizer."""
    ids = torch.randint(0, config.vocab_size, (sequences, config.block_size), device=device)
    model = transformers_model(config).to(device).train()
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    run = torch.compile(model) if compiled else model

    def update() -> None:
        with autocast(device, dtype):
            loss = run(ids, labels=ids).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        adamw.zero_grad()

    return update


def transformers_model(config: ModelConfig) -> Any:
    """The same model in transformers, with random weights."""
    from transformers import GPT2Config, GPT2LMHeadModel, logging

    logging.set_verbosity_error()
    settings = config_to_hf(config, bos_token_id=0, eos_token_id=None)
    return GPT2LMHeadModel(GPT2Config(**settings, attn_implementation="sdpa"))


def update_of(who: str, name: str, dtype: torch.dtype) -> Callable[[], object]:
    """The update of one of `COMPETITORS` for one of `MODELS`."""
    config, sequences, _ = MODELS[name]
    torch.manual_seed(0)
    if who == "gptcli":
        runtime.prepare(CPU, deterministic=False)
        return gptcli_trainer(config, sequences, dtype=dtype).step
    return transformers_update(config, sequences, dtype=dtype)


def timed(who: str, name: str, dtype: torch.dtype) -> Callable[[], Rates]:
    """A function that runs some updates and returns the seconds per update."""
    update, times = update_of(who, name, dtype), MODELS[name][2]

    def seconds() -> Rates:
        start = time.perf_counter()
        for _ in range(times):
            update()
        return {"": (time.perf_counter() - start) / times}

    return seconds


def measure(name: str, dtype: torch.dtype, rate: float) -> dict[str, Any]:
    """Seconds per update of each competitor in a process of its own; ratios, share of the matrix rate, peak memory."""
    config, sequences, _ = MODELS[name]
    as_trained = {"gptcli": {SPIN_COUNT: BESIDE_OTHERS}}  # transformers leaves OpenMP alone
    seconds = medians({who: (timed, who, name, dtype) for who in COMPETITORS}, ROUNDS, as_trained)
    reached = training_flops(config, config.block_size) * sequences * config.block_size / seconds["gptcli"]
    options = (name, "--dtype", dtype_name(dtype), "--peak-of")
    memory = {who: in_own_process("benchmarks.training", *options, who) for who in COMPETITORS}
    return {
        "model": f"{config.n_layer}/{config.n_head}/{config.n_embd}, T={config.block_size}, B={sequences}",
        "seconds": seconds,
        "ratio": seconds["gptcli"] / seconds["transformers"],
        "flops_per_second": reached,
        "share_of_matrix_rate": reached / rate,
        "peak_memory": memory,
        "peak_memory_ratio": memory["gptcli"] / memory["transformers"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", choices=[*MODELS, []])
    parser.add_argument("--peak-of", choices=COMPETITORS, help="only print the peak memory of one competitor, in bytes")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32", help="for --peak-of")
    arguments = parser.parse_args()
    if arguments.peak_of:
        update = update_of(arguments.peak_of, arguments.models[0], torch_dtype(arguments.dtype))
        for _ in range(PEAK_UPDATES):
            update()
        sys.stdout.write(json.dumps(peak_memory()))
        return
    chosen = arguments.models or MODELS
    rate, narrow_rate = matrix_rate(), matrix_rate(torch.bfloat16) if has_amx() else 0.0
    rows = {name: measure(name, torch.float32, rate) for name in chosen}
    for name in chosen:
        if has_amx() and MODELS[name][0].n_embd >= AMX_PAYS_FROM_WIDTH:
            rows[f"{name} in bfloat16"] = measure(name, torch.bfloat16, narrow_rate)
    save("training", {"matrix_rate": rate, "bfloat16_matrix_rate": narrow_rate, "rows": rows})


if __name__ == "__main__":
    main()
