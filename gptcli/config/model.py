"""The shape of a model, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, SerializationInfo, SerializerFunctionWrapHandler, model_serializer, model_validator

from gptcli.config.types import Count, Finite, Fraction, Positive, Section, Width

MAX_EXPERTS = 2048
"""Upper limit of experts in all layers together."""
DERIVED = ("n_kv_head", "head_dim", "mlp_width")
"""Fields of a model that follow from others where they are not set, or None."""


def _default_mlp_width(data: Mapping[str, Any]) -> int:
    return 32 * -(-8 * int(data["n_embd"]) // 96) if data["mlp"] == "swiglu" else 4 * int(data["n_embd"])


class ModelConfig(Section):
    """A decoder-only transformer; the fields after `dropout` default to GPT-2 (docs/architectures.md)."""

    vocab_size: Annotated[int, Field(ge=1, le=2**24)]
    """Vocabulary size, the rows of the token embedding."""
    n_layer: Annotated[int, Field(ge=1, le=512)]
    """Number of blocks."""
    n_head: Width
    """Attention heads per block."""
    n_embd: Width
    """Width of the residual stream."""
    block_size: Annotated[int, Field(ge=1, le=2**20)]
    """Context length in tokens."""
    dropout: Fraction = 0.0
    """Share of activations dropped in training."""
    n_kv_head: Count = Field(default_factory=lambda data: data["n_head"])
    """Key and value heads, each shared by n_head / n_kv_head query heads (default: n_head)."""
    head_dim: Width = Field(default_factory=lambda data: data["n_embd"] // data["n_head"])
    """Width of an attention head (default: n_embd / n_head)."""
    qk_norm: bool = False
    """Apply RMSNorm to the queries and keys of each head."""
    sliding_window: Count | None = None
    """Attention window in tokens, the current one included (default: full causal attention)."""
    windowed_layers: Literal["all", "alternate"] = "all"
    """Layers that use the sliding window: `all`, or `alternate` (the first, the third and so on)."""
    position: Literal["learned", "sinusoidal", "rope", "none"] = "learned"
    """Position encoding: `learned`, `sinusoidal`, `rope` or `none`."""
    rope_base: Positive = 10_000.0
    """Base of the rotary frequencies."""
    rope_scaling: Annotated[Finite, Field(ge=1)] = 1.0
    """Divisor of rotary positions. A model trained on T tokens then covers `rope_scaling` times T without larger
    angles than in training."""
    norm: Literal["layernorm", "rmsnorm"] = "layernorm"
    """Normalization: `layernorm` or `rmsnorm`."""
    norm_placement: Literal["pre", "post"] = "pre"
    """Norms before each sub-layer (`pre`), or after the residual sum (`post`)."""
    norm_epsilon: Positive = 1e-5
    """Epsilon of the norms."""
    mlp: Literal["gelu", "relu", "relu2", "swiglu"] = "gelu"
    """Nonlinearity of the MLP: `gelu`, `relu`, `relu2` or `swiglu`."""
    mlp_width: Annotated[int, Field(ge=1, le=2**18)] = Field(default_factory=_default_mlp_width)
    """Width inside the MLP (default: 4 n_embd; for swiglu 8/3 n_embd, rounded up to a multiple of 32)."""
    n_expert: Annotated[int, Field(ge=0, le=256)] = 0
    """Experts per block, chosen for each token by a router; 0: a single MLP without a router."""
    n_expert_active: Count = 2
    """Experts that process each token."""
    bias: bool = True
    """Use biases in linear layers and LayerNorm."""
    tied: bool = True
    """Share the weights of the token embedding with the output head."""
    logit_softcap: Annotated[Finite, Field(ge=0)] = 0.0
    """Bound of the logits, plus and minus, by a scaled tanh; 0: unbounded."""

    @property
    def qkv_rows(self) -> tuple[int, int, int]:
        """Rows of queries, keys and values in the matrix that computes all three."""
        return self.n_head * self.head_dim, self.n_kv_head * self.head_dim, self.n_kv_head * self.head_dim

    @property
    def mlp_rows(self) -> int:
        """Rows of the MLP's first matrix: SwiGLU has a gate for each value."""
        return self.mlp_width * (2 if self.mlp == "swiglu" else 1)

    def window_of(self, layer: int) -> int | None:
        """Attention window of a layer in tokens; None: full causal attention."""
        windowed = self.windowed_layers == "all" or layer % 2 == 0
        return self.sliding_window if windowed else None

    @model_validator(mode="before")
    @classmethod
    def _derive_none(cls, values: object) -> object:
        if not isinstance(values, dict):
            return values  # not a table of settings: refused afterwards
        return {key: value for key, value in values.items() if value is not None or key not in DERIVED}

    @model_serializer(mode="wrap")
    def _leave_derived_open(self, serialize: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """The fields, with None for a width that was derived: files store only what was set."""
        values: dict[str, Any] = serialize(self)
        for name in {"head_dim", "mlp_width"} & values.keys() - self.model_fields_set:
            values[name] = None
            if info.exclude_none:
                del values[name]
        return values

    @model_validator(mode="after")
    def _fits_together(self) -> ModelConfig:
        if self.n_embd % self.n_head and "head_dim" not in self.model_fields_set:
            raise ValueError(f"`model.n_embd` ({self.n_embd}) must be a multiple of `model.n_head` ({self.n_head})")
        if self.n_head % self.n_kv_head:
            raise ValueError(
                f"`model.n_head` ({self.n_head}) must be a multiple of `model.n_kv_head` ({self.n_kv_head})"
            )
        if self.position == "rope" and self.head_dim % 2:
            raise ValueError(f"`model.head_dim` ({self.head_dim}) must be even for `model.position = rope`")
        if self.n_layer * self.n_expert > MAX_EXPERTS:
            product = f"`model.n_layer` ({self.n_layer}) times `model.n_expert` ({self.n_expert})"
            raise ValueError(f"{product} must be at most {MAX_EXPERTS}")
        if self.n_expert == 1:
            raise ValueError("`model.n_expert` must be 0 or at least 2")
        if self.n_expert and self.n_expert_active > self.n_expert:
            active = f"`model.n_expert_active` ({self.n_expert_active})"
            raise ValueError(f"{active} must be at most `model.n_expert` ({self.n_expert})")
        return self
