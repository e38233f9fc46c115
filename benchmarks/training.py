"""How long does an update take, against transformers, and what share of the machine's matrix rate is that?

An update is forward, backward, clipping and AdamW, in float32, without dropout, on random tokens. Both use torch's
fused AdamW and `scaled_dot_product_attention`. FLOPs per token = 6 N + 12 · layers · width · T, with all parameters and
no discount for causality.

    python -m benchmarks.training [tiny|small|gpt2]...
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.measure import alternate, matrix_rate, save
from gptcli.config import ModelConfig, OptimConfig
from gptcli.interop.huggingface import config_to_hf
from gptcli.model.gpt import GPT
from gptcli.training.gradients import accumulate_gradients
from gptcli.training.optimizer import Optimizer

MODELS = {
    "tiny": (ModelConfig(vocab_size=65, n_layer=4, n_head=4, n_embd=128, block_size=64), 12, 60),
    "small": (ModelConfig(vocab_size=65, n_layer=6, n_head=6, n_embd=384, block_size=256), 8, 8),
    "gpt2": (ModelConfig(vocab_size=50257, n_layer=12, n_head=12, n_embd=768, block_size=256), 2, 4),
}
"""Model, sequences per update, and rounds of measurement."""


def gptcli_update(config: ModelConfig, ids: Tensor) -> Callable[[], object]:
    """One update by this program's own parts."""
    model = GPT(config)
    optimizer = Optimizer(model, OptimConfig(lr=1e-4), torch.float32)

    def update() -> None:
        loss = accumulate_gradients(model, model.hidden, ids, len(ids), torch.float32, optimizer.backward)
        optimizer.step(1e-4, loss)

    return update


def transformers_update(config: ModelConfig, ids: Tensor) -> Callable[[], object]:
    """The same update with transformers' model and torch's parts."""
    from transformers import GPT2Config, GPT2LMHeadModel

    settings = config_to_hf(config, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(GPT2Config(**settings, attn_implementation="sdpa")).train()
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.99), weight_decay=0.1, fused=True)

    def update() -> None:
        model(ids, labels=ids).loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adamw.step()
        adamw.zero_grad()

    return update


def measure(name: str) -> dict[str, Any]:
    """Seconds per update of both, their ratio, and the share of the matrix rate."""
    config, batch_size, rounds = MODELS[name]
    torch.manual_seed(0)
    ids = torch.randint(0, config.vocab_size, (batch_size, config.block_size + 1))
    seconds = alternate(
        {"gptcli": gptcli_update(config, ids), "transformers": transformers_update(config, ids[:, :-1])}, rounds
    )
    parameters = sum(parameter.numel() for parameter in GPT(config).parameters())
    per_token = 6 * parameters + 12 * config.n_layer * config.n_embd * config.block_size
    flops = per_token * batch_size * config.block_size
    return {
        "model": f"{config.n_layer}/{config.n_head}/{config.n_embd}, T={config.block_size}, B={batch_size}",
        "seconds": seconds,
        "ratio": seconds["gptcli"] / seconds["transformers"],
        "flops_per_second": flops / seconds["gptcli"],
    }


def main() -> None:
    rate = matrix_rate()
    chosen = sys.argv[1:] or list(MODELS)
    save("training", {"matrix_rate": rate, "rows": {name: measure(name) for name in chosen}})


if __name__ == "__main__":
    main()
