"""What the model sees while it writes: a window of tokens whose keys and values are cached.

A model has a context of `block_size` tokens. When one more would not fit, the oldest half is dropped and the rest is
prefilled again at the first positions. That costs one pass over half a context every half context, and the model
always sees at least half of its context.

Letters: B sequences, P prompt tokens, S tokens in the window, C width, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gptcli.errors import ModelFolderError, OutOfMemoryError
from gptcli.generation.cuda_graphs import EAGER_STEPS, CudaGraphDecoder, cuda_graph_capture, supports_cuda_graphs
from gptcli.model.cache import KVCache
from gptcli.model.gpt import GPT
from gptcli.model.memory import sample_bytes


def window_start(tokens: int, block_size: int) -> int:
    """The first of `tokens` tokens that the model still sees: the oldest half of a context is dropped at a time.

    >>> [window_start(tokens, 8) for tokens in (1, 8, 9, 12, 13)]
    [0, 0, 4, 4, 8]
    """
    half = (block_size + 1) // 2
    return half * -(-max(0, tokens - block_size) // half)


class ContextWindow:
    """The tokens that `batch_size` continuations of one prompt see; gives the logits of what comes next."""

    def __init__(self, model: GPT, batch_size: int) -> None:
        assert not model.training, "dropout would disturb the text"
        self.batch_size = batch_size
        self._model = model
        self._cache = new_cache(model, batch_size)
        block_size = model.config.block_size
        self._ids = torch.empty(batch_size, block_size, dtype=torch.long, device=model.wte.weight.device)
        self.slides = 0
        """How often the oldest half was dropped since the prompt."""
        self._appended = 0
        self._recorded: CudaGraphDecoder | None = None
        self._may_record = supports_cuda_graphs(model)

    @torch.inference_mode()
    def prefill(self, prompt: Tensor) -> Tensor:
        """Take in the prompt, (1, P) with P at least 1, once for all sequences → logits (B, V).

        Of a prompt that is longer than the context the last tokens count, by the rule of the window. Raises
        ModelFolderError if the model computes no finite number.
        """
        prompt = prompt[:, window_start(prompt.shape[1], self._model.config.block_size) :]  # (1, S)
        B, S = self.batch_size, prompt.shape[1]
        one = self._cache if B == 1 else new_cache(self._model, 1)
        logits = self._model.head(self._model.hidden(prompt, one)[:, -1])  # (1, V)
        if not torch.isfinite(logits).all():
            raise ModelFolderError(
                "The model computes NaN or infinity instead of probabilities.",
                "Its weights are damaged, or the number format is too small for them: try --dtype float32.",
            )
        if one is not self._cache:
            self._cache.copy_from(one)
        self._ids[:, :S] = prompt
        return logits.repeat(B, 1)

    @torch.inference_mode()
    def append(self, tokens: Tensor) -> Tensor:
        """Add one token to each sequence, (B, 1) → logits of what follows (B, V); they last until the next call."""
        S = self._cache.length
        if self._cache.room == 0:
            kept = self._ids[:, window_start(S + 1, S) :]  # (B, S // 2)
            tokens = torch.cat((kept, tokens), dim=1)  # (B, S // 2 + 1)
            self._cache.clear()
            self.slides += 1
            S = 0
        self._ids.narrow(1, S, tokens.shape[1]).copy_(tokens)
        self._appended += 1
        if self._may_record and self._appended > EAGER_STEPS and tokens.shape[1] == 1:
            try:
                return self._recorded_steps().append(tokens)
            except RuntimeError:  # a driver or a kernel that cannot be recorded, or no memory to do so
                self._may_record, self._recorded = False, None
        return self._model.head(self._model.hidden(tokens, self._cache)[:, -1])  # (B, V)

    def _recorded_steps(self) -> CudaGraphDecoder:
        if self._recorded is None:
            record = cuda_graph_capture(self._model.wte.weight.device)
            self._recorded = CudaGraphDecoder(self._model, self._cache, self.batch_size, record)
        return self._recorded


def require_memory(model: GPT, batch_size: int, free_bytes: int) -> None:
    """Raise OutOfMemoryError, with the number that fits, if so many continuations need more than `free_bytes`."""
    each = sample_bytes(model.config, model.wte.weight.dtype)
    if batch_size * each > free_bytes:
        raise OutOfMemoryError(
            f"{batch_size:,} samples at once need {batch_size * each / 1e9:,.1f} GB of memory, "
            f"and {free_bytes / 1e9:,.1f} GB are free.",
            f"Use --num-samples {max(1, free_bytes // each)}.",
        )


def new_cache(model: GPT, batch_size: int) -> KVCache:
    """An empty cache beside the model's weights, in their number format; raises OutOfMemoryError."""
    weight = model.wte.weight
    try:
        return KVCache(model.config, batch_size, device=weight.device, dtype=weight.dtype)
    except RuntimeError:  # torch says no more exactly on a CPU
        raise OutOfMemoryError(
            f"There is not enough memory to write {batch_size:,} samples at once.", "Lower --num-samples."
        ) from None
