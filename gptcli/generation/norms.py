"""Norms of activations and gradients by layer.

Letters: L layers, T tokens, C width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gptcli.generation.residual import token_limit
from gptcli.model.gpt import GPT


@dataclass(frozen=True)
class LayerNorms:
    """The residual stream of a text: L + 1 values, of the embeddings and after each block."""

    activations: tuple[float, ...]
    """Root mean square of the elements."""
    gradients: tuple[float, ...]
    """Norm of the gradient of the text's mean loss. It falls towards the first block where gradients vanish."""


def layer_norms(model: GPT, ids: list[int]) -> LayerNorms:
    """The norms for the first tokens of a text of at least two. The gradients of the weights stay as they are."""
    ids = ids[: token_limit(model)]
    device = model.wte.weight.device
    with torch.enable_grad():
        x, rotation = model.embed(torch.tensor([ids[:-1]], device=device), slice(len(ids) - 1))  # (1, T, C)
        states = [x.detach().requires_grad_()]
        for block in model.h:
            states.append(block(states[-1], rotation, None, None))
        loss = model.summed_loss(model.final_norm(states[-1]), torch.tensor([ids[1:]], device=device)) / (len(ids) - 1)
        gradients = torch.autograd.grad(loss, states)  # L + 1 of (1, T, C)
    return LayerNorms(
        tuple(float(state.detach().square().mean().sqrt()) for state in states),
        tuple(float(gradient.norm()) for gradient in gradients),
    )
