"""A mixture of experts: several MLPs, and a router that sends each token through a few of them.

No token is dropped for lack of capacity: its result would then depend on its neighbours, and cached and uncached passes
would differ.

Letters: B sequences, T tokens each, N = B·T, C width, E experts, K active ones.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gptcli.config import ModelConfig


class Routing:
    """The decisions of all routers in one forward pass; each layer adds its own."""

    def __init__(self) -> None:
        self.balance_losses: list[Tensor] = []
        self.loads: list[Tensor] = []

    def add(self, probabilities: Tensor, chosen: Tensor) -> None:
        """Add a layer's router probabilities (B, T, E) and chosen experts (B, T, K).

        The balance loss is E · Σ over experts of (share of choices) · (mean probability), 1 for an even load (Fedus et
        al. 2022, "Switch Transformers", section 2.2). It is computed per sequence (as in DeepSeek-V3), so that it does
        not depend on the micro-batch.
        """
        E, K = probabilities.shape[2], chosen.shape[2]
        counts = nn.functional.one_hot(chosen, E).sum((1, 2))  # (B, E)
        shares = counts.to(probabilities.dtype) / (chosen.shape[1] * K)  # (B, E), each row sums to 1
        self.balance_losses.append(E * (shares * probabilities.mean(1)).sum(1).mean())
        self.loads.append(shares.detach().mean(0))

    def balance_loss(self) -> Tensor:
        """Mean over layers and sequences, (): 1 for an even load, E if one expert gets all tokens."""
        return torch.stack(self.balance_losses).mean()


class Spread:
    """The load of experts in an update, summed over its micro-batches."""

    def __init__(self) -> None:
        self.balance_loss = torch.zeros(())
        self.loads = torch.zeros(())  # then (L, E)

    def add(self, routing: Routing, share: float) -> None:
        """Add a forward pass with this share of the update's sequences."""
        self.balance_loss = self.balance_loss.to(routing.loads[0].device) + share * routing.balance_loss().detach()
        self.loads = self.loads.to(routing.loads[0].device) + share * torch.stack(routing.loads)

    def largest_load(self) -> Tensor:
        """The largest share of choices of any expert in any layer, (); 1/E for an even load."""
        return self.loads.max()


class Experts(nn.Module):
    """The MLP of a block as a mixture: the top K of E experts, weighted by probability (Mixtral, Qwen3-MoE)."""

    def __init__(self, config: ModelConfig, experts: list[nn.Module]) -> None:
        super().__init__()
        self.active = config.n_expert_active
        self.router = nn.Linear(config.n_embd, len(experts), bias=False)
        self.experts = nn.ModuleList(experts)

    def forward(self, x: Tensor, routing: Routing | None) -> Tensor:
        logits = self.router(x)  # (B, T, E)
        probabilities = logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))  # (B, T, E)
        weights, chosen = probabilities.topk(self.active, dim=-1)  # 2 of (B, T, K)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        if routing is not None:
            routing.add(probabilities, chosen)
        tokens, weights, chosen = x.flatten(0, 1), weights.flatten(0, 1), chosen.flatten(0, 1)  # (N, C), 2 of (N, K)
        out = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            token, rank = (chosen == number).nonzero(as_tuple=True)  # 2 of (n), n tokens of this expert
            part = expert(tokens[token]) * weights[token, rank, None]  # (n, C)
            out = out.index_add(0, token, part.to(out.dtype))
        return out.view_as(x)
