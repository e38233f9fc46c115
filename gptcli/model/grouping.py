"""Rows of different experts side by side, so that one product serves all experts.

The rows of an expert fill whole blocks of a few rows, and the number of blocks depends only on the number of rows and
experts. So no shape depends on which expert gets which row, and nothing is read on the host.

Letters: M rows, E experts, n blocks, R rows in all blocks, I inputs, O outputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

GROUPED_BLOCK = 8
"""Rows of a block for torch's grouped product, which needs groups that are aligned to 16 bytes."""
BLOCKS_PER_EXPERT = 2
"""Otherwise, the blocks of an expert that gets an average number of rows. The last block of each expert is half empty
on average; more blocks waste fewer operations on that, and copy the weights of the experts more often."""


@dataclass(frozen=True)
class Grouping:
    """An arrangement of rows in blocks, each of which belongs to one expert."""

    slots: Tensor
    """The place of each row among the rows of all blocks, (M)."""
    owners: Tensor
    """The expert of each block, (n). Blocks without rows belong to the last expert."""
    ends: Tensor
    """The end of each expert's rows, int32 (E)."""
    block: int
    """Rows of a block."""

    def arrange(self, x: Tensor) -> Tensor:
        """Rows (M, I) in blocks, with zeros between them: (R, I)."""
        # Not `index_copy`, which would keep `x` for the backward pass.
        return x.new_zeros(len(self.owners) * self.block, x.shape[1]).index_put((self.slots,), x)

    def restore(self, x: Tensor) -> Tensor:
        """Rows in blocks (R, O) in their first order: (M, O)."""
        return x.index_select(0, self.slots)


def group_rows(chosen: Tensor, experts: int, block: int) -> Grouping:
    """The grouping of rows by their experts, `chosen` (M), in blocks of `block` rows."""
    M, device = len(chosen), chosen.device
    ordered, order = chosen.sort(stable=True)  # 2 of (M)
    numbers, all_experts = torch.arange(M, device=device), torch.arange(experts, device=device)
    ends = torch.searchsorted(ordered, all_experts, right=True)  # (E), among the ordered rows
    starts = torch.searchsorted(ordered, all_experts)  # (E)
    last = (-(-(ends - starts) // block)).cumsum(0)  # (E), the end of each expert's blocks
    before = last - -(-(ends - starts) // block)  # (E), the start
    place = (before * block - starts).index_select(0, ordered) + numbers  # (M), by the order
    n = block_count(M, experts, block)
    owners = torch.searchsorted(last, torch.arange(n, device=device), right=True).clamp_max(experts - 1)
    filled = torch.where(all_experts == experts - 1, n, last)  # the last expert gets the blocks without rows
    slots = torch.empty_like(order).scatter(0, order, place)
    return Grouping(slots, owners, (filled * block).to(torch.int32), block)


def block_rows(rows: int, experts: int, *, kernel: bool) -> int:
    """Rows of a block for products of `rows` rows with the weights of all experts."""
    return GROUPED_BLOCK if kernel else max(1, rows // (BLOCKS_PER_EXPERT * experts))


def block_count(rows: int, experts: int, block: int) -> int:
    """Blocks that are enough for any choice of experts."""
    return min(rows, rows // block + experts)


def has_grouped_kernel(device: torch.device, dtype: torch.dtype, *widths: int) -> bool:
    """Whether torch has a kernel for grouped products with matrices of these widths.

    In torch 2.11 and 2.13 it takes bfloat16 on GPUs of compute capability 9 and 10 (Hopper and Blackwell). Elsewhere
    torch reads the groups on the host and multiplies one by one.
    """
    if device.type != "cuda" or dtype is not torch.bfloat16 or any(width % 8 for width in widths):
        return False
    return _compute_capability(device) in (9, 10)


def _compute_capability(device: torch.device) -> int:
    return torch.cuda.get_device_capability(device)[0]


# A constant for compiled code; see `gptcli.model.attention.cuda_takes_groups`.
_compute_capability._dynamo_marked_constant = True  # type: ignore[attr-defined]


def expert_linear(x: Tensor, weight: Tensor, bias: Tensor | None, grouping: Grouping, *, kernel: bool) -> Tensor:
    """Each row by its own expert's weights: x (R, I), weight (E, O, I), bias (E, O) → (R, O).

    `kernel` uses torch's grouped product, for which the blocks must have `GROUPED_BLOCK` rows.
    """
    blocks = len(grouping.owners), grouping.block
    if kernel:
        y = F.grouped_mm(x, weight.transpose(1, 2), offs=grouping.ends).view(*blocks, -1)  # (n, block, O)
    else:
        y = x.view(*blocks, -1) @ weight.index_select(0, grouping.owners).transpose(1, 2)  # (n, block, O)
    if bias is not None:
        y = y + bias.index_select(0, grouping.owners).unsqueeze(1)
    return y.flatten(0, 1)
