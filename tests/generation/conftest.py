"""A model folder with a small character model, and the command line in this process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gptcli.checkpoints import names
from gptcli.checkpoints.tensors import tensor_file
from gptcli.cli.app import app
from gptcli.config import ModelConfig
from gptcli.interop.huggingface import config_to_hf, tensors_to_hf
from gptcli.storage import to_json
from gptcli.tokenizer.char import char_tokenizer
from tests.model.reference import random_model

ALPHABET = "abcdefgé \n"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder with a random model over ALPHABET and a context of 16. Do not change it."""
    return model_folder(tmp_path_factory.mktemp("model"))


def model_folder(path: Path, alphabet: str = ALPHABET, **knobs: object) -> Path:
    """The same at `path`, with another alphabet, or other knobs of the model."""
    path.mkdir(exist_ok=True)
    tokenizer = char_tokenizer(alphabet)
    shape = {"vocab_size": tokenizer.vocab_size, "n_layer": 2, "n_head": 2, "n_embd": 16, "block_size": 16}
    model = random_model(ModelConfig.model_validate(shape | knobs)).float()
    start = tokenizer.encode("\n")[0]
    (path / names.CONFIG).write_bytes(to_json(config_to_hf(model.config, bos_token_id=start, eos_token_id=None)))
    (path / names.TOKENIZER).write_text(tokenizer.to_json(), encoding="utf-8")
    (path / names.MODEL).write_bytes(b"".join(tensor_file(tensors_to_hf(model.state_dict(), model.config), {})))
    return path


@dataclass(frozen=True)
class Answer:
    """What `gptcli sample` gave."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True)
class Sample:
    """`sample("-p", "abc")` runs `gptcli sample` on the model folder, in this process."""

    arguments: Sequence[str | Path]

    def __call__(self, *more: str | Path, stdin: str | bytes = "") -> Answer:
        result = CliRunner().invoke(app, [str(part) for part in ("sample", *self.arguments, *more)], input=stdin)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
        return Answer(result.exit_code, result.stdout, result.stderr)


@pytest.fixture
def sample(folder: Path) -> Sample:
    return Sample([folder])
