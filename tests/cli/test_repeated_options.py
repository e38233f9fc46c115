"""An option with one value may be given once; options that are lists, and switches, may repeat."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from gptcli.cli.app import Command, app


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["sample", "x", "-n", "2", "-n", "3"], "--max-new-tokens"),
        (["sample", "x", "--logprobs", "2", "--top", "2"], "--top"),
        (["eval", "x", "y", "--stride", "1", "--stride", "1"], "--stride"),
        (["train", "x", "--lr", "1", "--max-steps", "5", "--lr", "2"], "--lr"),
        (["tokenize", "x", "-o", "a", "--out", "b"], "--out"),
        (["inspect", "--preset", "nano", "--preset", "tiny"], "--preset"),
        (["export", "x", "--to", "hf", "--to", "gguf"], "--to"),
        (["bench", "--device", "cpu", "--device", "cuda"], "--device"),
    ],
)
def test_a_second_value_is_refused(arguments: list[str], named: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    told = " ".join(result.stderr.split())
    assert named in told
    assert "given 2 times" in told


def test_lists_and_switches_may_repeat() -> None:
    given: list[list[str]] = []
    only = typer.Typer()

    @only.command(cls=Command)
    def command(stop: list[str] = [], quiet: bool = False) -> None:  # noqa: B006 - typer's way to declare a list
        given.append(stop)

    assert CliRunner().invoke(only, ["--stop", "a", "--quiet", "--stop", "b", "--quiet"]).exit_code == 0
    assert given == [["a", "b"]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "x", "--max-steps", "abc"], "whole number"),
        (["train", "x", "--epochs", "abc"], "it must be a number"),
        (["sample", "--context", "9" * 9], "from 1 to 1,048,576"),
        (["sample", "-t", "1", "-t", "warm"], "--temperature cannot be 'warm': it must be a number"),
        (["inspect", "--preset", "nano", "--length", "0"], "at least 1"),
    ],
)
def test_a_wrong_value_is_explained_in_our_words(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Input" not in result.stderr
