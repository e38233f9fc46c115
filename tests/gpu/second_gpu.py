"""A training and a text on one GPU: how much memory was taken on the others.

python -m tests.gpu.second_gpu DEVICE TEXT FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

import gptcli

SETTINGS = {
    "model.n_layer": 2, "model.n_head": 2, "model.n_embd": 64, "model.block_size": 32, "model.n_kv_head": 1,
    "train.max_steps": 6, "train.batch_size": 4, "train.save_every": 3, "train.sample_every": 3,
}  # fmt: skip


def main() -> None:
    device, text, folder = torch.device(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    settings = SETTINGS | {"train.device": str(device)}
    gptcli.train(text, folder / "run", preset="nano", settings=settings)
    model = gptcli.load(folder / "run", device=str(device))
    (sample,) = model.generate("def ", max_new_tokens=100, seed=1)
    gpus = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    elsewhere = sum(torch.cuda.max_memory_reserved(gpu) for gpu in gpus if gpu != device)
    where = sorted({str(parameter.device) for parameter in model.model.parameters()})
    sys.stdout.write(json.dumps({"tokens": sample.tokens, "elsewhere": elsewhere, "where": where}))


if __name__ == "__main__":
    main()
