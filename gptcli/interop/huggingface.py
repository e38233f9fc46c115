"""Models in Hugging Face's format: `config.json`, tensor names and layouts, tokenizer settings.

A model that transformers supports is stored the way transformers stores it. Any other model is stored under our own
tensor names with a `config.json` of our own, which only this program opens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from gptcli.config import ModelConfig
from gptcli.config.problems import problems
from gptcli.errors import ModelFolderError
from gptcli.interop.architecture import HEAD, Architecture, Field, HfTensor, as_json, wrong_value
from gptcli.interop.gpt2 import GPT2
from gptcli.interop.llama import LLAMA, MISTRAL, MIXTRAL, QWEN3, QWEN3_MOE
from gptcli.model.cost import parameter_shapes
from gptcli.model.gpt import INITIAL_DEVIATION

_EVERY_MODEL = {"vocab_size": Field("vocab_size"), "tie_word_embeddings": Field("tied", optional=True)}

OWN = Architecture(
    model_type="gptcli",
    class_name="GPT",
    title="GPT",
    settings={},
    config={
        name: Field(name, optional=True, if_set=True)
        for name in ModelConfig.model_fields
        if name not in ("vocab_size", "tied")
    },
    required_values={},
    tensors=lambda name, config: [HfTensor(name)],
)
"""A model that transformers does not support."""

ARCHITECTURES = {a.model_type: a for a in (GPT2, LLAMA, MISTRAL, QWEN3, MIXTRAL, QWEN3_MOE, OWN)}


def architecture_of(config: ModelConfig) -> Architecture:
    """The architecture of transformers that computes a model; `OWN` if none does."""
    if not _differences(config, GPT2):
        return GPT2
    windowed, experts = config.sliding_window is not None, config.n_expert > 0
    alternate = windowed and config.windowed_layers == "alternate"
    if _differences(config, LLAMA) or (alternate and (experts or not config.qk_norm)):
        return OWN
    if experts:
        return QWEN3_MOE if config.qk_norm else MIXTRAL
    if config.qk_norm:
        return QWEN3
    return MISTRAL if windowed else LLAMA


def unsupported_settings(config: ModelConfig) -> list[str]:
    """The settings that no architecture of transformers supports, such as `position = sinusoidal`; [] if one does.

    They are the differences from GPT-2 or from Llama, whichever has fewer.
    """
    if architecture_of(config) is not OWN:
        return []
    fewest = min((_differences(config, architecture) for architecture in (LLAMA, GPT2)), key=len)
    return fewest or [f"windowed_layers = {config.windowed_layers}"]


def compatibility_note(config: ModelConfig) -> str:
    """A sentence about a model that only this program opens; "" for any other."""
    settings = unsupported_settings(config)
    return f"Only gptcli can open this model, because of {', '.join(settings)}." if settings else ""


def _differences(config: ModelConfig, architecture: Architecture) -> list[str]:
    values = config.model_dump(mode="json")
    if config.n_kv_head == config.n_head:
        values["n_kv_head"] = None
    if config.n_head * config.head_dim == config.n_embd:
        values["head_dim"] = None
    allowed = {key: (value,) for key, value in architecture.settings.items()} | dict(architecture.choices)
    return [f"{key} = {str(values[key]).lower()}" for key, ones in allowed.items() if values[key] not in ones]


def config_to_hf(
    config: ModelConfig, *, bos_token_id: int, eos_token_id: int | None, dtype: str = "float32"
) -> dict[str, Any]:
    """The `config.json` of a model whose weights are stored in `dtype`."""
    architecture = architecture_of(config)
    return {
        "architectures": [architecture.class_name],
        "model_type": architecture.model_type,
        "vocab_size": config.vocab_size,
        **{key: value(config) if callable(value) else value for key, value in architecture.config.items()},
        "initializer_range": INITIAL_DEVIATION,
        "tie_word_embeddings": config.tied,
        "bos_token_id": bos_token_id,
        "eos_token_id": eos_token_id,
        "dtype": dtype,
    }


def config_from_hf(values: Mapping[str, Any], where: str) -> ModelConfig:
    """The model that a `config.json` describes; `where` names the file in errors.

    Raises ModelFolderError that names the wrong key, also for a model that this program would compute differently.
    """
    architecture = _architecture_in(values, where)
    try:
        fields, keys = _read_fields(values, architecture)
    except ValueError as error:
        raise ModelFolderError(f"{where} cannot be used: {error}.") from None
    try:
        return ModelConfig.model_validate(fields)
    except ValidationError as error:
        raise ModelFolderError(f"{where} cannot be used: {_explain(error, keys)}.") from None


def _architecture_in(values: Mapping[str, Any], where: str) -> Architecture:
    """The architecture that a `config.json` names. Raises ModelFolderError for values that it does not support."""
    architecture = ARCHITECTURES.get(str(values.get("model_type")))
    if architecture is None:
        wrong = wrong_value("model_type", values.get("model_type"), f"one of {', '.join(ARCHITECTURES)}")
        raise ModelFolderError(f"{where} is not supported: {wrong}.")
    for key, allowed in architecture.required_values.items():
        if values.get(key) not in allowed:
            wrong = wrong_value(key, values.get(key), as_json(allowed[0]))
            hint = "Only models that this program computes exactly like transformers can be opened."
            raise ModelFolderError(f"{where} is not supported: {wrong}.", hint)
    return architecture


def _read_fields(values: Mapping[str, Any], architecture: Architecture) -> tuple[dict[str, Any], dict[str, str]]:
    """Values for `ModelConfig`, and the key of each field; raises ValueError that names a wrong or missing key."""
    fields: dict[str, Any] = {**architecture.settings, "tied": architecture is GPT2}
    keys = {}
    for key, field in {**architecture.config, **_EVERY_MODEL}.items():
        if not isinstance(field, Field):
            continue
        if values.get(key) is None and field.other_key and field.other_key in values:
            key = field.other_key
        if key not in values and not field.optional:
            raise ValueError(f"{key} is missing")
        if values.get(key) is not None or not field.optional:
            fields[field.name] = values[key]
        keys[field.name] = key
    return fields | architecture.other_fields(values), keys


def _explain(error: ValidationError, keys: Mapping[str, str]) -> str:
    """Every problem of a model, with the keys of the file in place of our field names."""
    names = {"sliding_window": "sliding_window", "rope_scaling": "factor", **keys}
    found = []
    for field, value, reason in problems(error, ModelConfig):
        if not field:  # several fields do not fit together
            found.append(re.sub(r"\w+", lambda word: names.get(word[0], word[0]), reason))
        elif reason == "missing":
            found.append(f"{names[field]} is missing")
        elif field in names:  # not n_kv_head where it is a copy of n_head
            found.append(f"{names[field]} {reason}, not {as_json(value)}")
    return "; ".join(found)


def tensors_to_hf(state: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """A model's state dict in Hugging Face's names and layouts; a tied head is stored once."""
    architecture = architecture_of(config)
    tensors: dict[str, Tensor] = {}
    for name, tensor in state.items():
        stored = architecture.tensors(name, config)
        pieces = torch.split(tensor, [part.rows or len(tensor) for part in stored])
        tensors |= {part.name: _in_layout(piece, part) for part, piece in zip(stored, pieces, strict=True)}
    return tensors


def tensors_from_hf(tensors: Mapping[str, Tensor], config: ModelConfig, where: str) -> dict[str, Tensor]:
    """The state dict of a model of `config` from Hugging Face tensors; `where` names their file in errors.

    Raises ModelFolderError that lists every missing, unexpected and misshapen tensor.
    """
    ours = {name: torch.empty(shape, device="meta") for name, shape in parameter_shapes(config).items()}
    architecture = architecture_of(config)
    given: dict[str, Tensor] = {}
    wrong = []
    for stored_name, tensor in tensors.items():
        name = architecture.canonical_name(stored_name)
        if name is None or (name == HEAD and config.tied):
            continue
        if name in given:
            wrong.append(f"{name} occurs twice, with and without its prefix")
        if not tensor.is_floating_point():
            wrong.append(f"{name} has dtype {str(tensor.dtype).removeprefix('torch.')}")
        given[name] = tensor
    wrong += _mismatches(given, tensors_to_hf(ours, config))
    head, embedding = tensors.get(HEAD), given.get(architecture.tensors("wte.weight", config)[0].name)
    if config.tied and head is not None and embedding is not None and not torch.equal(head.float(), embedding.float()):
        wrong.append(f"{HEAD} differs from the token embedding, although config.json ties them")
    if wrong:
        raise ModelFolderError(f"{where} does not fit its config.json: {'; '.join(sorted(wrong))}.")
    state = {}
    for name in ours:
        pieces = [_in_layout(given[part.name], part) for part in architecture.tensors(name, config)]
        state[name] = torch.cat(pieces) if len(pieces) > 1 else pieces[0]
    return state


def _mismatches(given: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> list[str]:
    """Missing, unexpected and misshapen tensors."""
    return [
        *(f"{name} is missing" for name in expected.keys() - given.keys()),
        *(f"{name} is not expected" for name in given.keys() - expected.keys()),
        *(
            f"{name} has shape {list(given[name].shape)} instead of {list(expected[name].shape)}"
            for name in given.keys() & expected.keys()
            if given[name].shape != expected[name].shape
        ),
    ]


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


def _in_layout(tensor: Tensor, part: HfTensor) -> Tensor:
    """A tensor of our layout in the stored one, or the other way round."""
    return tensor.t() if part.transposed else tensor
