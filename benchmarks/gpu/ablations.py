"""Ablations: one choice at a time, on and off, so that each default of CUDA has a figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.gpu.decoding import Writer
from benchmarks.gpu.setting import Marks, Setting, peak_bytes, repeated
from benchmarks.measure import alternate
from gptcli.errors import first_line
from gptcli.generation import scoring
from gptcli.model import loss
from gptcli.model.devices import autocast, torch_dtype
from gptcli.model.experts import Experts
from gptcli.model.memory import training_memory

PADDED_TO = 64
CHUNK_ROWS = (128, 256, 512, 1024, 2048, 4096, 8192)
EVAL_BATCHES = (2**12, 2**13, 2**14, 2**15, 2**16)
EXPERTS = 8
MICRO_BATCHES = (1, 2, 4, 8, 16, 32, 64)
BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}


def padded_head(setting: Setting) -> Iterator[dict[str, Any]]:
    """The loss whose products have as many columns as the vocabulary, and a multiple of 64."""
    vocabulary = setting.size.gpt2.vocab_size
    rows = loss.chunk_sizes(setting.device, vocabulary).rows
    for columns in (vocabulary, -(-vocabulary // PADDED_TO) * PADDED_TO):
        yield {"columns": columns, **_loss_costs(setting, loss.Chunks(rows, columns))}


def chunk_sizes(setting: Setting) -> Iterator[dict[str, Any]]:
    """The loss by the number of tokens whose logits are in memory at once; the last row has all of them."""
    tokens = setting.sequences * setting.size.gpt2.block_size
    columns = loss.chunk_sizes(setting.device, setting.size.gpt2.vocab_size).columns
    for rows in (*(size for size in CHUNK_ROWS if size < tokens), tokens):
        yield {"tokens at once": rows, **_loss_costs(setting, loss.Chunks(rows, columns))}


def fused_loss(setting: Setting) -> Iterator[dict[str, Any]]:
    """The loss with and without the kernel that computes it and its gradient at once."""
    chunks = loss.chunk_sizes(setting.device, setting.size.gpt2.vocab_size)
    yield {"fused": loss.fused_kernel(setting.device) is not None, **_loss_costs(setting, chunks)}
    with mock.patch.object(loss, "fused_kernel", return_value=None):
        yield {"fused": False, **_loss_costs(setting, chunks)}


def _loss_costs(setting: Setting, chunks: loss.Chunks) -> dict[str, Any]:
    """Milliseconds and memory of the loss and its gradient for an update of GPT-2."""
    device, config = setting.device, setting.size.gpt2
    tokens = setting.sequences * config.block_size
    hidden = torch.randn(tokens, config.n_embd, device=device, requires_grad=True)  # (N, C)
    weight = torch.randn(config.vocab_size, config.n_embd, device=device).mul_(0.02).requires_grad_()  # (V, C)
    targets = torch.randint(0, config.vocab_size, (tokens,), device=device)  # (N)

    def work() -> None:
        with autocast(device, torch_dtype(setting.dtype)):
            result = loss.next_token_loss(hidden, weight, targets, chunks=chunks)
        result.backward()
        hidden.grad = weight.grad = None

    return _costs(setting, work)


def attention_kernels(setting: Setting) -> Iterator[dict[str, Any]]:
    """Attention of a layer of GPT-2, forward and backward, in each kernel that can run it."""
    config, device = setting.size.gpt2, setting.device
    for grouped in (False, True):
        G = config.n_head // 2 if grouped else config.n_head
        shapes = [(setting.sequences, heads, config.block_size, config.head_dim) for heads in (config.n_head, G, G)]
        options = {"device": device, "dtype": torch_dtype(setting.dtype), "requires_grad": True}
        q, k, v = (torch.randn(shape, **options) for shape in shapes)  # (B, H, T, D), 2 of (B, G, T, D)
        for name, backend in BACKENDS.items():
            row = {"kernel": name, "grouped heads": grouped}
            yield row | _attention_costs(setting, (q, k, v), backend)


def _attention_costs(setting: Setting, qkv: tuple[Tensor, Tensor, Tensor], backend: SDPBackend) -> dict[str, Any]:
    q, k, v = qkv

    def work() -> None:
        with sdpa_kernel(backend):
            F.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1]
            ).sum().backward()
        q.grad = k.grad = v.grad = None

    try:
        return _costs(setting, work)
    except RuntimeError as error:  # this kernel cannot run the case
        return {"problem": first_line(error)}


def micro_batches(setting: Setting) -> Iterator[dict[str, Any]]:
    """Updates of GPT-2 by micro-batch size, not compiled."""
    sequences, length = setting.sequences, setting.size.gpt2.block_size
    for size in (size for size in MICRO_BATCHES if size <= sequences):
        trainer = setting.gpt2_trainer({"train.batch_size": sequences, "train.micro_batch_size": size})
        costs = _costs(setting, trainer.step)
        yield {"micro-batch": size, "tokens/s": sequences * length / (costs["ms"] / 1e3), **costs}


def optimizers(setting: Setting) -> Iterator[dict[str, Any]]:
    """Updates of GPT-2 with each optimizer, not compiled, and their last phase alone."""
    for name in ("adamw", "muon"):
        trainer = setting.gpt2_trainer({"optim.optimizer": name})
        costs = _costs(setting, trainer.step)
        marks = Marks(setting.device)
        for _ in range(2 + setting.size.rounds):
            for parameter in trainer.model.parameters():
                parameter.grad = torch.zeros_like(parameter)
            marks.mark()
            trainer.optimizer.step(0.0, torch.zeros((), device=setting.device))
            marks.mark()
        yield {"optimizer": name, "optimizer alone (ms)": 1e3 * median(marks.seconds()[4::2]), **costs}


def cudnn_attention(setting: Setting) -> Iterator[dict[str, Any]]:
    """Updates of GPT-2, not compiled, and passes over texts of lengths that were not seen before."""
    context = setting.size.gpt2.block_size
    for number, allowed in enumerate((True, False)):
        with _cudnn_attention(allowed):
            costs = _costs(setting, setting.gpt2_trainer().step)
            model, marks = Writer(setting).model, Marks(setting.device)
            for length in (2, *(context // 2 + 2 * step + number for step in range(1, 6))):
                marks.mark()
                with torch.inference_mode():
                    model.hidden(torch.zeros(1, length, dtype=torch.long, device=setting.device))
            marks.mark()
            yield {"allowed": allowed, "pass over a new length (ms)": 1e3 * median(marks.seconds()[1:]), **costs}


def experts(setting: Setting) -> Iterator[dict[str, Any]]:
    """Updates of GPT-2 with experts: all at once, on a GPU also compiled, and one after the other."""
    ways = {"all at once": Experts.mix_at_once, "one by one": Experts.mix_one_by_one}
    rows = [("all at once", "on")] if setting.device.type == "cuda" else []
    for name, compiled in [("all at once", "off"), ("one by one", "off"), *rows]:
        with mock.patch.multiple(Experts, mix_at_once=ways[name], mix_one_by_one=ways[name]):
            trainer = setting.gpt2_trainer({"model.n_expert": EXPERTS, "train.compile": compiled})
            costs = _costs(setting, trainer.step)
        size, dtype = trainer.micro_batch_size, trainer.dtype
        estimate = training_memory(trainer.config.model, size, dtype, setting.device.type).total
        yield {"experts": name, "compiled": compiled, **costs, "estimated bytes": estimate}


def eval_batches(setting: Setting) -> Iterator[dict[str, Any]]:
    """Scoring windows of GPT-2 by the tokens of a forward pass, of which `eval` takes `scoring.BATCH_TOKENS`."""
    model, context = Writer(setting).model, setting.size.gpt2.block_size
    ids = torch.randint(0, setting.size.gpt2.vocab_size, (context * setting.sequences,)).numpy()
    for tokens in EVAL_BATCHES:

        def score(tokens: int = tokens) -> None:
            with mock.patch.dict(scoring.BATCH_TOKENS, {setting.device.type: tokens}):
                scoring._score_windows(model, scoring.strided_windows([ids], context, context), lambda *_: None)

        costs = _costs(setting, score)
        yield {"tokens at once": tokens, "tokens/s": len(ids) / (costs["ms"] / 1e3), **costs}


@contextmanager
def _cudnn_attention(allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(allowed)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def _costs(setting: Setting, work: Callable[[], object]) -> dict[str, Any]:
    """Median milliseconds of some work, and the peak of the memory of tensors."""
    group = repeated(work, setting.size.updates, setting.device)
    group()
    peak_bytes(setting.device)
    seconds = alternate({"": group}, setting.size.rounds, warm_up=0)[""] / setting.size.updates
    return {"ms": 1e3 * seconds, "peak bytes": peak_bytes(setting.device)}
