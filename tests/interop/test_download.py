"""`hf://owner/name` as a model: downloaded once, from a stand-in for the Hub, then opened from the cache."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import huggingface_hub
import pytest
import torch
from huggingface_hub import constants
from typer.testing import CliRunner

from gptcli.checkpoints import names
from gptcli.checkpoints.tensors import tensor_file
from gptcli.cli.app import app
from gptcli.config import ModelConfig
from gptcli.errors import ModelFolderError, UsageError
from gptcli.interop.hub import local_model, model_name, split_address
from gptcli.interop.huggingface import config_to_hf, tensors_to_hf
from gptcli.tokenizer.char import char_tokenizer
from tests.conftest import CommandLine
from tests.interop.download_server import COMMIT, Repository, download_server
from tests.model.reference import random_model

NEEDED = {names.CONFIG, names.GENERATION_CONFIG, names.TOKENIZER, names.MODEL, names.README}


def published(folder: Path) -> Path:
    """A model among the other files that repositories contain."""
    tokenizer = char_tokenizer("\n abcdefghij")
    config = ModelConfig(vocab_size=tokenizer.vocab_size, n_layer=1, n_head=2, n_embd=16, block_size=16)
    folder.mkdir()
    (folder / names.CONFIG).write_text(json.dumps(config_to_hf(config, bos_token_id=0, eos_token_id=None)))
    (folder / names.GENERATION_CONFIG).write_text("{}")
    (folder / names.TOKENIZER).write_text(tokenizer.to_json())
    weights = tensors_to_hf(random_model(config, torch.float32).state_dict(), config)
    (folder / names.MODEL).write_bytes(b"".join(map(bytes, tensor_file(weights, {}))))
    (folder / names.README).write_text("# A model")
    (folder / "onnx").mkdir()
    for name in ("pytorch_model.bin", "rust_model.ot", "tf_model.h5", "onnx/model.safetensors", "training_args.bin"):
        (folder / name).write_bytes(b"not wanted")
    return folder


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    with download_server(published(tmp_path_factory.mktemp("hub") / "repository")) as repository:
        yield repository


@pytest.fixture
def online(hub: Repository, tmp_path: Path) -> Mapping[str, str]:
    """The environment in which the stand-in is the Hub, with an empty cache."""
    hub.downloaded.clear()
    hub.revisions.clear()
    return {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}


def test_sample_downloads_once_and_never_a_pickle(cli: CommandLine, hub: Repository, online: Mapping[str, str]) -> None:
    asked = ("sample", "hf://owner/name", "-p", "abc", "-n", "5", "--seed", "1", "--device", "cpu")
    first = cli(*asked, env=online)
    assert (first.code, len(first.stdout)) == (0, 9), first.stderr
    assert set(hub.downloaded) == NEEDED
    again = cli(*asked, env={**online, "HF_HUB_OFFLINE": "1"})
    assert (again.code, again.stdout) == (0, first.stdout), again.stderr
    assert len(hub.downloaded) == len(NEEDED)
    assert "\r" not in first.stderr, "no progress bar on a pipe"


@pytest.fixture
def connected(hub: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same in this process, where huggingface_hub has read the environment already."""
    hub.revisions.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    there = functools.partial(huggingface_hub.snapshot_download, endpoint=hub.url, cache_dir=tmp_path / "cache")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", there)


@pytest.mark.usefixtures("connected")
def test_inspect_takes_a_revision(hub: Repository) -> None:
    done = CliRunner().invoke(app, ["inspect", "hf://owner/name@v1", "--json"])
    assert (done.exit_code, json.loads(done.stdout)["name"]) == (0, "name"), done.stderr
    assert hub.revisions == ["v1"]


@pytest.mark.usefixtures("connected")
def test_eval(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("abc def ghij\n" * 9)
    arguments = ["eval", "hf://owner/name", str(tmp_path / "text.txt"), "--json", "--device", "cpu"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["loss"] > 0


@pytest.mark.usefixtures("connected")
@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("hf://owner/other", "'hf://owner/other' does not exist or is private"),
        ("hf://owner/gated", "'hf://owner/gated'"),
        ("hf://owner/name@v7", "has no revision 'v7'"),
    ],
)
def test_failed_downloads(address: str, words: str) -> None:
    done = CliRunner().invoke(app, ["sample", address])
    assert (done.exit_code, done.stdout) == (1, "")
    assert words in done.stderr
    assert "Hint: " in done.stderr


def test_offline_with_an_empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = functools.partial(huggingface_hub.snapshot_download, cache_dir=tmp_path)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", there)
    with pytest.raises(ModelFolderError, match="'hf://owner/name' is not in the cache, and HF_HUB_OFFLINE is set"):
        local_model("hf://owner/name")


@pytest.mark.usefixtures("connected")
def test_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = functools.partial(huggingface_hub.snapshot_download, endpoint="http://127.0.0.1:9")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", nowhere)
    with pytest.raises(ModelFolderError, match="the Hub cannot be reached"):
        local_model("hf://owner/name")


@pytest.mark.parametrize("address", ["hf://", "hf://gpt2", "hf://a/b/c", "hf://a/b@", "hf://a b/c", "hf://../x"])
def test_invalid_addresses_are_refused(address: str) -> None:
    with pytest.raises(UsageError, match="is not an address of a model on the Hub"):
        local_model(address)


def test_addresses() -> None:
    assert split_address("hf://owner/name") == ("owner/name", None)
    assert split_address("hf://owner/name@refs/pr/3") == ("owner/name", "refs/pr/3")
    assert local_model("runs/book") == Path("runs/book")


def test_a_snapshot_is_named_after_its_repository() -> None:
    assert model_name(Path(f"/cache/hub/models--owner--my-name/snapshots/{COMMIT}")) == "my-name"
    assert model_name(Path("/some/where/book/")) == "book"


@pytest.mark.usefixtures("connected")
def test_an_export_is_named_after_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["export", "hf://owner/name", "--to", "hf"])
    assert (done.exit_code, done.stdout) == (0, "name-hf\n"), done.stderr
    assert (tmp_path / "name-hf" / names.README).read_text() == "# A model", "its licence stands there"


@pytest.mark.usefixtures("connected")
def test_training_starts_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").write_text("abc def ghij\n" * 40)
    done = CliRunner().invoke(app, ["train", "book.txt", "--init-from", "hf://owner/name@v1", "--max-steps", "2"])
    assert (done.exit_code, done.stdout) == (0, "runs/book\n"), done.stderr
    card = (tmp_path / "runs/book" / names.README).read_text()
    assert "base_model: owner/name\n---" in card
    assert "| started from | hf://owner/name@v1 (" in card
    assert 'init_from = "hf://owner/name@v1"' in (tmp_path / "runs/book" / names.RUN_CONFIG).read_text()
