"""Models in Hugging Face's form: `config.json`, tensor names and layouts, tokenizer settings.

A model that transformers knows, by whatever name, is stored as it expects it; one that has no counterpart there is
stored under our own names, with a `config.json` of our own, which only this program opens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from gptcli.config import ModelConfig, config_error
from gptcli.errors import ModelFolderError
from gptcli.interop.architecture import HEAD, Architecture, Part
from gptcli.interop.gpt2 import GPT2
from gptcli.interop.llama import LLAMA, MISTRAL, MIXTRAL, QWEN3, QWEN3_MOE
from gptcli.model.cost import parameter_shapes
from gptcli.model.gpt import INITIAL_DEVIATION

OWN = Architecture(
    model_type="gptcli",
    class_name="GPT",
    title="GPT",
    parts=lambda name, config: [Part(name)],
    to_values=lambda config: config.model_dump(exclude={"vocab_size", "tied"}),
    from_values=lambda values: {key: values[key] for key in ModelConfig.model_fields if key in values},
    required={},
)
"""A model without a counterpart."""

ARCHITECTURES = {a.model_type: a for a in (GPT2, LLAMA, MISTRAL, QWEN3, MIXTRAL, QWEN3_MOE, OWN)}

GPT2_KNOBS: dict[str, Any] = {
    "position": "learned", "norm": "layernorm", "norm_placement": "pre", "mlp": "gelu", "bias": True,
    "n_kv_head": None, "head_dim": None, "qk_norm": False, "sliding_window": None, "n_expert": 0, "logit_softcap": 0.0,
}  # fmt: skip
"""What GPT-2 must have; None for n_kv_head: as many as n_head, for head_dim: n_embd / n_head."""
LLAMA_KNOBS: dict[str, Any] = {
    "position": "rope", "norm": "rmsnorm", "norm_placement": "pre", "mlp": "swiglu", "bias": False,
    "logit_softcap": 0.0,
}  # fmt: skip
"""What Llama and its relatives must have."""


def architecture_of(config: ModelConfig) -> Architecture:
    """What transformers calls a model; `OWN` if it has no such model."""
    if not _unlike(config, GPT2_KNOBS):
        return GPT2
    windowed, experts = config.sliding_window is not None, config.n_expert > 0
    alternate = windowed and config.windowed_layers == "alternate"
    if _unlike(config, LLAMA_KNOBS) or (alternate and (experts or not config.qk_norm)):
        return OWN
    if experts:
        return QWEN3_MOE if config.qk_norm else MIXTRAL
    if config.qk_norm:
        return QWEN3
    return MISTRAL if windowed else LLAMA


def peculiarities(config: ModelConfig) -> list[str]:
    """The knobs by which a model has no counterpart elsewhere, such as `position = sinusoidal`; [] if it has one.

    They are those in which it differs from the nearer of GPT-2 and Llama.
    """
    if architecture_of(config) is not OWN:
        return []
    return min((_unlike(config, knobs) for knobs in (LLAMA_KNOBS, GPT2_KNOBS)), key=len) or [
        f"windowed_layers = {config.windowed_layers}"
    ]


def no_counterpart(config: ModelConfig) -> str:
    """A sentence on a model that no other program knows; "" for others."""
    knobs = peculiarities(config)
    return f"No other program knows this combination ({', '.join(knobs)}): it trains and samples here." if knobs else ""


def _unlike(config: ModelConfig, knobs: Mapping[str, Any]) -> list[str]:
    values = config.model_dump(mode="json")
    if config.n_kv_head == config.n_head:
        values["n_kv_head"] = None
    if config.n_head * config.head_dim == config.n_embd:
        values["head_dim"] = None
    return [f"{key} = {str(values[key]).lower()}" for key, value in knobs.items() if values[key] != value]


def config_to_hf(
    config: ModelConfig, *, bos_token_id: int, eos_token_id: int | None, dtype: str = "float32"
) -> dict[str, Any]:
    """`config.json` of a model whose weights are stored in `dtype`."""
    architecture = architecture_of(config)
    return {
        "architectures": [architecture.class_name],
        "model_type": architecture.model_type,
        "vocab_size": config.vocab_size,
        **architecture.to_values(config),
        "initializer_range": INITIAL_DEVIATION,
        "tie_word_embeddings": config.tied,
        "bos_token_id": bos_token_id,
        "eos_token_id": eos_token_id,
        "dtype": dtype,
    }


def config_from_hf(values: Mapping[str, Any], where: str) -> ModelConfig:
    """The model that a `config.json` describes; `where` names it in errors.

    Raises ModelFolderError, naming the key, if it is not one that this program computes exactly.
    """
    known = ", ".join(ARCHITECTURES)
    architecture = ARCHITECTURES.get(str(values.get("model_type")))
    if architecture is None:
        raise ModelFolderError(
            f"{where} is not supported: model_type is {values.get('model_type')!r}.", f"Known are {known}."
        )
    for key, allowed in architecture.required.items():
        if values.get(key) not in allowed:
            raise ModelFolderError(
                f"{where} is not supported: {key} is {values.get(key)!r}, where {allowed[0]!r} is needed.",
                "Only models whose every number this program computes as transformers does can be opened.",
            )
    try:
        tied = values.get("tie_word_embeddings", architecture is GPT2)
        shape = {"vocab_size": values["vocab_size"], "tied": tied}
        return ModelConfig.model_validate(architecture.from_values(values) | shape)
    except KeyError as error:
        raise ModelFolderError(f"{where} has no key {error}.") from None
    except ValidationError as error:
        problem = config_error(error, ModelConfig).message.replace("`", "")
        raise ModelFolderError(f"{where} cannot be used: {problem}") from None
    except (AttributeError, TypeError, ValueError, ZeroDivisionError) as error:  # values of another kind or of no use
        raise ModelFolderError(f"{where} is not supported: {error}.") from None


def tensors_to_hf(state: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """A model's state, under Hugging Face's names and layouts; a tied head is not stored twice."""
    architecture = architecture_of(config)
    tensors: dict[str, Tensor] = {}
    for name, tensor in state.items():
        parts = architecture.parts(name, config)
        pieces = torch.split(tensor, [part.rows or len(tensor) for part in parts])
        tensors |= {part.name: _turned(piece, part) for part, piece in zip(parts, pieces, strict=True)}
    return tensors


def tensors_from_hf(tensors: Mapping[str, Tensor], config: ModelConfig, where: str) -> dict[str, Tensor]:
    """The state of a model of `config` from Hugging Face tensors; `where` names them in errors.

    Raises ModelFolderError that lists every missing, unexpected and misshapen tensor.
    """
    ours = {name: torch.empty(shape, device="meta") for name, shape in parameter_shapes(config).items()}
    expected = tensors_to_hf(ours, config)
    architecture = architecture_of(config)
    given: dict[str, Tensor] = {}
    problems = []
    for stored_name, tensor in tensors.items():
        name = architecture.plain_name(stored_name)
        if name is None or (name == HEAD and config.tied):
            continue
        if name in given:
            problems.append(f"{name} is there twice, under two spellings")
        if not tensor.is_floating_point():
            problems.append(f"{name} has numbers of type {str(tensor.dtype).removeprefix('torch.')}")
        given[name] = tensor
    problems += [f"{name} is missing" for name in expected.keys() - given.keys()]
    problems += [f"{name} is not expected" for name in given.keys() - expected.keys()]
    problems += [
        f"{name} has shape {list(given[name].shape)} instead of {list(expected[name].shape)}"
        for name in given.keys() & expected.keys()
        if given[name].shape != expected[name].shape
    ]
    head, embedding = tensors.get(HEAD), given.get(architecture.parts("wte.weight", config)[0].name)
    if config.tied and head is not None and embedding is not None and not torch.equal(head.float(), embedding.float()):
        problems.append(f"{HEAD} differs from the token embedding, to which config.json ties it")
    if problems:
        raise ModelFolderError(f"{where} does not fit its config.json: {'; '.join(sorted(problems))}.")
    state = {}
    for name in ours:
        pieces = [_turned(given[part.name], part) for part in architecture.parts(name, config)]
        state[name] = torch.cat(pieces) if len(pieces) > 1 else pieces[0]
    return state


def tokenizer_settings(end_of_text: str | None, context: int) -> dict[str, Any]:
    """`tokenizer_config.json`, which lets transformers open `tokenizer.json` as it is."""
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
    }
    if end_of_text is not None:
        settings |= {"bos_token": end_of_text, "eos_token": end_of_text, "unk_token": None}
    return settings


def _turned(tensor: Tensor, part: Part) -> Tensor:
    return tensor.t() if part.transposed else tensor
