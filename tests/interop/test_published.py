"""Folders that transformers wrote, opened here: one file or shards, old names and new, and what is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from gptcli.config import ModelConfig
from gptcli.errors import ModelFolderError
from gptcli.generation.context_window import ContextWindow
from gptcli.generation.loaded_model import LoadedModel, open_model
from gptcli.generation.stream import allowed_ids
from gptcli.interop import huggingface
from gptcli.model import gpt
from gptcli.tokenizer.tokenizer import load_tokenizer
from tests.interop.published import (
    ALPHABET,
    ROWS,
    SIZES,
    change_json,
    greedy,
    related_model,
    save,
    transformers_model,
    without_prefix,
)
from tests.model.reference import assert_close

pytest.importorskip("transformers")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save(transformers_model(), tmp_path / "model")


def check_folder(path: Path, model: object) -> None:
    """Close logits at every position of a whole context, and 40 equal greedy tokens through the cache."""
    opened = open_model(path)
    ids = some_ids(2, 64)
    with torch.no_grad():
        assert_close(opened.model(ids), model(ids).logits)  # type: ignore[operator]
    ours = greedy_here(opened, ids[:1, :9], 40)
    assert ours == greedy(model, ids[:1, :9], 40)
    assert len(set(ours)) > 5, "a text that only repeats itself proves little"


def some_ids(batch: int, length: int) -> Tensor:
    return torch.randint(len(ALPHABET), (batch, length), generator=torch.Generator().manual_seed(4))


def greedy_here(opened: LoadedModel, prompt: Tensor, tokens: int) -> list[int]:
    window, found = ContextWindow(opened.model, 1), []
    logits = window.prefill(prompt)
    for _ in range(tokens):
        found.append(int(logits.argmax()))
        logits = window.append(torch.tensor([[found[-1]]]))
    return found


@pytest.mark.parametrize("size", SIZES)
def test_every_size_class(tmp_path: Path, size: str) -> None:
    model = transformers_model(size)
    check_folder(save(model, tmp_path / "model"), model)


def test_shards(tmp_path: Path) -> None:
    model = transformers_model()
    check_folder(save(model, tmp_path / "model", shards=True), model)


def test_old_names_mask_buffers_and_a_stored_head(tmp_path: Path) -> None:
    model = transformers_model()
    check_folder(without_prefix(save(model, tmp_path / "model")), model)


@pytest.mark.parametrize(
    "changes", [{"n_inner": 100}, {"layer_norm_epsilon": 0.1}, {"tie_word_embeddings": False, "n_inner": None}]
)
def test_gpt2_with_other_numbers(tmp_path: Path, changes: dict[str, object]) -> None:
    model = transformers_model(**changes)
    check_folder(save(model, tmp_path / "model"), model)


@pytest.mark.parametrize("shards", [False, True])
@pytest.mark.parametrize("row", ROWS)
def test_llama_and_its_relatives(tmp_path: Path, row: str, *, shards: bool) -> None:
    model = related_model(row)
    check_folder(save(model, tmp_path / "model", shards=shards), model)


@pytest.mark.parametrize("row", ["llama", "qwen3 with windows", "mixtral"])
@pytest.mark.parametrize("word", ["type", "rope_type"])
def test_rope_as_transformers_4_spells_it(tmp_path: Path, row: str, word: str) -> None:
    model = related_model(row, rope_parameters={"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0})
    path = save(model, tmp_path / "model")
    old = {"rope_theta": 500.0, "rope_scaling": {word: "linear", "factor": 2.0}}
    change_json(path / "config.json", rope_parameters=None, **old)
    config = open_model(path).model.config
    assert (config.rope_base, config.rope_scaling) == (500.0, 2.0)
    check_folder(path, model)


@pytest.mark.parametrize(
    ("row", "module", "name", "wrong"),
    [
        ("llama", huggingface, "_in_layout", lambda plain: lambda t, part: t.flip(0) if "k_proj" in part.name else t),
        ("llama", gpt, "rotate", lambda plain: lambda x, rotation: plain(x, rotation.roll(1, 1))),
        ("mistral", ModelConfig, "window_of", lambda plain: lambda self, layer: None),
        ("qwen3 with windows", ModelConfig, "window_of", lambda plain: lambda self, layer: plain(self, layer + 1)),
        ("mixtral", Tensor, "topk", lambda plain: lambda x, k, dim: plain(x, k - 1, dim=dim)),
    ],
)
def test_control_a_relative_that_is_computed_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str, module: Any, name: str, wrong: Any
) -> None:
    model = related_model(row)
    path = save(model, tmp_path / "model")
    ids = some_ids(2, 64)
    with torch.no_grad():
        theirs = model(ids).logits
    monkeypatch.setattr(module, name, wrong(getattr(module, name)))
    with pytest.raises(AssertionError):
        assert_close(open_model(path).model(ids), theirs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_as_float32(tmp_path: Path, dtype: torch.dtype) -> None:
    model = transformers_model(dtype=dtype)
    path = save(model, tmp_path / "model")
    assert open_model(path).model.wte.weight.dtype is torch.float32
    check_folder(path, model.float())


def test_control_a_turned_matrix_is_noticed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = huggingface._in_layout
    turned = "transformer.h.1.attn.c_proj.weight"  # square, so that only its values tell
    monkeypatch.setattr(huggingface, "_in_layout", lambda t, part: t if part.name == turned else plain(t, part))
    with pytest.raises(AssertionError):
        check_folder(folder, transformers_model())


def test_several_end_tokens(folder: Path) -> None:
    change_json(folder / "generation_config.json", eos_token_id=[99_999, 5, 7])
    assert open_model(folder).end_id == 5, "the first that the model has a row for"
    change_json(folder / "generation_config.json", eos_token_id=[[5], 7])
    assert open_model(folder).end_id == 7, "a list is no id"
    change_json(folder / "generation_config.json", eos_token_id=[99_999])
    assert open_model(folder).end_id is None


def test_more_rows_than_ids(tmp_path: Path) -> None:
    """Vocabularies are padded so that matrices have round sizes: such rows are never sampled."""
    rows = load_tokenizer(save(transformers_model(), tmp_path / "one") / "tokenizer.json").vocab_size + 30
    opened = open_model(save(transformers_model(vocab_size=rows), tmp_path / "padded"))
    assert opened.model.config.vocab_size == rows
    assert not allowed_ids(opened.tokenizer, rows, opened.end_id)[rows - 30 :].any()


def message(folder: Path) -> str:
    with pytest.raises(ModelFolderError) as caught:
        open_model(folder)
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("activation_function", "gelu"),
        ("model_type", "gpt_neo"),
        ("scale_attn_by_inverse_layer_idx", True),
        ("scale_attn_weights", False),
        ("add_cross_attention", True),
        ("quantization_config", {"bits": 4}),
    ],
)
def test_unsupported_gpt2_keys_are_named(folder: Path, key: str, value: object) -> None:
    change_json(folder / "config.json", **{key: value})
    assert key in message(folder)


@pytest.mark.parametrize(
    ("row", "key", "value"),
    [
        ("llama", "hidden_act", "gelu"),
        ("llama", "attention_bias", True),
        ("llama", "mlp_bias", True),
        ("llama", "head_dim", 0.5),
        ("llama", "rms_norm_eps", -1),
        ("llama", "num_key_value_heads", 3),
        ("llama", "quantization_config", {"bits": 4}),
        ("qwen3", "layer_types", ["full_attention", "full_attention", "sliding_attention"]),
        ("qwen3_moe", "norm_topk_prob", False),
        ("qwen3_moe", "decoder_sparse_step", 2),
        ("qwen3_moe", "mlp_only_layers", [1]),
    ],
)
def test_unsupported_llama_keys_are_named(tmp_path: Path, row: str, key: str, value: object) -> None:
    path = save(related_model(row), tmp_path / "model")
    change_json(path / "config.json", **{key: value})
    assert key in message(path)


@pytest.mark.parametrize("kind", ["yarn", "llama3", "dynamic"])
def test_unsupported_rope_scaling_is_refused(tmp_path: Path, kind: str) -> None:
    path = save(related_model("llama"), tmp_path / "model")
    change_json(path / "config.json", rope_parameters={"rope_type": kind, "factor": 8.0, "rope_theta": 1e4})
    assert f'rope_type must be default or linear, not "{kind}"' in message(path)


def changed_weights(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> Path:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, {"format": "pt"})
    return folder


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop("transformer.h.1.mlp.c_fc.bias"), "h.1.mlp.c_fc.bias is missing"),
        (lambda t: t.update({"score.weight": torch.ones(2)}), "score.weight is not expected"),
        (lambda t: t.update({"lm_head.weight": t["transformer.wte.weight"] + 1}), "lm_head.weight differs"),
        (lambda t: t.update({"ln_f.bias": torch.zeros(128)}), "ln_f.bias occurs twice"),
        (lambda t: t.update({"transformer.ln_f.bias": torch.zeros(128, dtype=torch.int8)}), "has dtype int8"),
        (lambda t: t.update({"transformer.ln_f.bias": torch.zeros(9)}), "ln_f.bias has shape [9] instead of [128]"),
    ],
)
def test_wrong_tensors_are_named(folder: Path, change: Callable[[dict[str, Tensor]], object], words: str) -> None:
    assert words in message(changed_weights(folder, change))


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    return save(transformers_model(), tmp_path / "shards", shards=True)


INDEX = "model.safetensors.index.json"


@pytest.mark.parametrize(
    "name", ["../secret.safetensors", "/etc/x.safetensors", "a/b.safetensors", "x.bin", 5, ".x.safetensors"]
)
def test_an_index_never_leads_out_of_its_folder(shards: Path, name: object) -> None:
    change_json(shards / INDEX, weight_map={"transformer.wte.weight": name})
    assert repr(name) in message(shards)


def test_index_and_files_must_agree(shards: Path) -> None:
    first = sorted(shards.glob("model-*.safetensors"))[0]
    tensors = load_file(first)
    moved = sorted(tensors)[0]
    save_file({"extra": torch.ones(1)} | {n: t for n, t in tensors.items() if n != moved}, first, {"format": "pt"})
    assert f"{first.name} holds extra too; {first.name} lacks {moved}" in message(shards)


def test_a_tensor_in_two_files(shards: Path) -> None:
    """The second is in no index, which names one file for each."""
    first, second, *_ = sorted(shards.glob("model-*.safetensors"))
    twice = sorted(load_file(first))[0]
    save_file(load_file(second) | {twice: torch.ones(1)}, second, {"format": "pt"})
    assert f"{second.name} holds {twice} too" in message(shards)


@pytest.mark.parametrize("content", ["{}", '{"weight_map": []}', '{"weight_map": {}}'])
def test_an_index_without_a_map(shards: Path, content: str) -> None:
    (shards / INDEX).write_text(content)
    assert "has no weight_map" in message(shards)


def test_a_missing_shard_is_named(shards: Path) -> None:
    sorted(shards.glob("model-*.safetensors"))[1].unlink()
    assert "model-00002-of-" in message(shards)
    assert "is missing" in message(shards)


def test_shards_beside_pickles_open(shards: Path) -> None:
    (shards / "pytorch_model.bin").write_bytes(b"\x80\x02}q\x00.")
    assert open_model(shards).model.config.n_layer == 2
    for path in shards.glob("model*"):
        path.unlink()
    assert "pickled" in message(shards)
