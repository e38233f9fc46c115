"""`gptcli export`: files, refusals, uploads and messages."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import transformers
from typer.testing import CliRunner

import gptcli
from gptcli.checkpoints import names
from gptcli.checkpoints.tensors import tensor_file
from gptcli.cli.app import app
from gptcli.config import ModelConfig
from gptcli.errors import UsageError
from gptcli.generation.loaded_model import open_model
from gptcli.interop import gguf_tensors
from gptcli.interop.huggingface import config_to_hf, tensors_to_hf
from gptcli.storage import to_json
from gptcli.tokenizer.char import char_tokenizer
from tests.conftest import CommandLine
from tests.exports.hub_server import Hub, hub_server
from tests.model.reference import assert_close, random_model
from tests.runs.small_runs import FLAGS

HF_FILES = {
    *("config.json", "generation_config.json", "model.safetensors"),
    *("tokenizer.json", "tokenizer_config.json", "README.md"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """`my book`, a small character model with a second set of weights as the checkpoint of step 7."""
    return model_folder(tmp_path / "my book")


def model_folder(path: Path, **settings: object) -> Path:
    """A folder with a small character model, and the checkpoint of step 7."""
    checkpoint = names.checkpoint_folder(path, 7)
    checkpoint.mkdir(parents=True)
    tokenizer = char_tokenizer("abc\n")
    shape = {"vocab_size": tokenizer.vocab_size, "n_layer": 1, "n_head": 2, "n_embd": 16, "block_size": 16}
    config = ModelConfig.model_validate(shape | settings)
    (path / names.CONFIG).write_bytes(to_json(config_to_hf(config, bos_token_id=0, eos_token_id=None)))
    (path / names.TOKENIZER).write_text(tokenizer.to_json(), encoding="utf-8")
    for place, seed, known in ((path, 1, {"step": "5", "val_loss": "2.5"}), (checkpoint, 2, {"step": "7"})):
        weights = tensors_to_hf(random_model(config, seed=seed).float().state_dict(), config)
        (place / names.MODEL).write_bytes(b"".join(tensor_file(weights, known)))
    return path


@dataclass(frozen=True)
class Answer:
    """How the command ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Export:
    """`export("--to", "gguf")` in this process, in the test's own folder."""

    folder: Path

    def __call__(self, *arguments: str | Path) -> Answer:
        result = CliRunner().invoke(app, ["export", str(self.folder), *map(str, arguments)])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
        return Answer(result.exit_code, result.stdout, result.stderr)


@pytest.fixture
def export(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Export:
    monkeypatch.chdir(tmp_path)
    return Export(folder)


@pytest.mark.parametrize(("to", "path"), [("gguf", "my book.gguf"), ("ollama", "my book-ollama"), ("hf", "my book-hf")])
def test_the_path_is_the_result(to: str, path: str, export: Export, tmp_path: Path) -> None:
    answer = export("--to", to)
    assert (answer.code, answer.out) == (0, f"{path}\n")
    assert (tmp_path / path).exists()


def test_the_newest_run_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["export", "--to", "hf"])
    assert (result.exit_code, "There is no run" in result.stderr) == (1, True)
    (tmp_path / "book.txt").write_text("a bird in the hand\n" * 100)
    for name in ("newer", "older"):
        gptcli.train("book.txt", f"runs/{name}", preset="nano", settings=FLAGS | {"train.max_steps": 1})
    os.utime(tmp_path / "runs/older/model.safetensors", (0, 0))
    result = CliRunner().invoke(app, ["export", "--to", "hf"])
    assert (result.exit_code, result.stdout) == (0, "newer-hf\n")
    assert "runs/newer, the newest run" in result.stderr


def test_json(export: Export, tmp_path: Path) -> None:
    answer = export("--to", "gguf", "--type", "q8_0", "--json")
    size = (tmp_path / "my book.gguf").stat().st_size
    kept = [f"blk.0.{name}.weight" for name in ("attn_qkv", "attn_output", "ffn_up")]
    assert json.loads(answer.out) == {
        "path": "my book.gguf",
        "bytes": size,
        "type": "q8_0",
        "kept_f16": ["token_embd.weight", *kept],
        "url": None,
    }
    assert "4 matrices stay f16" in answer.err


def test_hf_folder_is_clean_and_opens(export: Export, folder: Path, tmp_path: Path) -> None:
    answer = export("--to", "hf", "-o", "clean")
    assert answer.code == 0
    assert "gptcli sample clean, or transformers' from_pretrained('clean')" in answer.err
    assert {path.name for path in (tmp_path / "clean").iterdir()} == HF_FILES
    ours, theirs = open_model(folder), open_model(tmp_path / "clean")
    for name, tensor in ours.model.state_dict().items():
        assert torch.equal(theirs.model.state_dict()[name], tensor)
    assert (theirs.step, theirs.val_loss, theirs.start_id, theirs.end_id) == (5, 2.5, 0, None)
    assert theirs.tokenizer.fingerprint == ours.tokenizer.fingerprint
    card = (tmp_path / "clean" / "README.md").read_text(encoding="utf-8")
    assert "# my book" in card
    assert "2.5000 nats" in card


def test_the_hint_can_be_typed(export: Export) -> None:
    assert "gptcli sample 'my book-hf', or" in export("--to", "hf").err


def test_hf_in_half_precision(export: Export, tmp_path: Path) -> None:
    export("--to", "hf", "--type", "bf16", "-o", "half")
    assert json.loads((tmp_path / "half" / "config.json").read_bytes())["dtype"] == "bfloat16"
    exact = open_model(export.folder).model.wte.weight
    assert torch.equal(open_model(tmp_path / "half").model.wte.weight, exact.bfloat16().float())


def test_the_card_of_a_published_model_is_kept(export: Export, folder: Path, tmp_path: Path) -> None:
    (folder / "README.md").write_text("Licence: keep me", encoding="utf-8")
    export("--to", "hf", "-o", "clean")
    assert (tmp_path / "clean" / "README.md").read_text(encoding="utf-8") == "Licence: keep me"


@pytest.mark.parametrize("type", ["f32", "f16", "bf16"])
def test_transformers_opens_every_type(type: str, export: Export, tmp_path: Path) -> None:
    export("--to", "hf", "--type", type, "-o", "theirs")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "theirs").float()
    ids = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")("abc\ncab", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        assert_close(theirs(ids).logits, open_model(tmp_path / "theirs").model(ids))


@pytest.mark.parametrize("eos", [[99], 5, "4"])
def test_an_end_of_text_beyond_the_vocabulary_is_ignored(eos: object, folder: Path) -> None:
    config = json.loads((folder / "config.json").read_bytes())
    (folder / "config.json").write_bytes(to_json(config | {"eos_token_id": eos}))
    assert open_model(folder).end_id is None


@pytest.mark.parametrize("checkpoint", ["last", "7"])
def test_a_checkpoint(checkpoint: str, export: Export, folder: Path, tmp_path: Path) -> None:
    export("--to", "hf", "--checkpoint", checkpoint, "-o", "clean")
    expected = open_model(folder, "last").model.wte.weight
    assert torch.equal(open_model(tmp_path / "clean").model.wte.weight, expected)
    assert not torch.equal(open_model(folder).model.wte.weight, expected)


def test_ollama_folder(export: Export, tmp_path: Path) -> None:
    answer = export("--to", "ollama", "--type", "f16")
    made = tmp_path / "my book-ollama"
    assert {path.name for path in made.iterdir()} == {"Modelfile", "model.gguf"}
    lines = (made / "Modelfile").read_text(encoding="utf-8").splitlines()
    assert lines[:3] == ["FROM ./model.gguf", 'TEMPLATE """{{ .Prompt }}"""', "PARAMETER num_ctx 16"]
    assert "PARAMETER temperature 0.8" in lines
    assert not any("stop" in line for line in lines)  # the model was not trained with an end
    assert "ollama create my-book -f 'my book-ollama/Modelfile'" in answer.err


def test_ollama_stops_where_the_model_ends(export: Export, folder: Path, tmp_path: Path) -> None:
    config = json.loads((folder / "config.json").read_bytes())
    (folder / "config.json").write_bytes(to_json(config | {"eos_token_id": 4}))
    export("--to", "ollama")
    modelfile = (tmp_path / "my book-ollama" / "Modelfile").read_text(encoding="utf-8")
    assert 'PARAMETER stop "<|endoftext|>"\n' in modelfile


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["gguf", "ollama", "hf"])
def test_nothing_is_overwritten_without_force(to: str, export: Export) -> None:
    path = Path(export("--to", to).out.strip())
    before = path.stat()
    answer = export("--to", to)
    assert (answer.code, answer.out) == (1, "")
    assert f"'{path}' already exists" in answer.err
    assert "--force" in answer.err
    assert path.stat().st_ino == before.st_ino
    assert export("--to", to, "--force").code == 0
    assert path.stat().st_ino != before.st_ino


@pytest.mark.parametrize("to", ["ollama", "hf"])
def test_force_replaces_only_folders_that_an_export_wrote(to: str, export: Export, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("ten years of work", encoding="utf-8")
    for force in ([], ["--force"]):
        answer = export("--to", to, "-o", "home", *force)
        assert answer.code == 1
        assert "'thesis.txt'" in answer.err
        assert "--force" not in answer.err, "it would be refused too"
    assert (tmp_path / "home" / "thesis.txt").exists()


def test_force_does_not_replace_the_model_by_itself(export: Export, folder: Path) -> None:
    shutil.rmtree(folder / names.CHECKPOINTS)
    answer = export("--to", "hf", "-o", folder, "--force")
    assert (answer.code, "is the model itself" in answer.err) == (1, True)


def test_a_failure_leaves_nothing(export: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(self: object) -> None:
        raise MemoryError

    monkeypatch.setattr(gguf_tensors.StoredTensor, "array", no_memory)
    for to in ("gguf", "ollama"):
        assert export("--to", to).code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["my book"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--to", "onnx"], 2, "cannot be 'onnx'. Hint: Use gguf, ollama or hf."),
        (["--to", "gguf", "--type", "q5_0"], 2, "cannot be 'q5_0'. Hint: Use f32, f16, bf16, q8_0 or q4_0."),
        (["--to", "hf", "--type", "q8_0"], 2, "Use f32, f16 or bf16."),
        (["--to", "gguf", "--push", "me/book"], 2, "Hugging Face folder"),
        (["--to", "hf", "--push", "book"], 2, "owner/name"),
        (["--to", "hf", "--checkpoint", "8"], 1, "no checkpoint '8'"),
        (["--to", "gguf", "-o", "."], 1, "'.' is a folder"),
        (["--to", "hf", "-o", "."], 1, "'.' is the current directory"),
        (["--to", "ollama", "-o", ".", "--force"], 1, "'.' is the current directory"),
        ([], 2, "--to"),
    ],
)
def test_refusals(arguments: list[str], code: int, message: str, export: Export, tmp_path: Path) -> None:
    answer = export(*arguments)
    assert (answer.code, answer.out) == (code, "")
    assert message in " ".join(answer.err.split())
    assert "Value error" not in answer.err
    assert [path.name for path in tmp_path.iterdir()] == ["my book"]


def test_without_the_gguf_package(export: Export, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "gguf" else find(name))
    answer = export("--to", "gguf")
    assert answer.code == 1
    assert "pip install 'gptcli[gguf]'" in answer.err


def test_the_api_gives_the_path_and_the_size(folder: Path, tmp_path: Path) -> None:
    exported = gptcli.export(str(folder), "gguf", type="f16", out=tmp_path / "book.gguf")
    assert (exported.path, exported.type, exported.url) == (tmp_path / "book.gguf", "f16", None)
    assert exported.bytes == exported.path.stat().st_size
    with pytest.raises(UsageError, match="onnx") as caught:
        gptcli.export(folder, "onnx")  # type: ignore[arg-type]
    assert "`to`" in caught.value.message
    assert caught.value.hint == "Use gguf, ollama or hf."


# --- uploading --------------------------------------------------------------------------------------------------------


@pytest.fixture
def hub() -> Iterator[Hub]:
    with hub_server() as hub:
        yield hub


def push(cli: CommandLine, hub: Hub, folder: Path, **variables: str) -> Answer:
    """Upload in a process of its own, since huggingface_hub reads its settings when it is imported."""
    home = str(cli.folder / "hf-home")
    environment = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_HOME": home, "HF_TOKEN": hub.token} | variables
    done = cli("export", folder, "--to", "hf", "--push", "me/book", "--json", "--force", env=environment)
    return Answer(done.code, done.stdout, done.stderr)


def test_push(cli: CommandLine, hub: Hub, folder: Path, tmp_path: Path) -> None:
    answer = push(cli, hub, folder)
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["url"] == f"{hub.url}/me/book"
    assert hub.created == [{"organization": "me", "name": "book", "visibility": "private"}]
    assert hub.commits == 1
    assert hub.files == {path.name: path.read_bytes() for path in (tmp_path / "my book-hf").iterdir()}
    assert hub.files.keys() == HF_FILES


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"HF_TOKEN": "hf_wrong"}, "'me/book' (status 401)"),
        ({"HF_ENDPOINT": "http://127.0.0.1:9"}, "The Hub could not be reached"),
        ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set"),
    ],
)
def test_push_that_fails(cli: CommandLine, hub: Hub, folder: Path, variables: dict[str, str], message: str) -> None:
    answer = push(cli, hub, folder, **variables)
    assert (answer.code, answer.out) == (1, "")
    assert message in answer.err
    assert "Hint:" in answer.err
    assert "Traceback" not in answer.err
    assert hub.commits == 0


def test_force_replaces_only_files_that_an_export_wrote(export: Export, tmp_path: Path) -> None:
    """A mistyped `-o book.txt --force` costs no text."""
    text = tmp_path / "precious.txt"
    text.write_text("words", encoding="utf-8")
    os.mkfifo(tmp_path / "pipe")
    for path, force in ((text, ["--force"]), (text, []), (tmp_path / "pipe", [])):
        answer = export("--to", "gguf", "-o", path, *force)
        assert (answer.code, f"'{path}' is not an earlier export" in answer.err) == (1, True)
        assert "--force" not in answer.err
    assert text.read_text(encoding="utf-8") == "words"


@pytest.mark.parametrize("to", ["gguf", "ollama"])
def test_unsupported_models_are_refused_before_the_weights_are_read(
    to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = model_folder(tmp_path / "waves", position="sinusoidal", logit_softcap=30.0)
    (path / names.MODEL).write_bytes(b"never read")
    answer = Export(path)("--to", to)
    assert answer.code == 1
    assert "position = sinusoidal, logit_softcap = 30.0" in answer.err
    assert "hf" in answer.err
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["waves"]


def test_hf_folder_of_a_model_that_only_gptcli_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = model_folder(tmp_path / "waves", position="sinusoidal")
    answer = Export(path)("--to", "hf")
    assert answer.code == 0
    assert "Only gptcli can open this model, because of position = sinusoidal." in answer.err
    assert "Open it with: gptcli sample waves-hf\n" in answer.err
    card = (tmp_path / "waves-hf/README.md").read_text()
    assert "library_name: gptcli" in card
    assert "Only gptcli can open this model, because of position = sinusoidal." in card
    assert "transformers" not in card
    again, model = open_model(tmp_path / "waves-hf").model, open_model(path).model
    ids = torch.tensor([[0, 1, 2, 1]])
    assert torch.equal(again(ids), model(ids))


def test_the_card_names_the_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    modern = {"position": "rope", "norm": "rmsnorm", "mlp": "swiglu", "bias": False, "qk_norm": True}
    answer = Export(model_folder(tmp_path / "new", **modern))("--to", "hf")
    assert "Only gptcli" not in answer.err
    card = (tmp_path / "new-hf/README.md").read_text()
    assert "tags: [qwen3, gptcli]" in card
    assert "A Qwen3 language model" in card
    assert "AutoModelForCausalLM" in card
