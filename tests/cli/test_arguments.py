"""What a person types wrong is explained in plain words, with a hint that works as typed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gptcli.cli.app import app, commands_with
from gptcli.cli.flags import settings_as_flags
from gptcli.cli.inspect import inspect
from gptcli.cli.sample import sample


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").write_text("a text\n" * 30)
    return tmp_path


def refused(*arguments: str, code: int = 2) -> str:
    """Standard error of a command that is refused."""
    result = CliRunner().invoke(app, list(arguments))
    assert (result.exit_code, result.stdout) == (code, ""), result.stderr
    assert "unexpected" not in result.stderr
    return " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (["train", "x", "--max-steps", "abc"], "--max-steps cannot be 'abc': it must be a whole number from 1"),
        (["sample", "-n", "ten"], "--max-new-tokens cannot be 'ten': it must be a whole number from 0"),
        (["sample", "-t", "hot"], "--temperature cannot be 'hot': it must be a number of at least 0"),
        (["eval", "x", "y", "--stride", "0"], "--stride cannot be 0: it must be a whole number of at least 1"),
        (["bench", "--batch-size", "0"], "--batch-size cannot be 0: it must be a whole number of at least 1"),
        (
            ["sample", "--context", "10000000000"],
            "cannot be 10000000000: it must be a whole number from 1 to 1,048,576",
        ),
    ],
)
def test_a_wrong_number(arguments: list[str], allowed: str) -> None:
    assert allowed in refused(*arguments)


@pytest.mark.parametrize("typed", ["1e3", "1,000", "1000.0e0"])
def test_a_number_in_another_notation(typed: str) -> None:
    said = refused("sample", "-n", typed)
    assert f"'{typed}'" in said
    assert "Write it as 1000." in said


def test_a_number_that_no_notation_helps_has_no_hint() -> None:
    assert "Write it" not in refused("sample", "-n", "1.5")
    assert "Write it" not in refused("sample", "-n", "1e10")


def test_an_option_of_another_command() -> None:
    said = refused("sample", "--lr", "3")
    assert "--lr is an option of gptcli train" in said
    assert "--raw" not in said


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["train"], "DATA... is missing", "gptcli train book.txt"),
        (["eval", "x"], "TEXT... is missing", "gptcli eval runs/book other.txt"),
        (["export", "x"], "--to is missing", "gptcli export runs/book --to gguf"),
        (["sample", "-t"], "-t needs a value", "value"),
        (["sample", "my", "old run"], "takes one RUN: there is no place for 'old run'", "quotes"),
        (["train", "book.txt", "--resume", "yes"], "--resume cannot be 'yes'", "auto, never or must"),
        (["sample", "--quantize", "int6"], "--quantize cannot be 'int6'", "Did you mean 'int8'?"),
        (["trian", "book.txt"], "gptcli has no command 'trian'", "Did you mean 'train'?"),
        (["book.txt"], "no command 'book.txt'", "gptcli train book.txt"),
        (["help"], "no command 'help'", "gptcli --help"),
        (["zzz"], "no command 'zzz'", "tokenize, train, sample"),
        (["--lr", "3"], "gptcli has no option --lr", "gptcli train"),
    ],
)
def test_wrong_usage_reads_like_every_other_error(arguments: list[str], message: str, hint: str) -> None:
    said = refused(*arguments)
    assert said.startswith("Error: ")
    assert message in said
    assert hint in said.partition("Hint: ")[2]


def test_a_name_that_resembles_none_is_not_corrected() -> None:
    assert "Did you mean" not in refused("sample", "--nope")
    assert "Did you mean" not in refused("nosuch")


def test_a_misspelled_option() -> None:
    assert "Did you mean '--temperature'?" in refused("sample", "--temprature", "1")


def test_options_after_two_dashes(folder: Path) -> None:
    (folder / "-dash.txt").write_text("text")
    said = refused("train", "--", "-dash.txt", "--preset", "nano")
    assert "--preset comes after --" in said
    (folder / "--preset").write_text("")
    assert "comes after" not in refused("train", "--max-steps", "0", "--", "--preset")


def test_a_text_in_the_place_of_a_run() -> None:
    assert "--prompt 'Once upon a time'" in refused("sample", "Once upon a time", code=1)
    assert "--prompt" not in refused("sample", "nosuch", code=1)


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "book.txt", "-o", ""],
        ["train", "book.txt", "-c", ""],
        ["tokenize", "book.txt", "--out="],
        ["export", "x", "--to", "gguf", "-o", ""],
        ["train", "book.txt", "--max-time", ""],
    ],
)
def test_an_empty_value(arguments: list[str], folder: Path) -> None:
    assert "An empty value was given for --" in refused(*arguments)
    assert sorted(path.name for path in folder.iterdir()) == ["book.txt"]


WITH_OUTPUT = {
    "tokenize": ["tokenize", "book.txt"],
    "train": ["train", "book.txt"],
    "export": ["export", "run", "--to", "gguf"],
    "report": ["report", "run"],
}


def test_every_command_with_an_output_is_here() -> None:
    assert set(commands_with("--out")) == set(WITH_OUTPUT)


@pytest.mark.parametrize("place", ["https://example.com/x", "hf://me/x", "s3://bucket/x", ""])
@pytest.mark.parametrize(
    "arguments", [*([*words, "-o"] for words in WITH_OUTPUT.values()), ["train", "book.txt", "--dry-run", "-o"]]
)
def test_an_address_or_nothing_in_the_place_of_an_output(arguments: list[str], place: str, folder: Path) -> None:
    (folder / "run").mkdir()
    assert ("is an address" if place else "empty value was given for --out") in refused(*arguments, place)
    assert sorted(path.name for path in folder.iterdir()) == ["book.txt", "run"]


LONG = "a" * 300


@pytest.mark.parametrize("bad", [LONG, f"./{LONG}", "x\0y", "\ud800"])
@pytest.mark.parametrize(
    "arguments",
    [
        "train BAD",
        "train book.txt -o BAD",
        "train book.txt --init-from BAD",
        "train book.txt -c BAD",
        "train book.txt --tokenizer BAD",
        "sample BAD",
        "sample x -f BAD",
        "eval BAD book.txt",
        "inspect BAD",
        "inspect book.txt BAD",
        "tokenize BAD -o d",
        "tokenize book.txt -o BAD",
        "tokenize book.txt -o d --tokenizer BAD",
        "export BAD --to gguf",
        "bench BAD",
    ],
)
def test_a_path_that_no_file_can_have(arguments: str, bad: str, folder: Path) -> None:
    said = refused(*(word.replace("BAD", bad) for word in arguments.split()), code=1 if len(bad) > 9 else 2)
    assert "too long" in said if len(bad) > 9 else "no path can have" in said
    assert len(said) < 300
    assert os.listdir(folder) == ["book.txt"]


def test_a_setting_of_another_command_is_that_of_train() -> None:
    assert settings_as_flags(inspect, "`train.max_steps = 80`") == "--max-steps 80 (of gptcli train)"
    assert (
        settings_as_flags(sample, "`optim.lr`, `resume = never`")
        == "--lr (of gptcli train), --resume never (of gptcli train)"
    )
    assert settings_as_flags(sample, "Run gptcli train again with a lower `optim.lr`.").endswith("a lower --lr.")
    assert (
        settings_as_flags(inspect, "`gptcli tokenize x` has `data.text_field`.")
        == "`gptcli tokenize x` has --text-field."
    )
    assert settings_as_flags(inspect, "`model.vocab_size`") == "--vocab-size"


def test_the_size_of_an_untrained_model_names_its_flag() -> None:
    said = refused("inspect", "--preset", "nano", "--vocab-size", "1" + "0" * 23)
    assert "--vocab-size cannot be" in said
    assert "model." not in said


def test_a_config_file_that_is_missing_has_a_hint() -> None:
    assert "Hint: Check the path" in refused("train", "book.txt", "-c", "nosuch.toml")
