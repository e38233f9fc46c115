"""The validation loss: every token of the validation split scored once.

Letters: B windows, T tokens each, C width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence

import numpy as np
import torch
from torch import Tensor

from gptcli.dataset.folder import Dataset, Split
from gptcli.dataset.mixture import Mixture, MixturePart
from gptcli.model.devices import autocast, to_device
from gptcli.model.gpt import GPT
from gptcli.model.loss import bits_per_unit
from gptcli.training.gradients import Hidden
from gptcli.training.ranks import ALONE, Ranks

Evaluation = Generator[tuple[int, int], None, float]
"""Yields (windows done, all windows) before the first batch and after each; returns the mean loss in nats per token."""


def validation_starts(tokens: int, block_size: int, max_tokens: int) -> np.ndarray:
    """Start positions of the windows of an evaluation, int64 (W,): consecutive, without overlap.

    Window w scores the tokens start + 1 … start + block_size; the last window is shorter where the split ends. A split
    of more than `max_tokens` is represented by a fixed set of windows, spread evenly.
    """
    starts = np.arange(0, tokens - 1, block_size)
    max_windows = max(1, max_tokens // block_size)
    if len(starts) > max_windows:
        starts = starts[np.linspace(0, len(starts) - 2, max_windows).astype(np.int64)]
    return starts


def mean_loss(batches: Evaluation) -> float:
    """Run an evaluation to its end; the mean loss in nats per token."""
    while True:
        try:
            next(batches)
        except StopIteration as finished:
            loss: float = finished.value
            return loss


def evaluation_batches(
    model: GPT,
    split: Split,
    *,
    batch_size: int,
    max_tokens: int,
    dtype: torch.dtype,
    hidden: Hidden | None = None,
    ranks: Ranks = ALONE,
    sum_scores: Callable[[Tensor], Tensor] | None = None,
    begin_pass: Callable[[], None] | None = None,
) -> Evaluation:
    """Evaluate batch by batch, so that the caller can show progress or stop; `hidden` is the model's own or compiled.

    The model is in evaluation mode only while a batch runs. No random number is drawn. Each rank scores its part of the
    windows; all of them get the same mean, from `sum_scores` (default: `ranks.sum`). `begin_pass` is for ranks that
    must make each pass together: it is called before each, and a rank with fewer passes adds some that do not count.
    """
    T, device = model.config.block_size, model.wte.weight.device
    all_starts = validation_starts(split.tokens, T, max_tokens)
    starts = all_starts[ranks.part_of(len(all_starts))]
    whole = starts[starts + T < split.tokens]
    dtype_of_sum = torch.promote_types(model.wte.weight.dtype, torch.float32)
    count = -(-len(whole) // batch_size) + len(starts) - len(whole)
    # One tensor for all batches: a small tensor each, between the large ones of the passes, would fragment the heap.
    losses = torch.zeros(count, dtype=dtype_of_sum, device=device)  # (batches)
    scored, begin = 0, begin_pass or _nothing
    yield 0, len(starts)
    for number, first in enumerate(range(0, len(whole), batch_size)):
        chosen = whole[first : first + batch_size]
        # Compiled code serves full batches only: another shape would be compiled anew.
        compiled = hidden if hidden is not None and len(chosen) == batch_size else model.hidden
        ids = to_device(torch.from_numpy(split.stream.windows(chosen, T + 1)), device)  # (B, T + 1)
        begin()
        losses[number] = loss_sum(model, compiled, ids, dtype)
        scored += len(chosen) * T
        yield first + len(chosen), len(starts)
    for start in starts[len(whole) :]:  # the last window, where it is shorter
        length = split.tokens - int(start)
        ids = to_device(torch.from_numpy(split.stream.windows(np.array([start]), length)), device)
        begin()
        losses[-1] = loss_sum(model, model.hidden, ids, dtype)
        scored += length - 1
        yield len(starts), len(starts)
    is_cut = bool(all_starts[-1] + T >= split.tokens)
    for _ in range(_most_passes(len(all_starts), batch_size, ranks, is_cut=is_cut) - count if begin_pass else 0):
        begin()
        loss_sum(model, model.hidden, torch.zeros(1, 2, dtype=torch.long, device=device), dtype)
    nats = losses.cpu().double().sum()  # ()
    if ranks.size == 1:
        return float(nats) / scored
    sums = torch.stack([nats, torch.tensor(scored, dtype=torch.float64)])  # (2,)
    total, tokens = (sum_scores or ranks.sum)(sums.to(device)).tolist()
    return float(total / tokens)


def _most_passes(windows: int, batch_size: int, ranks: Ranks, *, is_cut: bool) -> int:
    """Passes of the rank with the most. The last window takes one of its own where it `is_cut`."""
    parts = [Ranks(rank, ranks.size).part_of(windows) for rank in range(ranks.size)]
    whole = [part.stop - part.start for part in parts]
    whole[-1] -= is_cut
    passes = [-(-count // batch_size) for count in whole]
    passes[-1] += is_cut
    most: int = max(passes)
    return most


def _nothing() -> None:
    """There are no other ranks to wait for."""


def tokens_of_part(part: MixturePart, max_tokens: int) -> int:
    """The largest number of validation tokens of a mixture's part, by its weight, of `max_tokens` of all parts."""
    return max(1, round(part.weight * max_tokens))


def scored_tokens(dataset: Dataset, max_tokens: int) -> int:
    """Tokens that an evaluation scores, about."""
    if isinstance(dataset, Mixture):
        return sum(scored_tokens(part.dataset, tokens_of_part(part, max_tokens)) for part in dataset.parts)
    return min(dataset.val.tokens, max_tokens)


def weighted_evaluation(evaluations: Sequence[Evaluation]) -> Generator[tuple[int, int], None, list[float]]:
    """Run evaluations one after another; yields the progress of all, and returns the loss of each."""
    totals = [next(one)[1] for one in evaluations]  # before its first batch
    yield 0, sum(totals)
    losses, before = [], 0
    for one, total in zip(evaluations, totals, strict=True):
        try:
            while True:
                yield before + next(one)[0], sum(totals)
        except StopIteration as finished:
            losses.append(finished.value)
        before += total
    return losses


def bits_per_byte(loss: float, dataset: Dataset) -> float:
    """A validation loss in nats per token as bits per byte; of a mixture, the bytes per token are a mean by weight."""
    if isinstance(dataset, Mixture):
        return (
            loss
            / math.log(2)
            / sum(part.weight * part.dataset.val.bytes / part.dataset.val.tokens for part in dataset.parts)
        )
    return bits_per_unit(loss, dataset.val.tokens, dataset.val.bytes)


@torch.no_grad()  # not inference mode: sharded weights that are gathered in it could not be trained with
def loss_sum(model: GPT, hidden: Hidden, ids: Tensor, dtype: torch.dtype) -> Tensor:
    """Summed loss () of ids (B, T + 1), without dropout."""
    was_training = model.training
    model.eval()
    try:
        with autocast(ids.device, dtype):
            states = hidden(ids[:, :-1])  # (B, T, C)
            return model.summed_loss(states, ids[:, 1:])
    finally:
        model.train(was_training)
