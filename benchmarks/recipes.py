"""A grid of small trainings: how far which model gets on how much text, with how many passes.

Each training uses the modern family with Muon, a linear schedule to zero and float32 on one thread, so that nothing
depends on the load of the machine, and is evaluated about twenty times on at most 65,536 held-out tokens. Results are
appended to a JSON lines file; trainings that it already has are skipped, so that the grid can be stopped, resumed, and
spread over several processes. The whole grid takes about four hours on two cores.

    python -m benchmarks.recipes RESULTS.jsonl en=PROSE.txt code=SOURCES.txt ru=OTHER_SCRIPT.txt shakespeare=PLAYS.txt

Name large texts: the grid takes pieces of 20 KB to 20 MB out of them.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from gptcli.runs.ngrams import text_bits_per_byte
from gptcli.runs.plan import make_plan
from gptcli.runs.request import new_request
from gptcli.training import runtime
from gptcli.training.trainer import Trainer

KB = 1000
EVALUATIONS = 20
EVAL_TOKENS = 65_536


@dataclass(frozen=True)
class Shape:
    """A model, the batch that it learns from, and its learning rate."""

    n_layer: int
    n_head: int
    n_embd: int
    block_size: int
    batch_size: int
    lr: float


SHAPES = {
    "a": Shape(2, 2, 32, 128, 8, 1.2e-2),
    "b": Shape(3, 3, 48, 128, 8, 1e-2),
    "c": Shape(4, 4, 80, 128, 12, 9e-3),
    "d": Shape(4, 4, 128, 128, 16, 8e-3),
    "e": Shape(6, 6, 192, 256, 16, 4e-3),
    "f": Shape(6, 6, 384, 256, 16, 2e-3),
}
"""From 28,000 to 10 million parameters. `b`, `d`, `e` and `f` have the shapes of nano, tiny, mini and small."""


@dataclass(frozen=True)
class Training:
    """One training of the grid."""

    text: str
    size: int
    """Bytes taken from the text."""
    shape: str
    passes: float
    dropout: float = 0.0
    weight_decay: float = 0.1


def grid() -> Iterator[Training]:
    """The trainings: small texts without dropout, then with dropout and weight decay, then larger texts."""
    for size, trainings in SMALL.items():
        for language in ("en", "code", "ru"):
            yield from (Training(language, size * KB, shape, passes) for shape, passes in trainings)
    for dropout, decay in [(0.1, 0.1), (0.2, 0.1), (0.3, 0.1), (0.0, 0.5), (0.0, 1.5), (0.2, 0.5)]:
        yield Training("en", 20 * KB, "d", 30, dropout, decay)
        yield Training("en", 100 * KB, "d", 16, dropout, decay)
    for text, size, shape, passes, dropout in LARGER:
        yield Training(text, size * KB, shape, passes, dropout)


SMALL = {
    20: [("b", 10), ("b", 30), ("d", 10), ("d", 30), ("a", 30), ("a", 50)],
    100: [("b", 6), ("b", 20), ("d", 6), ("d", 16), ("e", 4)],
}
LARGER = [
    ("shakespeare", 1116, "b", 2, 0.0),
    ("shakespeare", 1116, "d", 2.4, 0.0),
    ("ru", 100, "d", 16, 0.1),
    ("ru", 20, "d", 30, 0.2),
    ("code", 100, "d", 16, 0.1),
    ("code", 20, "d", 30, 0.2),
    ("en", 500, "b", 8, 0.0),
    ("en", 500, "d", 2, 0.0),
    ("en", 500, "d", 6, 0.0),
    ("en", 500, "d", 6, 0.1),
    ("shakespeare", 1116, "c", 3, 0.0),
    ("en", 4600, "b", 0.5, 0.0),
    ("en", 4600, "d", 0.25, 0.0),
    ("code", 5000, "b", 0.5, 0.0),
    ("code", 5000, "d", 0.6, 0.0),
    ("en", 20, "b", 30, 0.1),
    ("en", 100, "b", 20, 0.1),
    ("en", 100, "c", 16, 0.1),
    ("en", 20, "c", 30, 0.1),
    ("ru", 5000, "b", 0.5, 0.0),
    ("ru", 5000, "d", 0.6, 0.0),
    ("en", 20, "e", 20, 0.2),
    ("en", 100, "e", 8, 0.1),
    ("en", 100, "d", 30, 0.2),
    ("ru", 500, "b", 8, 0.0),
    ("ru", 500, "d", 6, 0.0),
    ("ru", 500, "d", 6, 0.1),
    ("code", 500, "b", 8, 0.0),
    ("code", 500, "d", 6, 0.1),
    ("en", 4600, "e", 0.2, 0.0),
    ("en", 500, "c", 5, 0.0),
    ("en", 500, "e", 1.5, 0.0),
    ("code", 20_000, "d", 0.15, 0.0),
    ("en", 4600, "c", 0.5, 0.0),
    ("ru", 100, "d", 30, 0.2),
    ("code", 100, "d", 30, 0.2),
    ("en", 20, "d", 60, 0.3),
    ("code", 100, "c", 16, 0.1),
    ("code", 5000, "c", 0.5, 0.0),
    ("en", 4600, "d", 0.6, 0.0),
    ("en", 1000, "f", 0.4, 0.0),
    ("shakespeare", 1116, "e", 1.2, 0.0),
    ("code", 20, "b", 30, 0.1),
    ("ru", 20, "b", 30, 0.1),
    ("code", 20, "c", 30, 0.2),
    ("ru", 20, "c", 30, 0.2),
    ("code", 20, "d", 12, 0.1),
    ("ru", 20, "d", 12, 0.1),
    ("code", 20, "d", 60, 0.3),
    ("ru", 20, "d", 60, 0.3),
    ("en", 5, "a", 40, 0.0),
    ("en", 5, "b", 30, 0.1),
    ("code", 5, "b", 30, 0.1),
    ("ru", 5, "b", 30, 0.1),
    ("code", 20_000, "e", 0.06, 0.0),
]


def piece(text: Path, size: int) -> bytes:
    """The first `size` bytes of a text, without a cut character at their end."""
    return text.read_bytes()[:size].decode(errors="ignore").encode()


def train(training: Training, content: bytes) -> dict[str, Any]:
    """Carry out one training; its losses in nats per token, the best one also in bits per byte."""
    shape = SHAPES[training.shape]
    settings = {
        **{f"model.{name}": getattr(shape, name) for name in ("n_layer", "n_head", "n_embd", "block_size")},
        "model.dropout": training.dropout,
        "optim.optimizer": "muon",
        "optim.lr": shape.lr,
        "optim.schedule": "linear",
        "optim.warmup_steps": 20,
        "optim.weight_decay": training.weight_decay,
        "train.batch_size": shape.batch_size,
        "train.epochs": training.passes,
        "train.device": "cpu",
        "train.dtype": "float32",
        "train.eval_tokens": EVAL_TOKENS,
        "tokenizer.kind": "char",
    }
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        text.write_bytes(content)
        plan = make_plan(new_request(text, out=Path(folder) / "run", preset="tiny", settings=settings), dry_run=True)
    runtime.prepare(plan.device, deterministic=False)
    trainer = Trainer(plan.config, plan.dataset, plan.device)
    begun, steps = time.process_time(), plan.config.train.max_steps or 0
    curve, losses = list[tuple[int, float, float]](), list[float]()
    every = max(1, steps // EVALUATIONS)
    while trainer.completed_steps < steps:
        update = trainer.step()
        assert update, "no stop is asked for"
        losses.append(update.loss.item())
        if trainer.completed_steps % every == 0 or trainer.completed_steps == steps:
            recent = statistics.fmean(losses[-every:])
            curve.append((trainer.completed_steps, round(trainer.evaluate(), 5), round(recent, 5)))
    best, val = min(loss for _, loss, _ in curve), plan.dataset.val
    return asdict(training) | {
        "parameters": sum(parameter.numel() for parameter in trainer.model.parameters()),
        "vocab_size": plan.dataset.tokenizer.vocab_size,
        "train_tokens": plan.dataset.train.tokens,
        "val_tokens": val.tokens,
        "val_bytes": val.bytes,
        "tokens_per_step": shape.batch_size * shape.block_size,
        "steps": steps,
        "best": best,
        "final": curve[-1][1],
        "best_bits_per_byte": round(best / math.log(2) * val.tokens / val.bytes, 5),
        "ngram_bits_per_byte": round(text_bits_per_byte(plan.dataset), 4),
        "curve": curve,
        "processor_seconds": round(time.process_time() - begun, 1),
    }


def claim(training: Training, results: Path) -> bool:
    """Whether this process is the one to carry out a training: another may have it in its hands, or have done it."""
    claims = results.with_suffix(".claims")
    name = json.dumps(asdict(training))
    with open(claims, "a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        if name in file.read().splitlines():
            return False
        file.write(name + "\n")
        return True


def done(results: Path) -> list[Training]:
    """The trainings whose results are known."""
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    names = Training.__dataclass_fields__
    return [Training(**{name: values[name] for name in names}) for values in map(json.loads, lines)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("texts", nargs="+", metavar="NAME=PATH")
    options = parser.parse_args()
    texts = {name: Path(path) for name, _, path in (text.partition("=") for text in options.texts)}
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    known = done(options.results)
    for training in grid():
        if training in known or training.text not in texts or not claim(training, options.results):
            continue
        result = train(training, piece(texts[training.text], training.size))
        with open(options.results, "a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
        sys.stdout.write(json.dumps({name: value for name, value in result.items() if name != "curve"}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
