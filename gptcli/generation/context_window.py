"""The context window during generation: the tokens that the model sees, with their cached keys and values.

A model has a context of `block_size` tokens. When it is full, the oldest half is dropped and the other half is
prefilled again at the first positions. That costs one forward pass over half a context every half context, and the
model always sees at least half of its context.

Letters: B sequences, P prompt tokens, S tokens in the window, C width, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gptcli.errors import ModelFolderError, OutOfMemoryError, is_out_of_memory, size
from gptcli.generation.cuda_graphs import EAGER_STEPS, GraphDecoders, supports_cuda_graphs
from gptcli.model.attention import generation_kernels
from gptcli.model.cache import KVCache
from gptcli.model.gpt import GPT
from gptcli.model.sampling_memory import sample_bytes


def window_start(tokens: int, block_size: int) -> int:
    """The first of `tokens` tokens that the model still sees, by the rule of dropping the oldest half of a full window.

    >>> [window_start(tokens, 8) for tokens in (1, 8, 9, 12, 13)]
    [0, 0, 4, 4, 8]
    """
    half = (block_size + 1) // 2
    return half * -(-max(0, tokens - block_size) // half)


class ContextWindow:
    """The window of `batch_size` continuations of one prompt: takes tokens, returns the logits of the next ones.

    It borrows a decoder from `decoders` if there is one, and gives it back when it is closed.
    """

    def __init__(self, model: GPT, batch_size: int, decoders: GraphDecoders | None = None) -> None:
        assert not model.training, "dropout would disturb the text"
        self.batch_size = batch_size
        self._model = model
        self._decoders = decoders or GraphDecoders()
        self._graphs = self._decoders.borrow(batch_size)
        self._cache = self._graphs.cache if self._graphs else new_cache(model, batch_size)
        block_size = model.config.block_size
        self._ids = torch.empty(batch_size, block_size, dtype=torch.long, device=model.wte.weight.device)
        self.slides = 0
        """How often the oldest half was dropped since the prompt."""
        self._appended = 0
        self._use_graphs = supports_cuda_graphs(model) and self._decoders.usable

    @torch.inference_mode()
    def prefill(self, prompt: Tensor) -> Tensor:
        """Process the prompt, (1, P) with P at least 1, once for all sequences → logits (B, V).

        A prompt that is longer than the context window is cut to its last tokens by `window_start`. Raises
        ModelFolderError if the logits are not finite.
        """
        prompt = prompt[:, window_start(prompt.shape[1], self._model.config.block_size) :]  # (1, S)
        B, S = self.batch_size, prompt.shape[1]
        one = self._cache if B == 1 else new_cache(self._model, 1)
        with generation_kernels(prompt.device):
            logits = self._model.head(self._model.hidden(prompt, one)[:, -1])  # (1, V)
        if not torch.isfinite(logits).all():
            raise ModelFolderError(
                "The model computes NaN or infinity instead of probabilities.",
                "Its weights are damaged, or the dtype overflows: try `dtype = float32`.",
            )
        if one is not self._cache:
            self._cache.copy_from(one)
        self._ids[:, :S] = prompt
        return logits.repeat(B, 1)

    @torch.inference_mode()
    def append(self, tokens: Tensor) -> Tensor:
        """Add one token to each sequence, (B, 1) → logits of the next ones (B, V), valid until the next call."""
        S = self._cache.length
        if self._cache.room == 0:
            kept = self._ids[:, window_start(S + 1, S) :]  # (B, S // 2)
            tokens = torch.cat((kept, tokens), dim=1)  # (B, S // 2 + 1)
            self._cache.clear()
            self.slides += 1
            S = 0
        self._ids.narrow(1, S, tokens.shape[1]).copy_(tokens)
        self._appended += 1
        with generation_kernels(tokens.device):
            return self._logits(tokens)

    def _logits(self, tokens: Tensor) -> Tensor:
        """Append tokens (B, T) to the cache → logits of the next ones (B, V)."""
        if self._use_graphs and tokens.shape[1] == 1 and (self._graphs or self._appended > EAGER_STEPS):
            try:
                if self._graphs is None:
                    self._graphs = self._decoders.new(self._model, self._cache, self.batch_size)
                return self._graphs.append(tokens)
            except RuntimeError as error:  # a driver or kernel that cannot be captured, or too little memory for it
                self._use_graphs, self._graphs = False, None
                self._decoders.usable = is_out_of_memory(error)
        return self._model.head(self._model.hidden(tokens, self._cache)[:, -1])  # (B, V)

    def close(self) -> None:
        """Give the decoder back. Do not use the window afterwards."""
        if self._graphs is not None:
            self._decoders.give_back(self._graphs)
        self._graphs = None


def require_memory(model: GPT, batch_size: int, free_bytes: int) -> None:
    """Raise OutOfMemoryError, with the number that fits, if `batch_size` texts need more than `free_bytes`."""
    each = sample_bytes(model.config, model.wte.weight.dtype)
    if batch_size * each > free_bytes:
        raise OutOfMemoryError(
            f"{batch_size:,} samples at once need {size(batch_size * each)} of memory, "
            f"and {size(free_bytes)} are free.",
            f"Use `num_samples = {max(1, free_bytes // each)}`.",
        )


def new_cache(model: GPT, batch_size: int) -> KVCache:
    """An empty key-value cache on the model's device and in its dtype; raises OutOfMemoryError."""
    weight = model.wte.weight
    try:
        return KVCache(model.config, batch_size, device=weight.device, dtype=weight.dtype)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        message = f"There is not enough memory for the key-value cache of {batch_size:,} samples at once."
        raise OutOfMemoryError(message, "Lower `num_samples`.") from None
