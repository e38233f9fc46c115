"""The effect of each model setting on the loss, at equal compute.

A small character model is trained many times: once as GPT-2, and once with each change. Every run spends the same
FLOPs, as `gptcli inspect` counts them, so a model with more FLOPs per token trains on fewer tokens; the schedule ends
with the run. The FLOPs of the optimizer are not counted. The loss is that of a full pass over the held-out part.
Losses do not depend on other programs on the machine; times would, so none are reported.

    python -m benchmarks.architectures TEXT     # trains, prints the tables of docs/architectures.md
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from benchmarks.measure import save
from gptcli.config import ModelConfig, RunConfig, build_config
from gptcli.config.presets import family
from gptcli.config.values import Values
from gptcli.dataset.folder import open_dataset
from gptcli.dataset.preparing import tokenize
from gptcli.model.cost import parameter_count, training_flops
from gptcli.model.gpt import GPT
from gptcli.training.batches import Batches
from gptcli.training.evaluation import evaluation_batches, mean_loss
from gptcli.training.gradients import accumulate_gradients
from gptcli.training.optimizer import Optimizer
from gptcli.training.schedule import learning_rate

SHAPE = {"n_layer": 3, "n_head": 4, "n_embd": 48, "block_size": 64}
BATCH = 12
STEPS = 400
"""Updates of GPT-2; their FLOPs are the budget of every other model."""
SEEDS = (1, 2, 3)
WINDOW = 16
MUON = {"optimizer": "muon", "lr": 1e-2, "schedule": "linear", "warmup_steps": 20}
GPT2: Values = family("gpt2", SHAPE["n_head"])["model"]
MODERN: Values = family("modern", SHAPE["n_head"])["model"]

CHANGES: dict[str, Values] = {
    "GPT-2": {},
    "rope": {"position": "rope"},
    "sinusoidal": {"position": "sinusoidal"},
    "no positions": {"position": "none"},
    "rmsnorm": {"norm": "rmsnorm"},
    "post-norm": {"norm_placement": "post"},
    "relu": {"mlp": "relu"},
    "relu2": {"mlp": "relu2"},
    "swiglu": {"mlp": "swiglu"},
    "GQA, 2 of 4 heads": {"n_kv_head": 2},
    "MQA": {"n_kv_head": 1},
    "qk_norm": {"qk_norm": True},
    f"window of {WINDOW}": {"sliding_window": WINDOW},
    f"window of {WINDOW} in every other layer": {"sliding_window": WINDOW, "windowed_layers": "alternate"},
    "untied head": {"tied": False},
    "softcap 15": {"logit_softcap": 15.0},
    "no biases": {"bias": False},
    "4 experts, 2 active": {"n_expert": 4},
    "4 experts of half the width, 2 active": {"n_expert": 4, "mlp_width": 2 * SHAPE["n_embd"]},
    "modern": MODERN,
    "modern with relu2": {**MODERN, "mlp": "relu2"},
    "modern with gelu": {**MODERN, "mlp": "gelu"},
    "modern without qk_norm": {**MODERN, "qk_norm": False},
    "modern with 4 heads of keys and values": {**MODERN, "n_kv_head": 4},
}
"""Differences from GPT-2, by their names in the table."""
ADAMW = {"GPT-2": 4e-3, "modern": 6e-3}
"""Learning rates for the comparison of optimizers."""
SHARES = {"GPT-2": (2.0, 0.5), "modern": (2.0, 0.5)}
"""Other budgets for these models, as multiples of the main one."""

Task = tuple[str, str, float, int]
"""A training run: model, optimizer, share of the budget, seed."""


def config_of(change: str, optimizer: str, vocab_size: int) -> RunConfig:
    adamw = {"optimizer": "adamw", "lr": ADAMW[change]} if optimizer == "adamw" else {}
    layers = ({"model": {**GPT2, **SHAPE, "dropout": 0.0, **CHANGES[change]}}, {"optim": {**MUON, **adamw}})
    return build_config("nano", *layers, {"train": {"batch_size": BATCH}}, vocab_size=vocab_size)


def flops_per_update(config: ModelConfig) -> int:
    return training_flops(config, config.block_size) * BATCH * config.block_size


def steps_within(share: float, config: ModelConfig) -> int:
    """Updates that spend this share of the budget."""
    gpt2 = config_of("GPT-2", "muon", config.vocab_size).model
    return round(share * STEPS * flops_per_update(gpt2) / flops_per_update(config))


def train(task: Task, dataset: Path) -> float:
    """The validation loss, in nats per character, after training from random weights to the end of the schedule."""
    change, optimizer_name, share, seed = task
    torch.set_num_threads(1)
    data = open_dataset(dataset)
    config = config_of(change, optimizer_name, data.tokenizer.vocab_size)
    steps = steps_within(share, config.model)
    torch.manual_seed(seed)
    model = GPT(config.model)
    optimizer = Optimizer(model, config.optim, torch.float32)
    batches = Batches(data.train.stream, block_size=config.model.block_size, batch_size=BATCH, seed=seed)
    for step in range(steps):
        loss = accumulate_gradients(
            model,
            model.hidden,
            batches.batch(step),
            micro_batch_size=BATCH,
            dtype=torch.float32,
            backward=optimizer.backward,
            expert_balance=config.optim.expert_balance,
        )
        optimizer.step(learning_rate(config.optim, step, steps), loss)
    return mean_loss(evaluation_batches(model, data.val, batch_size=64, max_tokens=2**20, dtype=torch.float32))


def tasks() -> list[Task]:
    """All training runs, seed by seed."""
    whole = [(change, "muon", 1.0) for change in CHANGES] + [(change, "adamw", 1.0) for change in ADAMW]
    parts = [(change, "muon", share) for change, shares in SHARES.items() for share in shares]
    return [(*one, seed) for seed, one in product(SEEDS, parts + whole)]


def measure(text: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch, ProcessPoolExecutor(2, get_context("spawn")) as workers:
        dataset = Path(scratch) / "text"
        prepared = tokenize(text, dataset, tokenizer="char")
        vocab_size = prepared.dataset.tokenizer.vocab_size
        losses: dict[tuple[str, str, float], list[float]] = {}
        todo = tasks()
        for task, loss in zip(todo, workers.map(train, todo, [dataset] * len(todo)), strict=True):
            losses.setdefault(task[:3], []).append(loss)
            sys.stderr.write(f"{task}: {loss:.4f}\n")
    return {"rows": [_row(*key, found, vocab_size) for key, found in losses.items()]}


def _row(change: str, optimizer: str, share: float, losses: list[float], vocab_size: int) -> dict[str, Any]:
    model = config_of(change, optimizer, vocab_size).model
    steps = steps_within(share, model)
    return {
        "change": change,
        "optimizer": optimizer,
        "share": share,
        "parameters": parameter_count(model),
        "flops_per_token": training_flops(model, model.block_size),
        "steps": steps,
        "flops": steps * flops_per_update(model),
        "losses": losses,
    }


def verdict(row: dict[str, Any], gpt2: dict[str, Any]) -> str:
    """Whether all seeds ended below, or above, all seeds of GPT-2; chance alone does that in one comparison of ten."""
    if max(row["losses"]) < min(gpt2["losses"]):
        return "lower"
    return "higher" if min(row["losses"]) > max(gpt2["losses"]) else "within the spread"


def by_name(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The rows with the main budget, by model, and by optimizer if it is AdamW."""
    rows = [row for row in result["rows"] if row["share"] == 1]
    return {row["change"] + (", AdamW" if row["optimizer"] == "adamw" else ""): row for row in rows}


def table(result: dict[str, Any]) -> str:
    """The table of docs/architectures.md: one row for each model, GPT-2 first."""
    rows = by_name(result)
    gpt2 = rows.pop("GPT-2")
    lines = [
        "| change | parameters | FLOPs per token | updates | loss, mean of three seeds | lowest to highest "
        "| difference from GPT-2 | all three seeds |",
        "|---|--:|--:|--:|--:|--:|--:|---|",
        f"| none: GPT-2 | {_figures(gpt2)} | | |",
    ]
    for name, row in sorted(rows.items(), key=lambda item: fmean(item[1]["losses"])):
        difference = fmean(row["losses"]) - fmean(gpt2["losses"])
        lines.append(f"| {name} | {_figures(row)} | {difference:+.3f} | {verdict(row, gpt2)} |".replace("-0", "−0"))
    return "\n".join(lines)


def _figures(row: dict[str, Any]) -> str:
    losses = row["losses"]
    counts = f"{row['parameters']:,} | {row['flops_per_token']:,} | {row['steps']:,}"
    return f"{counts} | {fmean(losses):.3f} | {min(losses):.3f} to {max(losses):.3f}"


def budgets(result: dict[str, Any]) -> str:
    """The second table of docs/architectures.md: GPT-2 and modern with more and fewer FLOPs."""
    rows = {(row["change"], row["share"]): row for row in result["rows"] if row["optimizer"] == "muon"}
    lines = ["| FLOPs | GPT-2 | modern | difference |", "|--:|--:|--:|--:|"]
    for share in sorted({1.0, *SHARES["GPT-2"]}):
        gpt2, modern = rows["GPT-2", share], rows["modern", share]
        cells = [f"{fmean(row['losses']):.3f} ({_figures(row).rsplit(' | ', 1)[1]})" for row in (gpt2, modern)]
        difference = f"{fmean(modern['losses']) - fmean(gpt2['losses']):+.3f}".replace("-", "−")
        lines.append(f"| {gpt2['flops'] / 1e9:,.0f} G | {' | '.join(cells)} | {difference} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    result = measure(parser.parse_args().text)
    save("architectures", result)
    sys.stdout.write(f"{table(result)}\n\n{budgets(result)}\n")


if __name__ == "__main__":
    main()
