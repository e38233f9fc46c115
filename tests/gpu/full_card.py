"""The errors of a process that has almost no memory left on its card.

    python -m tests.gpu.full_card DEVICE MEGABYTES

All memory of the card but some megabytes is taken; then the libraries are used for the first time, which allocate
memory by themselves. On a CPU nothing is taken, and nothing fails.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from gptcli.errors import first_line, is_out_of_memory
from gptcli.model.loss import Chunks, next_token_loss

LEAST_BLOCK = 1 << 20


def fill(device: torch.device, left: int) -> list[Tensor]:
    """Take all memory but `left` bytes, in blocks."""
    blocks: list[Tensor] = []
    if device.type != "cuda":
        return blocks
    size = torch.cuda.mem_get_info(device)[0]
    while size >= LEAST_BLOCK:
        size = min(size, torch.cuda.mem_get_info(device)[0] - left)
        try:
            blocks.append(torch.empty(max(size, LEAST_BLOCK), dtype=torch.uint8, device=device))
        except torch.OutOfMemoryError:
            size //= 2
        if torch.cuda.mem_get_info(device)[0] <= left + LEAST_BLOCK:
            break
    return blocks


def main() -> None:
    device, left = torch.device(sys.argv[1]), int(sys.argv[2]) << 20
    small = torch.ones(64, 64, device=device)
    heads = torch.ones(1, 2, 16, 64, device=device)
    targets = torch.zeros(64, dtype=torch.long, device=device)
    work: dict[str, Callable[[], Tensor]] = {
        "matrix product": lambda: small @ small,
        "16-bit product": lambda: small.half() @ small.half(),
        "attention": lambda: F.scaled_dot_product_attention(heads, heads, heads, is_causal=True),
        "sort": lambda: torch.rand(1 << 20, device=device).sort().values,
        "loss": lambda: next_token_loss(small, small, targets, chunks=Chunks(64, 64)),
        "large tensor": lambda: torch.ones(1 << 26, device=device),
    }
    blocks = fill(device, left)
    errors = []
    for name, call in work.items():
        try:
            call().sum().item()
        except RuntimeError as error:
            errors.append({"work": name, "error": first_line(error), "recognized": is_out_of_memory(error)})
    sys.stdout.write(json.dumps({"blocks": len(blocks), "errors": errors}))


if __name__ == "__main__":
    main()
