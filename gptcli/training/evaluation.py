"""The validation loss: every token of the held-out text scored once."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gptcli.dataset.folder import Split
from gptcli.model.devices import autocast
from gptcli.model.gpt import GPT
from gptcli.training.gradients import Hidden


def validation_starts(tokens: int, block_size: int, most_tokens: int) -> np.ndarray:
    """Where the windows of a validation pass begin, int64 (W,): one after the other, without overlap.

    Window w scores the tokens start + 1 … start + block_size, the last one fewer where the text ends. Beyond
    `most_tokens` it is a fixed set of windows, spread evenly.
    """
    starts = np.arange(0, tokens - 1, block_size)
    most_windows = max(1, most_tokens // block_size)
    if len(starts) > most_windows:
        starts = starts[np.linspace(0, len(starts) - 2, most_windows).astype(np.int64)]
    return starts


@torch.inference_mode()
def evaluate(
    model: GPT,
    split: Split,
    *,
    batch_size: int,
    most_tokens: int,
    dtype: torch.dtype,
    hidden: Hidden | None = None,
) -> float:
    """Mean cross-entropy over a split in nats per token, without dropout; `hidden` is the model's own or compiled.

    The model's mode is restored. No random number is drawn.
    """
    T = model.config.block_size
    starts = validation_starts(split.tokens, T, most_tokens)
    whole = starts[starts + T < split.tokens]
    losses, scored = [], 0
    was_training = model.training
    model.eval()
    try:
        for first in range(0, len(whole), batch_size):
            chosen = whole[first : first + batch_size]
            # Only batches of one shape: for another it would be compiled anew.
            compiled = hidden if hidden is not None and len(chosen) == batch_size else model.hidden
            losses.append(_loss_sum(model, compiled, split.stream.windows(chosen, T + 1), dtype))
            scored += len(chosen) * T
        for start in starts[len(whole) :]:  # the last window, where it is shorter
            length = split.tokens - int(start)
            window = split.stream.windows(np.array([start]), length)
            losses.append(_loss_sum(model, model.hidden, window, dtype))
            scored += length - 1
    finally:
        model.train(was_training)
    return float(torch.stack(losses).cpu().double().sum()) / scored


def _loss_sum(model: GPT, hidden: Hidden, windows: np.ndarray, dtype: torch.dtype) -> Tensor:
    """Summed loss () of windows (B, T + 1)."""
    device = model.wte.weight.device
    ids = torch.from_numpy(windows).to(device)
    with autocast(device, dtype):
        states = hidden(ids[:, :-1])  # (B, T, C)
        return model.summed_loss(states, ids[:, 1:])
