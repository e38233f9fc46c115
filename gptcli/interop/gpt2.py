"""GPT-2 in transformers.

Its files keep OpenAI's layout: the four matrices of a block are stored as (in, out), while torch's linear layers have
(out, in). Tensor names start with `transformer.`, except in older files, which also contain causal masks.
"""

from __future__ import annotations

import re
from operator import attrgetter

from gptcli.config import ModelConfig
from gptcli.interop.architecture import HEAD, Architecture, Field, HfTensor

PREFIX = "transformer."
ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu"}
"""transformers' names of the nonlinearities."""
_TRANSPOSED = re.compile(r"(c_attn|c_proj|c_fc)\.weight$")
_MASK_BUFFER = re.compile(r"h\.\d+\.attn\.(bias|masked_bias)$")


def _tensors(name: str, config: ModelConfig) -> list[HfTensor]:
    if name == HEAD:
        return [HfTensor(HEAD)]
    return [HfTensor(PREFIX + name, transposed=bool(_TRANSPOSED.search(name)))]


def _canonical_name(stored: str) -> str | None:
    name = stored.removeprefix(PREFIX)
    if _MASK_BUFFER.fullmatch(name):
        return None
    return stored if stored == HEAD else PREFIX + name


def _mlp(activation: str | None) -> str:
    """The nonlinearity that transformers names so; GELU in its tanh form has two names and is the default."""
    return "relu" if activation == "relu" else "gelu"


GPT2 = Architecture(
    model_type="gpt2",
    class_name="GPT2LMHeadModel",
    title="GPT-2",
    settings={
        "position": "learned",
        "norm": "layernorm",
        "norm_placement": "pre",
        "bias": True,
        "n_kv_head": None,
        "head_dim": None,
        "qk_norm": False,
        "sliding_window": None,
        "n_expert": 0,
        "logit_softcap": 0.0,
    },
    choices={"mlp": tuple(ACTIVATIONS)},
    config={
        "n_positions": Field("block_size", other_key="n_ctx"),
        "n_embd": Field("n_embd"),
        "n_layer": Field("n_layer"),
        "n_head": Field("n_head"),
        "n_inner": Field("mlp_width", optional=True, if_set=True),
        "activation_function": lambda config: ACTIVATIONS[config.mlp],
        "layer_norm_epsilon": Field("norm_epsilon", optional=True),
        "resid_pdrop": Field("dropout", optional=True),
        "embd_pdrop": attrgetter("dropout"),
        "attn_pdrop": attrgetter("dropout"),
    },
    other_fields=lambda values: {"mlp": _mlp(values.get("activation_function"))},
    required_values={
        "activation_function": ("gelu_new", "gelu_pytorch_tanh", "relu", None),
        "scale_attn_weights": (True, None),
        "scale_attn_by_inverse_layer_idx": (False, None),
        "add_cross_attention": (False, None),
        "quantization_config": (None,),
    },
    tensors=_tensors,
    canonical_name=_canonical_name,
)
