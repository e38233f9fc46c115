"""Training on a card of few bytes: the micro-batch that an out-of-memory error names, and the one that is chosen.

    python -m tests.gpu.small_card DEVICE GIGABYTES SETTINGS

On CUDA the memory of this process is limited. On a CPU, passes over more than two sequences run out of memory.
"""

from __future__ import annotations

import gc
import json
import re
import sys
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from benchmarks.gpu.setting import trainer_of
from gptcli.errors import OutOfMemoryError
from gptcli.model.gpt import GPT
from gptcli.training import runtime
from gptcli.training.trainer import Trainer

VOCABULARY = {"cpu": 100, "cuda": 50257}
FITTING_ON_A_CPU = 2


def limit_memory(device: torch.device, limit: int) -> None:
    """Let this process allocate `limit` bytes on the device."""
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total), device)
        return
    plain = GPT.hidden

    def hidden(self: GPT, ids: Tensor, *arguments: Any, **options: Any) -> Tensor:
        if len(ids) > FITTING_ON_A_CPU:
            raise torch.OutOfMemoryError("a stand-in for a full card")
        return plain(self, ids, *arguments, **options)

    mock.patch.object(GPT, "hidden", hidden).start()


def named_micro_batch(trainer: Trainer) -> int:
    """The micro-batch size that the error of an update names."""
    hint = "everything fits"
    try:
        trainer.step()
    except OutOfMemoryError as error:
        hint = error.hint
    named = re.search(r"`train\.micro_batch_size = (\d+)`", hint)
    assert named, hint
    return int(named[1])


def train(trainer: Trainer) -> int:
    """Train for three updates; the micro-batch size."""
    for _ in range(3):
        assert trainer.step() is not None
    trainer.check_finite()
    return trainer.micro_batch_size


def main() -> None:
    device, limit, settings = torch.device(sys.argv[1]), int(1e9 * float(sys.argv[2])), json.loads(sys.argv[3])
    runtime.prepare(device, deterministic=False)
    limit_memory(device, limit)

    def trainer(**micro_batch: int) -> Trainer:
        stated = settings | {f"train.{name}": size for name, size in micro_batch.items()}
        return trainer_of("gpt2", VOCABULARY[device.type], stated, device)

    result = {"named": named_micro_batch(trainer(micro_batch_size=settings["train.batch_size"]))}
    release(device)
    assert train(trainer(micro_batch_size=result["named"])) == result["named"]
    if device.type == "cuda":
        release(device)
        with mock.patch("gptcli.runs.followers.free_memory", return_value=limit):
            result["chosen"] = train(trainer())
    sys.stdout.write(json.dumps(result))


def release(device: torch.device) -> None:
    """Free the memory of trainers that are gone."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
