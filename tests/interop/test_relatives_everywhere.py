"""Llama and its relatives in every command: fine-tuned, sampled, scored, inspected and exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

from gptcli.checkpoints.model_folder import read_model_config
from gptcli.checkpoints.run_folder import read_run
from gptcli.cli.app import app
from gptcli.generation.loaded_model import open_model
from gptcli.runs import pretrained
from gptcli.tokenizer.tokenizer import load_tokenizer
from tests.interop.published import ROWS, greedy, related_model, save
from tests.model.reference import assert_close

transformers = pytest.importorskip("transformers")

TEXT = "the cat sat on the mat, and the dog saw it. was it so?\nwho knows!\n" * 40
ODD: dict[str, dict[str, Any]] = {
    "llama, tied": {"rms_norm_eps": 1e-3},
    "qwen3": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    "mixtral": {"num_experts_per_tok": 3},
}
"""Numbers that no family of ours has by itself."""


def theirs(row: str) -> Any:
    return related_model(row, **ODD.get(row, {}))


def stored_class(row: str, model: Any) -> str:
    """What the model is stored as: Mistral without its window is Llama, to the last number."""
    return "LlamaForCausalLM" if row == "mistral without a window" else type(model).__name__


def gptcli(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == code, result.stderr
    return result


def train(*arguments: object, code: int = 0) -> Result:
    quick = ("--max-steps", "1", "--device", "cpu", "--dtype", "float32", "--lr", "1e-30", "-o", "tuned")
    return gptcli("train", "book.txt", "--init-from", "start", *quick, *arguments, code=code)


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").write_text(TEXT)
    return tmp_path


def some_ids(rows: int) -> torch.Tensor:
    return torch.randint(rows, (2, 64), generator=torch.Generator().manual_seed(4))


def check_fine_tuned(row: str) -> None:
    """After an update that changes nothing, the run is the start in every knob, and opens as the same class."""
    model = theirs(row)
    save(model, Path("start"))
    train()
    begun, tuned = read_model_config(Path("start")), read_run(Path("tuned")).config.model
    assert {key: getattr(tuned, key) for key in pretrained.ARCHITECTURE} == {
        key: getattr(begun, key) for key in pretrained.ARCHITECTURE
    }
    opened = transformers.AutoModelForCausalLM.from_pretrained("tuned").eval()
    assert type(opened).__name__ == stored_class(row, model)
    ids = some_ids(begun.vocab_size)
    with torch.no_grad():
        assert_close(opened(ids).logits, model(ids).logits)
        assert_close(open_model(Path("tuned"), "last").model(ids), model(ids).logits)


@pytest.mark.parametrize("row", ROWS)
def test_a_fine_tuned_run_keeps_every_knob(row: str) -> None:
    check_fine_tuned(row)


@pytest.mark.parametrize(("row", "knob"), [("llama, tied", "norm_epsilon"), ("mixtral", "n_expert_active")])
def test_control_a_knob_that_the_run_forgets(row: str, knob: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = pretrained.Pretrained.layer

    def forgetful(self: pretrained.Pretrained) -> dict[str, Any]:
        return {"model": {key: value for key, value in plain(self)["model"].items() if key != knob}}

    monkeypatch.setattr(pretrained.Pretrained, "layer", forgetful)
    with pytest.raises(AssertionError):
        check_fine_tuned(row)


@pytest.mark.parametrize("row", ROWS)
def test_sample_eval_inspect_and_export(row: str) -> None:
    model = theirs(row)
    save(model, Path("start"))
    here = ("--device", "cpu", "--json")
    tokenizer = load_tokenizer(Path("start"))
    ids = torch.tensor([tokenizer.encode(TEXT[:64])])
    with torch.no_grad():
        output = model(ids, labels=ids)

    line = gptcli("sample", "start", "-p", TEXT[:9], "-n", "9", "-t", "0", *here).stdout
    assert json.loads(line)["text"] == tokenizer.decode(greedy(model, ids[:, :9], 9))
    Path("line.txt").write_text(TEXT[:64])
    assert json.loads(gptcli("eval", "start", "line.txt", *here).stdout)["loss"] == pytest.approx(
        float(output.loss), abs=1e-4
    )
    shown = json.loads(gptcli("inspect", "start", "--json").stdout)
    assert shown["parameters"]["total"] == model.num_parameters()
    gptcli("export", "start", "--to", "hf", "-o", "again")
    opened = transformers.AutoModelForCausalLM.from_pretrained("again").eval()
    assert type(opened).__name__ == stored_class(row, model)
    with torch.no_grad():
        assert_close(opened(ids).logits, output.logits)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set=model.mlp=gelu"], "model.mlp=gelu contradicts 'start', where it is swiglu"),
        (["--set=model.n_kv_head=4"], "model.n_kv_head=4 contradicts 'start', where it is 2"),
        (["--set=model.qk_norm=false"], "model.qk_norm=False contradicts 'start', where it is True"),
        (["--set=model.sliding_window=5"], "model.sliding_window=5 contradicts 'start', where it is None"),
        (["--set=model.n_expert=4"], "model.n_expert=4 contradicts 'start', where it is 0"),
        (["--family", "gpt2"], "--family cannot be combined with --init-from"),
        (["--family", "modern"], "--family cannot be combined with --init-from"),
    ],
)
def test_what_contradicts_the_start_is_refused(arguments: list[str], words: str) -> None:
    save(related_model("qwen3"), Path("start"))
    result = train(*arguments, code=2)
    assert words in result.stderr
    assert not Path("tuned").exists()


def test_a_config_file_that_contradicts_the_start_is_refused() -> None:
    save(related_model("qwen3"), Path("start"))
    Path("gelu.toml").write_text('[model]\nmlp = "gelu"\n')
    assert "model.mlp=gelu contradicts 'start'" in train("-c", "gelu.toml", code=2).stderr


@pytest.mark.parametrize("family", ["gpt2", "modern"])
def test_a_family_is_refused_for_a_run_that_has_a_start(family: str) -> None:
    """Where the run goes on, without its start."""
    save(related_model("qwen3"), Path("start"))
    train()
    refused = gptcli("train", "book.txt", "-o", "tuned", "--family", family, "--device", "cpu", code=2)
    assert "--family cannot be combined with --init-from" in refused.stderr
