"""Help texts and defaults of options come from the config fields."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gptcli.cli.options import setting
from gptcli.config import SamplingConfig, TrainConfig
from tests.conftest import ROOT


def test_flag_help_and_default_come_from_the_field() -> None:
    option = setting("sampling.temperature", "F", "-t", panel="P")
    assert (option.key, option.param_decls, option.rich_help_panel) == (
        "sampling.temperature",
        ("--temperature", "-t"),
        "P",
    )
    field = SamplingConfig.model_fields["temperature"]
    assert option.help == f"{str(field.description).rstrip('.')} (default: {field.default})."


@pytest.mark.parametrize(
    ("key", "flag", "words"),
    [
        ("tokenizer.kind", "--tokenizer", "(default: auto)."),
        ("model.n_layer", "--n-layer", "(default: from the preset)."),
        ("optim.schedule", "--schedule", "(default: from the preset)."),
        ("train.log_every", "--log-every", f"(default: {TrainConfig.model_fields['log_every'].default})."),
        ("data.include", "--include", "can be read). Can be repeated."),
        ("tokenizer.vocab_size", "--vocab-size", "(default: 8192)."),
        ("sampling.stop", "--stop", "Can be repeated."),
    ],
)
def test_kinds_of_fields(key: str, flag: str, words: str) -> None:
    option = setting(key, "X")
    assert option.param_decls == (flag,)
    assert option.help.endswith(words)
    assert option.help.count("default") <= 1
    assert "`" not in option.help


def test_a_command_may_have_a_default_of_its_own() -> None:
    assert setting("sampling.seed", "N", default="a fresh one").help.endswith(" (default: a fresh one).")


PROBE = """
import typer
from typing import Annotated
from gptcli.cli.options import setting
app = typer.Typer(add_completion=False)
@app.command()
def command(init_from: Annotated[str, setting("train.init_from", "X")] = ""): ...
app(["--help"])
"""


@pytest.mark.parametrize("with_rich", ["0", "1"])
def test_brackets_are_shown(with_rich: str) -> None:
    variables = os.environ | {"TYPER_USE_RICH": with_rich, "COLUMNS": "300"}
    done = subprocess.run([sys.executable, "-c", PROBE], cwd=ROOT, env=variables, capture_output=True, text=True)
    assert "owner/name[@revision]" in done.stdout
