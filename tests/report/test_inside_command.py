"""`gptcli inspect --attention, --head, --lens and --neighbors`: as tables, as JSON, and what they refuse."""

from __future__ import annotations

import json
import math
import re
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import gptcli
from gptcli.cli.app import app
from tests.conftest import Result
from tests.generation.conftest import model_folder
from tests.ui.test_terminal import on_terminal

TEXT = "abc fed\nbad"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model; tests share it."""
    path = tmp_path_factory.mktemp("inside")
    model_folder(path / "model", sliding_window=4, windowed_layers="alternate")
    return path


def inspect(folder: Path, *arguments: str) -> Result:
    with chdir(folder):
        done = CliRunner().invoke(app, ["inspect", "model", *arguments])
    return Result(done.exit_code, done.stdout, done.stderr)


def inspected(folder: Path, *arguments: str) -> Any:
    result = inspect(folder, *arguments, "--json")
    assert result.code == 0, result.stderr
    return json.loads(result.stdout)


def test_attention_as_json(folder: Path) -> None:
    maps = gptcli.load(folder / "model").attention(TEXT)
    found = inspected(folder, "--attention", TEXT)
    assert found["kind"] == "attention"
    assert "".join(token["text"] for token in found["tokens"]) == TEXT
    assert set(found["tokens"][0]) == {"id", "text", "bytes"}
    assert [(head["layer"], head["head"]) for head in found["heads"]] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for head in found["heads"]:
        place = head["layer"], head["head"]
        np.testing.assert_array_equal(head["probabilities"], maps.probabilities[place])
        np.testing.assert_array_equal(head["scores"], maps.scores[place])
        hidden = [[score is None for score in row] for row in head["masked_scores"]]
        np.testing.assert_array_equal(hidden, ~maps.visible[head["layer"]])
        assert head["previous"] == pytest.approx(maps.figures(*place).previous)
    assert sum(found["heads"][0]["masked_scores"][-1][i] is not None for i in range(len(TEXT))) == 4, "its window"
    [alone] = inspected(folder, "--attention", TEXT, "--head", "1.0")["heads"]
    assert alone == found["heads"][2]


def test_attention_on_a_pipe(folder: Path) -> None:
    table = inspect(folder, "--attention", TEXT).stdout
    assert [line[:3] for line in table.splitlines()[3:]] == ["0.0", "0.1", "1.0", "1.1"]
    large = inspect(folder, "--attention", TEXT, "--head", "0.1").stdout.splitlines()
    maps = gptcli.load(folder / "model").attention(TEXT)
    assert len(large) == 2 + len(TEXT)
    for row, line in enumerate(large[2:]):
        shares = list(map(int, line[3:].split()))
        seen = maps.probabilities[0, 1, row][maps.visible[0, row]]
        assert shares == [int(f"{100 * p:.0f}") for p in seen]


def test_attention_on_a_terminal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "44")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown, _ = on_terminal("inspect", "model", "--attention", TEXT, cwd=folder)
    assert "▀" in shown
    assert "\x1b[38;" in shown
    bare, _ = on_terminal("inspect", "model", "--attention", TEXT, "--no-color", cwd=folder)
    assert "▀" not in bare, "half blocks without colors show nothing"
    large, notes = on_terminal("inspect", "model", "--attention", TEXT, "--head", "0.0", "--no-color", cwd=folder)
    assert "first 10 of 11 tokens" in notes
    assert all(len(line) <= 44 for line in re.sub(r"\x1b\[\d*m", "", large).splitlines())


def test_lens(folder: Path) -> None:
    lens = gptcli.load(folder / "model").lens(TEXT)
    found = inspected(folder, "--lens", TEXT)
    assert [layer["layer"] for layer in found["layers"]] == ["embedding", "block 0", "block 1"]
    for layer, row in zip(found["layers"], lens.layers, strict=True):
        assert len(layer["predictions"]) == len(TEXT)
        for one, expected in zip(layer["predictions"], row, strict=True):
            assert [token["id"] for token in one["likeliest"]] == [token.id for token in expected.likeliest]
            known = not math.isnan(expected.logprob)
            assert one["next_logprob"] == (pytest.approx(expected.logprob) if known else None)
    table = inspect(folder, "--lens", TEXT).stdout
    assert len(table.splitlines()) == 3 + len(TEXT)


def test_neighbors(folder: Path) -> None:
    found = inspected(folder, "--neighbors", "b")
    assert found["token"]["text"] == "b"
    similarities = [near["similarity"] for near in found["nearest"]]
    assert similarities == sorted(similarities, reverse=True)
    assert {near["text"] for near in found["nearest"]} == {*"acdefgé \n", "<|endoftext|>"}
    assert len(inspect(folder, "--neighbors", "b").stdout.splitlines()) == 3 + 10


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--head", "0.0"), "--attention"),
        (("--attention", "ab", "--head", "2.0"), "--head 2.0"),
        (("--attention", "ab", "--head", "x"), "0.0 to 1.1"),
        (("--attention", "a"), "two tokens"),
        (("--attention", "ab", "--lens", "ab"), "--neighbors"),
        (("--lens", "ab", "--preset", "nano"), "--preset"),
        (("--lens", "ab", "--machine"), "--machine"),
        (("--lens", "ab", "--device", "cuda"), "--device"),
        (("--lens", "ab", "--dtype", "bfloat16"), "--dtype"),
        (("model", "--lens", "ab"), "one run"),
        (("--neighbors", "ab"), "2 tokens"),
    ],
)
def test_refusals(folder: Path, arguments: tuple[str, ...], named: str) -> None:
    result = inspect(folder, *arguments)
    assert (result.code, result.stdout) == (2, "")
    assert named in result.stderr


def test_unknown_characters_are_named(folder: Path) -> None:
    result = inspect(folder, "--attention", "abz")
    assert result.code == 1
    assert "'z'" in result.stderr
