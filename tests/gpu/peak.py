"""Peak memory of a training, beside the estimate, in a process of its own.

    python -m tests.gpu.peak DEVICE PRESET VOCABULARY STEPS SETTINGS

SETTINGS is a JSON object of settings by dotted name.
"""

from __future__ import annotations

import json
import sys

import torch

from benchmarks.gpu.setting import trainer_of
from benchmarks.measure import peak_memory
from gptcli.machine import process_memory
from gptcli.model.memory import training_memory
from gptcli.training import runtime


def main() -> None:
    device, preset, vocabulary, steps, settings = sys.argv[1:]
    chosen = torch.device(device)
    runtime.prepare(chosen, deterministic=False)
    process = process_memory(chosen.type, trains=True)
    trainer = trainer_of(preset, int(vocabulary), json.loads(settings), chosen)
    train = trainer.config.train
    estimate = training_memory(
        trainer.config.model,
        trainer.micro_batch_size,
        trainer.dtype,
        chosen.type,
        process,
        activation_checkpointing=train.activation_checkpointing,
    )
    for _ in range(int(steps)):
        trainer.step()
    trainer.check_finite()
    on_gpu = chosen.type == "cuda"
    peak = torch.cuda.max_memory_allocated(chosen) if on_gpu else peak_memory()
    reserved = torch.cuda.max_memory_reserved(chosen) if on_gpu else 0
    result = {"estimate": estimate.total, "peak": peak, "reserved": reserved, "micro": trainer.micro_batch_size}
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    main()
