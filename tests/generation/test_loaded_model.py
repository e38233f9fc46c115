"""The Python API of a trained model: load, stream, generate, score."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from gptcli.errors import ConfigError, DeviceError, OutOfMemoryError, TokenizerError, UsageError
from gptcli.generation import loaded_model
from gptcli.generation.loaded_model import LoadedModel, load, open_model, sampling_config, turns
from gptcli.generation.stream import Piece, Sample
from gptcli.model.int8 import Int8GPT
from tests.conftest import CommandLine
from tests.generation.conftest import Sample as SampleCommand
from tests.generation.conftest import model_folder
from tests.runs.small_runs import run, small_dataset


@pytest.fixture(scope="module")
def model(folder: Path) -> LoadedModel:
    return load(folder, device="cpu")


def test_generates_the_text_of_the_command(model: LoadedModel, sample: SampleCommand) -> None:
    expected = sample("-p", "abc", "-n", "20", "--seed", "4", "--num-samples", "2", "--json").objects
    samples = model.generate("abc", max_new_tokens=20, seed=4, num_samples=2)
    assert [(one.text, one.seed) for one in samples] == [(one["text"], one["seed"]) for one in expected]


def test_a_stream_is_pieces_and_samples(model: LoadedModel) -> None:
    events = list(model.stream("abc", sampling_config(max_new_tokens=9, seed=1)))
    assert "".join(event.text for event in events if isinstance(event, Piece)) == events[-1].text
    assert isinstance(events[-1], Sample)


def test_a_seed_is_drawn_unless_one_is_given(model: LoadedModel) -> None:
    (first,), (second,) = (model.generate(max_new_tokens=60, temperature=2.0) for _ in range(2))
    assert first.seed != second.seed
    assert model.generate(max_new_tokens=60, temperature=2.0, seed=first.seed)[0].text == first.text


def test_each_turn_has_seeds_of_its_own() -> None:
    config = sampling_config(seed=5, num_samples=3)
    assert [own.seed for own in islice(turns(config), 3)] == [5, 8, 11]


def test_errors_come_from_the_call_and_not_from_the_first_event(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="temperature"):
        model.stream(temperature=-1)
    with pytest.raises(ConfigError, match="temprature"):
        model.stream(temprature=1)
    with pytest.raises(TokenizerError, match="X"):
        model.stream("aX")
    monkeypatch.setattr(loaded_model, "free_memory", lambda device: 10)
    with pytest.raises(OutOfMemoryError):
        model.stream("a")


def test_unknown_characters_are_skipped_with_a_note(model: LoadedModel) -> None:
    prompt = model.encode("aXb", unknown="skip")
    assert (prompt.text, len(prompt.ids), len(prompt.notes)) == ("ab", 2, 1)
    skipped = model.generate("aXb", unknown="skip", seed=1)[0].text
    assert skipped == model.generate(prompt, seed=1)[0].text == model.generate("ab", seed=1)[0].text


@pytest.mark.parametrize("closed", [False, True])
def test_the_number_of_threads_is_restored(model: LoadedModel, closed: bool) -> None:
    torch.set_num_threads(2)
    stream = model.stream("abc", max_new_tokens=5)
    assert torch.get_num_threads() == 2
    next(stream)
    assert torch.get_num_threads() == 1
    if closed:
        stream.close()  # type: ignore[attr-defined]
    else:
        list(stream)
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(
    ("arguments", "error", "named"),
    [
        ({"dtype": "int8"}, UsageError, "dtype"),
        ({"quantize": "int4"}, UsageError, "quantize"),
        ({"checkpoint": "newest"}, UsageError, "newest"),
        ({"context": 17}, UsageError, "context"),
        ({"device": "cuda:99"}, DeviceError, "CUDA|GPU"),
        ({"device": "abacus"}, UsageError, "abacus"),
    ],
)
def test_wrong_arguments(folder: Path, arguments: dict[str, Any], error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        load(folder, **arguments)


def test_dtype_context_and_8_bit_weights(folder: Path) -> None:
    half = load(folder, device="cpu", dtype="bfloat16", context=8)
    assert (half.model.wte.weight.dtype, half.model.config.block_size) == (torch.bfloat16, 8)
    assert "bfloat16 on cpu" in half.describe()
    quantized = load(folder, device="cpu", quantize="int8")
    assert isinstance(quantized.model, Int8GPT)
    assert "8-bit weights" in quantized.describe()
    assert "CPU thread" in quantized.describe()
    elsewhere = replace(half, model=half.model.to("meta"))
    assert "on meta." in elsewhere.describe(), "CPU threads do not matter there"


def test_nothing_is_printed(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("abc abd", encoding="utf-8")
    model = load(folder)
    model.generate("a", max_new_tokens=3)
    assert model.score([str(tmp_path / "a.txt")]).total.tokens == 7
    assert capfd.readouterr() == ("", "")


def test_a_run_by_its_name_and_the_newest_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    model_folder(Path("runs/novel"))
    expected = open_model(Path("runs/novel")).model.wte.weight
    assert load("novel").path == Path("runs/novel")
    assert torch.equal(load("novel", device="cpu").model.wte.weight, expected)
    assert SampleCommand(["novel"])("-n", "3").code == 0


def test_commands_know_runs_by_name_and_runs_without_an_evaluation(cli: CommandLine, corpus: str) -> None:
    data = small_dataset(cli.folder, corpus[:2000])
    flags = {"train.eval_every": 9, "train.save_every": 2}
    run(data, cli.folder / "runs/novel", flags, stop_after=3)
    book = str(cli.folder / "book.txt")
    for command in (["sample", "novel", "-n", "3"], ["eval", "novel", book], ["export", "novel", "--to", "hf"]):
        result = cli(*command)
        assert result.code == 0, result.stderr
        assert "last checkpoint, of step 3" in result.stderr, command
    assert "Sampling from runs/novel, the newest run." in cli("sample", "-n", "3").stderr
    assert cli("inspect", "novel").code == 0
    (cli.folder / "runs/novel/gptcli.toml").write_text("[train]\n", encoding="utf-8")
    assert cli("sample", "novel", "-n", "3").code == 0
