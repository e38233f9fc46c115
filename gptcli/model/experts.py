"""A mixture of experts: several MLPs, and a router that sends each token through a few of them.

No token is dropped for lack of capacity: its result would then depend on its neighbors, and cached and uncached passes
would differ.

Letters: B sequences, T tokens each, N = B·T, C width, E experts, K active ones, M = N·K choices.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gptcli.config import ModelConfig
from gptcli.model.devices import product_dtype
from gptcli.model.grouping import block_rows, expert_linear, group_rows, has_grouped_kernel
from gptcli.model.nonlinear import nonlinear


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
        # Not `one_hot`, which reads its input on the host.
        counts = (chosen.unsqueeze(3) == torch.arange(E, device=chosen.device)).sum((1, 2))  # (B, E)
        shares = counts.to(probabilities.dtype) / (chosen.shape[1] * K)  # (B, E), each row sums to 1
        self.balance_losses.append(E * (shares * probabilities.mean(1)).sum(1).mean())
        self.loads.append(shares.detach().mean(0))

    def balance_loss(self) -> Tensor:
        """Mean over layers and sequences, (): 1 for an even load, E if one expert gets all tokens."""
        return torch.stack(self.balance_losses).mean()


class ExpertLoad:
    """The load of experts in an update, summed over its micro-batches."""

    def __init__(self) -> None:
        self.balance_loss = torch.zeros(())  # a number on the host, which is added without a copy to the device
        self.loads = torch.zeros(())  # then (L, E)

    def add(self, routing: Routing, share: float) -> None:
        """Add a forward pass with this share of the update's sequences."""
        self.balance_loss = self.balance_loss + share * routing.balance_loss().detach()
        self.loads = self.loads + share * torch.stack(routing.loads)

    def tensors(self) -> list[Tensor]:
        """Both sums, (2,) of them, to be summed further."""
        return [self.balance_loss, self.loads]

    def largest_load(self) -> Tensor:
        """The largest share of choices of any expert in any layer, (); 1/E for an even load."""
        return self.loads.max()


class Experts(nn.Module):
    """The MLP of a block as a mixture: the top K of E experts, weighted by probability (Mixtral, Qwen3-MoE)."""

    def __init__(self, config: ModelConfig, experts: list[nn.Module]) -> None:
        super().__init__()
        self.active, self.kind, self.dropout = config.n_expert_active, config.mlp, config.dropout
        self.router = nn.Linear(config.n_embd, len(experts), bias=False)
        self.experts = nn.ModuleList(experts)
        self._stacked: dict[str, Tensor] | None = None

    def forward(self, x: Tensor, routing: Routing | None) -> Tensor:
        logits = self.router(x)  # (B, T, E)
        probabilities = logits.softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))  # (B, T, E)
        weights, chosen = probabilities.topk(self.active, dim=-1)  # 2 of (B, T, K)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        if routing is not None:
            routing.add(probabilities, chosen)
        mix = self.mix_one_by_one if x.device.type in ("cpu", "mps") else self.mix_at_once
        return mix(x.flatten(0, 1), weights.flatten(0, 1), chosen.flatten(0, 1)).view_as(x)

    def mix_one_by_one(self, tokens: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """Tokens (N, C) with weights and numbers of their experts, both (N, K) → (N, C), expert by expert.

        It reads on the host which tokens an expert gets, which on a GPU would wait for the device.
        """
        out = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            token, rank = (chosen == number).nonzero(as_tuple=True)  # 2 of (n), n tokens of this expert
            part = expert(tokens[token]) * weights[token, rank, None]  # (n, C)
            out = out.index_add(0, token, part.to(out.dtype))
        return out

    def mix_at_once(self, tokens: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """The same as `mix_one_by_one` in operations whose shapes do not depend on the choices.

        Nothing is read on the host, so that it can be captured as a CUDA graph.
        """
        N, K = chosen.shape
        dtype = product_dtype(tokens)
        stacked = self._stacked or self._stack(dtype)
        inside, outside = stacked["c_fc.weight"], stacked["c_proj.weight"]  # (E, W or 2W, C), (E, C, W)
        kernel = has_grouped_kernel(tokens.device, inside.dtype, *inside.shape[1:], *outside.shape[1:])
        grouping = group_rows(chosen.flatten(), len(inside), block_rows(N * K, len(inside), kernel=kernel))
        x = grouping.arrange(tokens.to(dtype).unsqueeze(1).expand(-1, K, -1).flatten(0, 1))  # (R, C)
        x = expert_linear(x, inside, stacked.get("c_fc.bias"), grouping, kernel=kernel)  # (R, W or 2W)
        x = nonlinear(x, self.kind)  # (R, W)
        x = expert_linear(x, outside, stacked.get("c_proj.bias"), grouping, kernel=kernel)  # (R, C)
        parts = grouping.restore(x).view(N, K, -1)  # (N, K, C)
        if self.training and self.dropout:
            parts = nn.functional.dropout(parts, self.dropout)
        return (parts * weights.unsqueeze(2)).sum(1).to(tokens.dtype)

    def keep_stacked(self) -> None:
        """Keep the weights of all experts together, and make each expert's a part of them. Inference only.

        Otherwise `mix_at_once` puts them together in every pass.
        """
        self._stacked = self._stack(self.router.weight.dtype)
        for name, together in self._stacked.items():
            for expert, part in zip(self.experts, together.unbind(), strict=True):
                expert.get_parameter(name).data = part

    def _stack(self, dtype: torch.dtype) -> dict[str, Tensor]:
        """The parameters of all experts by name, each (E, …)."""
        names = [name for name, _ in self.experts[0].named_parameters()]
        return {name: torch.stack([expert.get_parameter(name) for expert in self.experts]).to(dtype) for name in names}
