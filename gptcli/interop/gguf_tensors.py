"""The tensors of a model in llama.cpp's names and layouts.

GPT-2 stores queries, keys and values in one matrix. Llama and its relatives store three, and separate the gate and the
up projection of SwiGLU. The experts of a layer are stacked into one tensor. For rope, llama.cpp's Llama pairs
neighboring elements of a head, while we, Hugging Face and llama.cpp's Qwen3 pair the two halves: the rows of Llama's
queries and keys are reordered.

Letters: C model width, D head width, E experts, W MLP width.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gptcli.config import ModelConfig
from gptcli.errors import ExportError
from gptcli.interop.huggingface import architecture_of, unsupported_settings
from gptcli.model.gpt import GPT

ARCHITECTURES = {
    "gpt2": "gpt2",
    "llama": "llama",
    "mistral": "llama",
    "mixtral": "llama",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3moe",
}
"""Names of architectures in llama.cpp, by those in transformers."""

EMBEDDING, HEAD, POSITIONS, ROUTER = "token_embd", "output", "position_embd", "ffn_gate_inp"
_OUTSIDE = {"wte": EMBEDDING, "wpe": POSITIONS, "ln_f": "output_norm", "lm_head": HEAD}
_IN_BLOCK = {
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "attn.q_norm": "attn_q_norm",
    "attn.k_norm": "attn_k_norm",
    "ln_2": "ffn_norm",
    "mlp.router": ROUTER,
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
_PARAMETER = re.compile(r"(?:h\.(?P<block>\d+)\.)?(?P<module>.+)\.(?P<kind>weight|bias)")
_EXPERT = re.compile(r"(mlp)\.experts\.\d+(\..+)")


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a GGUF file: views of the model, converted when it is written."""

    name: str
    shape: tuple[int, ...]
    parts: list[Tensor]
    """One per expert, otherwise a single one."""

    @property
    def module(self) -> str:
        """The name without block and kind: blk.0.attn_q.weight → attn_q."""
        return self.name.split(".")[-2]

    def array(self) -> np.ndarray:
        """The values in float32, on the CPU."""
        whole = torch.stack(self.parts) if len(self.parts) > 1 else self.parts[0]
        return whole.detach().cpu().float().reshape(self.shape).contiguous().numpy()


def gguf_architecture(config: ModelConfig) -> str:
    """llama.cpp's name for an architecture; raises ExportError for a model that llama.cpp computes differently."""
    architecture = ARCHITECTURES.get(architecture_of(config).model_type)
    hint = "Export with `to = hf` instead."
    if architecture is None:
        settings = ", ".join(unsupported_settings(config))
        raise ExportError(f"llama.cpp supports no model with {settings}.", hint)
    if config.mlp == "relu":
        raise ExportError("llama.cpp would compute GELU in place of the model's ReLU (mlp = relu).", hint)
    if config.sliding_window is not None and config.sliding_window < config.block_size:
        window = f"sliding_window = {config.sliding_window}"
        raise ExportError(f"llama.cpp would ignore the model's sliding window ({window}).", hint)
    return architecture


def gguf_tensors(model: GPT) -> list[StoredTensor]:
    """Every tensor of the GGUF file of a model."""
    found: dict[str, list[Tensor]] = {}
    for name, tensor in model.state_dict().items():
        for stored, piece in _pieces(name, tensor, model.config):
            found.setdefault(stored, []).append(piece)
    return [StoredTensor(name, _shape(name, parts), parts) for name, parts in found.items()]


def _pieces(name: str, tensor: Tensor, config: ModelConfig) -> Iterator[tuple[str, Tensor]]:
    """Names and views of the tensors that one of our parameters becomes."""
    match = _PARAMETER.fullmatch(name)
    assert match, name
    if match["block"] is None:
        yield f"{_OUTSIDE[match['module']]}.{match['kind']}", tensor
        return
    module = _EXPERT.sub(r"\1\2", match["module"])
    prefix, suffix = f"blk.{match['block']}.", ("_exps" if module != match["module"] else "") + f".{match['kind']}"
    if module == "attn.c_attn" and config.position == "rope":
        q, k, v = torch.split(tensor, [*config.qkv_rows])
        if not config.qk_norm:
            q, k = _interleaved(q, config.head_dim), _interleaved(k, config.head_dim)
        for letter, piece in zip("qkv", (q, k, v), strict=True):
            yield f"{prefix}attn_{letter}{suffix}", piece
    elif module == "mlp.c_fc" and config.mlp == "swiglu":
        gate, value = tensor.chunk(2)  # 2 of (W, C)
        yield f"{prefix}ffn_gate{suffix}", gate
        yield f"{prefix}ffn_up{suffix}", value
    else:
        yield f"{prefix}{_IN_BLOCK[module]}{suffix}", tensor


def _interleaved(rows: Tensor, head_dim: int) -> Tensor:
    """Rows of queries or keys, (heads · D, C), with the two rows of each rope pair side by side, (heads, D/2, 2, C)."""
    return rows.view(-1, 2, head_dim // 2, rows.shape[-1]).transpose(1, 2)


def _shape(name: str, parts: list[Tensor]) -> tuple[int, ...]:
    """The stored shape: (E, …) for stacked experts, and a matrix for the output of `_interleaved`."""
    first = parts[0]
    shape = (first.numel() // first.shape[-1], first.shape[-1]) if first.dim() > 2 else tuple(first.shape)
    return (len(parts), *shape) if "_exps." in name else shape
