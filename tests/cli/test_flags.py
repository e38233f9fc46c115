"""An error names a setting; the command line says how to type it for the command that runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import pytest
import typer

from gptcli.cli.app import COMMANDS, functions
from gptcli.cli.boundary import guarded
from gptcli.cli.flags import (
    FieldsInfo,
    SettingInfo,
    _beginnings,
    _declarations,
    _flag,
    settings_as_flags,
    stated_settings,
)
from gptcli.errors import UsageError
from gptcli.ui.console import Output, wording
from tests.conftest import ROOT


class Unknown(StrEnum):
    skip = "skip"


def command(
    run: Annotated[str, typer.Argument(metavar="[RUN]")],
    out: Annotated[Path | None, typer.Option("--out", "-o")] = None,
    config_files: Annotated[list[Path] | None, typer.Option("--config", "-c")] = None,
    max_steps: Annotated[int | None, SettingInfo("train.max_steps", "--max-steps")] = None,
    kind: Annotated[str | None, SettingInfo("tokenizer.kind", "--tokenizer")] = None,
    checkpointing: Annotated[bool, SettingInfo("train.activation_checkpointing", "--checkpointing")] = False,
    unknown: Annotated[Unknown, typer.Option("--unknown")] = Unknown.skip,
    force: Annotated[bool, typer.Option("--force")] = False,
    no_echo: Annotated[bool, typer.Option("--no-echo")] = False,
    settings: Annotated[list[str] | None, FieldsInfo(("",))] = None,
) -> None:
    raise UsageError("`out` is taken.", "Use `unknown = skip`.")


@pytest.mark.parametrize(
    ("setting", "typed"),
    [
        ("`train.max_steps`", "--max-steps"),
        ("`train.max_steps = 4`", "--max-steps 4"),
        ("`max_steps = 4`", "--max-steps 4"),
        ("`tokenizer.kind = bpe`", "--tokenizer bpe"),
        ("`tokenizer`", "--tokenizer"),
        ("`kind`", "--tokenizer"),
        ("`train.activation_checkpointing = true`", "--checkpointing"),
        ("`train.activation_checkpointing = false`", "--set train.activation_checkpointing=false"),
        ("`train.keep_checkpoints = 2`", "--set train.keep_checkpoints=2"),
        ("`train.keep_checkpoints`", "train.keep_checkpoints"),
        ("`model.norm = a b`", "--set 'model.norm=a b'"),
        ("`out`", "--out"),
        ("`out = my run`", "--out 'my run'"),
        ('`unknown = "skip"`', "--unknown skip"),
        ("`force`", "--force"),
        ("`force = true`", "--force"),
        ("`echo = false`", "--no-echo"),
        ("`config = a.toml`", "--config a.toml"),
        ("`run`", "RUN"),
    ],
)
def test_a_setting_becomes_what_a_person_types(setting: str, typed: str) -> None:
    assert settings_as_flags(command, f"Use {setting}, or not.") == f"Use {typed}, or not."


@pytest.mark.parametrize("text", ["`gptcli train`", "`tokenizer.json`", "`nothing`", "`echo = true`", "`a = b`", "``"])
def test_other_text_in_backticks_stays(text: str) -> None:
    assert settings_as_flags(command, text) == text


NAMED = re.compile(r"`[a-z_]+(?:\.[a-z_]+)?(?: = [^`{}]+)?`")
SAID = re.compile(r"(--[a-z][\w-]*)(?: '?([\w.-]+))?[^()]*?(?: \(of gptcli (\w+)\))?$")


def settings_named_in_messages() -> list[str]:
    """Every setting in backticks in the sources below the command line, such as `optim.lr` or `num_samples = 2`."""
    files = [file for room in ROOMS if room != "cli" for file in sorted((ROOT / "gptcli").rglob(f"{room}/**/*.py"))]
    return sorted({found for file in files for found in NAMED.findall(file.read_text(encoding="utf-8"))})


def options_of(function: Callable[..., None]) -> set[str]:
    names = {flag for _, _, info in _declarations(function) for flag in (_flag(info),) if flag}
    return names | {f"--{name.strip('_').replace('_', '-')}" for name, _, _ in _declarations(function)}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_a_message_names_no_option_that_its_command_lacks(name: str) -> None:
    """What another command has is said with that command's name."""
    named = settings_named_in_messages()
    assert len(named) > 60
    foreign = 0
    for setting in named:
        said = settings_as_flags(functions()[name], setting)
        for flag, first, other in SAID.findall(said):
            assert flag in options_of(functions()[other or name]), (setting, said)
            foreign += bool(other)
            if flag == "--set" and first and not other:
                assert first.startswith(_beginnings(functions()[name])), (setting, said)
    assert foreign or name == "train"


def test_a_set_option_takes_what_its_command_takes() -> None:
    functions_ = functions()
    assert settings_as_flags(functions_["inspect"], "`model.mlp = relu`") == "--set model.mlp=relu"
    assert settings_as_flags(functions_["bench"], "`train.compile = off`") == "--set train.compile=off"
    assert settings_as_flags(functions_["inspect"], "`train.compile = off`") == "--compile off (of gptcli train)"
    assert settings_as_flags(functions_["sample"], "`model.mlp = relu`") == "--set model.mlp=relu (of gptcli train)"


def test_errors_and_notes_are_translated(capsys: pytest.CaptureFixture[str]) -> None:
    before = wording.get()
    with pytest.raises(typer.Exit):
        guarded(command)("run")
    Output().note("See `max_steps`.")
    said = capsys.readouterr().err
    wording.set(before)
    assert "--out is taken." in said
    assert "Use --unknown skip." in said
    assert "See --max-steps." in said


def test_the_settings_that_were_stated() -> None:
    values = {"max_steps": 3, "kind": None, "checkpointing": False, "out": Path("x")}
    assert stated_settings(command, values) == {"train.max_steps": 3}
    assert stated_settings(command, values | {"max_steps": 0, "checkpointing": True}) == {
        "train.max_steps": 0,
        "train.activation_checkpointing": True,
    }


FLAG = re.compile(r"(?<![\w/-])--(?!set\b|help\b)[a-z]")
COMMAND_TO_TYPE = re.compile(r"`(?:gptcli|ray) [^`]*`")
ROOMS = sorted(
    path.name for path in (ROOT / "gptcli").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
)


@pytest.mark.parametrize("room", sorted({*ROOMS} - {"cli", "ui", "__main__.py"}))
def test_nothing_below_the_command_line_names_a_flag(room: str) -> None:
    place = ROOT / "gptcli" / room
    for file in place.rglob("*.py") if place.is_dir() else [place]:
        text = COMMAND_TO_TYPE.sub("", file.read_text(encoding="utf-8"))
        assert not FLAG.search(text), file
