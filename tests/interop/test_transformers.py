"""Our models and those of transformers with the same weights; test_published.py goes the other way."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gptcli.checkpoints.tensors import tensor_file
from gptcli.config import ModelConfig
from gptcli.errors import ModelFolderError
from gptcli.generation.context_window import ContextWindow
from gptcli.interop import gpt2, huggingface
from gptcli.interop.huggingface import config_from_hf, config_to_hf, tensors_from_hf, tensors_to_hf
from gptcli.model.cache import KVCache
from gptcli.model.gpt import GPT
from gptcli.storage import to_json
from tests.model.reference import assert_close, random_model
from tests.model.variants import FAMILIES, VARIANTS, variant

transformers = pytest.importorskip("transformers")

CONFIG = ModelConfig(vocab_size=41, n_layer=3, n_head=4, n_embd=32, block_size=64)
DTYPES = [torch.float64, torch.float32]


def ids() -> Tensor:
    return torch.randint(CONFIG.vocab_size, (3, CONFIG.block_size), generator=torch.Generator().manual_seed(1))


def to_transformers(model: GPT) -> Any:
    """transformers' model with our weights; nothing but the tied head may be missing, and nothing unexpected."""
    config = transformers.GPT2Config(**config_to_hf(model.config, bos_token_id=0, eos_token_id=None))
    theirs = transformers.GPT2LMHeadModel(config).to(model.wte.weight.dtype).eval()
    report = theirs.load_state_dict(tensors_to_hf(model.state_dict(), model.config), strict=False)
    assert (report.missing_keys, report.unexpected_keys) == (["lm_head.weight"], [])
    theirs.tie_weights()
    return theirs


def from_transformers(theirs: Any) -> GPT:
    model = GPT(config_from_hf(theirs.config.to_dict(), "their config")).to(theirs.dtype)
    model.load_state_dict(tensors_from_hf(theirs.state_dict(), model.config, "their weights"))
    return model.eval().requires_grad_(False)


def random_transformers(dtype: torch.dtype) -> Any:
    """A model of theirs with no bias at zero."""
    torch.manual_seed(2)
    config = transformers.GPT2Config(vocab_size=41, n_layer=3, n_head=4, n_embd=32, n_positions=64)
    theirs = transformers.GPT2LMHeadModel(config).to(dtype).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, dtype=dtype))
    return theirs


def check_ours_in_theirs(dtype: torch.dtype) -> None:
    model = random_model(CONFIG, dtype)
    with torch.no_grad():
        assert_close(to_transformers(model)(ids()).logits, model(ids()))


def check_theirs_in_ours(dtype: torch.dtype) -> None:
    theirs = random_transformers(dtype)
    with torch.no_grad():
        assert_close(from_transformers(theirs)(ids()), theirs(ids()).logits)


@pytest.mark.parametrize("dtype", DTYPES)
def test_transformers_computes_our_logits(dtype: torch.dtype) -> None:
    check_ours_in_theirs(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_we_compute_the_logits_of_transformers(dtype: torch.dtype) -> None:
    check_theirs_in_ours(dtype)


@pytest.mark.parametrize("check", [check_ours_in_theirs, check_theirs_in_ours])
def test_logit_checks_notice_a_layout_that_is_not_turned(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Square matrices fit either way, so that only their values tell.
    plain = huggingface._in_layout
    monkeypatch.setattr(
        huggingface,
        "_in_layout",
        lambda tensor, part: tensor if part.name.endswith("attn.c_proj.weight") else plain(tensor, part),
    )
    with pytest.raises(AssertionError):
        check(torch.float64)


def check_greedy() -> None:
    """40 greedy tokens through our cache are those of transformers' generate."""
    model = random_model(CONFIG)
    model.wpe.weight.mul_(5)  # a text that varies
    prompt = ids()[:1, :7]
    window = ContextWindow(model, 1)
    logits, ours = window.prefill(prompt), []
    for _ in range(40):
        token = logits.argmax(-1, keepdim=True)
        ours.append(token.item())
        logits = window.append(token)
    theirs = to_transformers(model).generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=40, do_sample=False, pad_token_id=0
    )
    assert ours == theirs[0, 7:].tolist()
    assert len(set(ours)) > 3, "a text that only repeats itself proves little"


def test_greedy_tokens() -> None:
    check_greedy()


def test_greedy_check_notices_a_lost_prompt_token(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose_one(self: KVCache, tokens: int) -> None:
        self.length += tokens if tokens == 1 else tokens - 1

    monkeypatch.setattr(KVCache, "advance", lose_one)
    with pytest.raises(AssertionError):
        check_greedy()


def folder_of(model: GPT, path: Path) -> Path:
    """A model as a run folder has it: its config and its weights."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_bytes(to_json(config_to_hf(model.config, bos_token_id=0, eos_token_id=None)))
    (path / "model.safetensors").write_bytes(b"".join(tensor_file(tensors_to_hf(model.state_dict(), model.config), {})))
    return path


def check_family(name: str, path: Path) -> None:
    """transformers opens the folder under the expected name, misses no tensor and wonders at none; equal logits."""
    model = random_model(variant(name, block_size=24), torch.float32)
    theirs, report = transformers.AutoModelForCausalLM.from_pretrained(folder_of(model, path), output_loading_info=True)
    assert theirs.config.model_type == name.split()[0]
    assert {problem: names for problem, names in report.items() if names} == {}
    ids = torch.randint(model.config.vocab_size, (3, 24), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert_close(theirs(ids).logits, model(ids))
    assert config_from_hf(theirs.config.to_dict(), "theirs").model_copy(update=_written_out(model.config)) == (
        model.config.model_copy(update=_written_out(model.config))
    )
    assert config_from_hf(json.loads((path / "config.json").read_text()), "ours").mlp_width == model.config.mlp_width


def _written_out(config: ModelConfig) -> dict[str, Any]:
    """What our config may leave open, and theirs always states."""
    return {"n_kv_head": config.n_kv_head, "mlp_width": config.mlp_width}


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_opens_in_transformers(name: str, tmp_path: Path) -> None:
    check_family(name, tmp_path)


def check_relu(path: Path) -> None:
    """GPT-2 with ReLU is GPT-2 with another `activation_function`."""
    model = random_model(variant("relu"), torch.float32)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder_of(model, path))
    assert type(theirs).__name__ == "GPT2LMHeadModel"
    ids = torch.randint(model.config.vocab_size, (3, 12), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert_close(theirs(ids).logits, model(ids))
    assert config_from_hf(theirs.config.to_dict(), "theirs").mlp == "relu"


def test_relu_opens_in_transformers(tmp_path: Path) -> None:
    check_relu(tmp_path)


def test_relu_check_notices_gelu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gpt2.ACTIVATIONS, "relu", "gelu_new")
    with pytest.raises(AssertionError):
        check_relu(tmp_path)


@pytest.mark.parametrize(
    ("name", "owner", "attribute", "wrong"),
    [
        ("llama", huggingface, "_in_layout", lambda plain: lambda t, part: t.flip(0) if "v_proj" in part.name else t),
        ("qwen3 windows", ModelConfig, "window_of", lambda plain: lambda self, layer: self.sliding_window),
        ("qwen3_moe", Tensor, "topk", lambda plain: lambda x, k, dim: plain(x, k - 1, dim=dim)),
    ],
)
def test_family_check_notices_a_difference(
    name: str, owner: Any, attribute: str, wrong: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, attribute, wrong(getattr(owner, attribute)))
    with pytest.raises(AssertionError):
        check_family(name, tmp_path)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_goes_there_and_back(name: str) -> None:
    """Under the name that transformers has for it, or under our own; no weight is lost or turned."""
    model = random_model(variant(name))
    values = config_to_hf(model.config, bos_token_id=0, eos_token_id=None)
    back = config_from_hf(json.loads(json.dumps(values)), "config.json")
    state = tensors_from_hf(tensors_to_hf(model.state_dict(), model.config), back, "model.safetensors")
    again = GPT(back).double()
    again.load_state_dict(state)
    again.fill_positions()
    ids = torch.randint(23, (2, 12))
    assert torch.equal(again.eval()(ids), model(ids))
    known = "gpt2" if name in ("gpt2", "untied", "relu") else name.split()[0] if name in FAMILIES else "gptcli"
    assert values["model_type"] == known


def small(**changes: Any) -> dict[str, Any]:
    return config_to_hf(CONFIG, bos_token_id=0, eos_token_id=None) | changes


def test_config_goes_there_and_back() -> None:
    assert config_from_hf(small(), "config.json") == CONFIG


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "gpt_neo"},
        {"activation_function": "silu"},
        {"scale_attn_by_inverse_layer_idx": True},
        {"n_embd": 33},
        {"n_head": 0},
        {"vocab_size": "many"},
    ],
)
def test_what_is_not_gpt2_is_refused_by_name(changes: dict[str, Any]) -> None:
    (key,) = changes
    with pytest.raises(ModelFolderError, match=key):
        config_from_hf(small(**changes), "config.json")


def problems(tensors: dict[str, Tensor]) -> str:
    with pytest.raises(ModelFolderError) as caught:
        tensors_from_hf(tensors, CONFIG, "model.safetensors")
    return caught.value.message


def test_every_problem_of_the_weights_is_named() -> None:
    tensors = tensors_to_hf(GPT(CONFIG).state_dict(), CONFIG)
    del tensors["transformer.ln_f.bias"]
    tensors["transformer.extra"] = torch.zeros(1)
    tensors["transformer.wpe.weight"] = torch.zeros(3, 32)
    message = problems(tensors)
    for part in ("ln_f.bias is missing", "extra is not expected", "wpe.weight has shape [3, 32] instead of [64, 32]"):
        assert part in message


def test_an_untied_head_is_refused() -> None:
    tensors = tensors_to_hf(GPT(CONFIG).state_dict(), CONFIG)
    assert "differs from the token embedding" in problems(tensors | {"lm_head.weight": torch.zeros(41, 32)})


@pytest.mark.parametrize("extra", [(), ("lm_head.weight",), ("h.0.attn.bias", "h.2.attn.masked_bias")])
def test_old_files_load(extra: Sequence[str]) -> None:
    model = GPT(CONFIG)
    tensors = {
        name.removeprefix("transformer."): one for name, one in tensors_to_hf(model.state_dict(), model.config).items()
    }
    tensors |= {name: model.wte.weight if name == "lm_head.weight" else torch.zeros(1) for name in extra}
    state = tensors_from_hf(tensors, model.config, "old")
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
