"""`gptcli sample` as people and programs use it."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import typer

from gptcli.cli.app import app
from gptcli.config import SamplingConfig
from gptcli.ui.generated import SEPARATOR
from tests.conftest import CommandLine
from tests.generation.conftest import ALPHABET, Sample


def test_the_prompt_and_its_continuation(sample: Sample) -> None:
    answer = sample("-p", "abc", "-n", "20", "--seed", "4")
    assert answer.code == 0
    assert answer.out.startswith("abc")
    assert 24 <= len(answer.out) <= 25  # a final newline, unless the text ends with one
    assert set(answer.out) <= set(ALPHABET)
    assert re.fullmatch(
        r"20 tokens · first after [\d,]+ ms · [\d,]+ tokens/s · .*max.new.tokens.* · seed 4 · window slid once\n",
        answer.err,
    )


def test_the_same_seed_gives_the_same_text(sample: Sample) -> None:
    assert sample("--seed", "4", "-t", "2").out == sample("--seed", "4", "-t", "2").out
    assert sample("--seed", "4", "-t", "2").out != sample("--seed", "5", "-t", "2").out


def test_the_note_has_the_fresh_seed_which_repeats_the_text(sample: Sample) -> None:
    first = sample("-t", "2", "-n", "60")
    (seed,) = re.findall(r"seed (\d+)", first.err)
    assert sample("-t", "2", "-n", "60", "--seed", seed).out == first.out
    assert sample("-t", "2", "-n", "60").out != first.out


def test_quiet_without_echo_is_the_text_alone(sample: Sample) -> None:
    answer = sample("-p", "abc", "--no-echo", "-q", "-n", "5", "--seed", "1")
    assert answer.err == ""
    assert "abc" + answer.out == sample("-p", "abc", "-q", "-n", "5", "--seed", "1").out


def test_json(sample: Sample) -> None:
    answer = sample("-p", "abc", "--json", "--num-samples", "3", "-n", "7", "--seed", "9", "-q")
    assert [one["seed"] for one in answer.objects] == [9, 10, 11]
    for one in answer.objects:
        assert list(one) == [
            *("prompt", "text", "tokens", "finish_reason", "seed", "tokens_per_second", "first_token_seconds"),
            "temperature",
        ]
        assert (one["prompt"], one["tokens"], one["finish_reason"]) == ("abc", 7, "length")
        assert len(str(one["text"])) == 7


def test_json_with_log_probabilities(sample: Sample) -> None:
    settings = ["-p", "abc", "--json", "-n", "7", "--seed", "9", "-q", "--num-samples", "2"]
    plain, recorded = sample(*settings).objects, sample(*settings, "--logprobs", "3").objects
    for before, after in zip(plain, recorded, strict=True):
        assert [after[name] for name in ("text", "tokens", "seed")] == [
            before[name] for name in ("text", "tokens", "seed")
        ]
        tokens: Any = after["logprobs"]
        assert len(tokens) == after["tokens"] == 7
        assert "".join(token["text"] for token in tokens) == after["text"]
        assert list(tokens[0]) == ["id", "text", "bytes", "logprob", "alternatives"]
        assert [list(other) for other in tokens[0]["alternatives"]] == 3 * [["id", "text", "bytes", "logprob"]]
        assert bytes(tokens[0]["bytes"]).decode() == tokens[0]["text"]
    (nothing,) = sample("--json", "-n", "0", "--logprobs", "3").objects
    assert nothing["logprobs"] == []


def test_several_temperatures(sample: Sample) -> None:
    settings = ["-p", "abc", "-n", "30", "--num-samples", "2"]
    compared = sample(*settings, "-t", "0.2", "--temperature", "1.5", "--json", "--seed", "3").objects
    assert [(one["temperature"], one["seed"]) for one in compared] == [(0.2, 3), (0.2, 4), (1.5, 3), (1.5, 4)]
    alone = [sample(*settings, "-t", heat, "--seed", "3") for heat in ("0.2", "1.5")]
    shown = sample(*settings, "-t", "0.2", "-t", "1.5", "--seed", "3")
    headings = ["--- temperature 0.2 ---\n", "--- temperature 1.5 ---\n"]
    assert shown.out == headings[0] + alone[0].out + headings[1] + alone[1].out, "one after another on a pipe"
    assert [line.split(":")[0] for line in shown.err.splitlines()] == ["temperature 0.2", "temperature 1.5"]


def test_temperatures_share_a_fresh_seed_and_differ(sample: Sample) -> None:
    first, second = sample("-t", "0.2", "-t", "1.5", "--json", "-n", "3").objects
    assert first["seed"] == second["seed"]
    refused = sample("-t", "0.2", "-t", "0.20")
    assert (refused.code, refused.out) == (2, "")
    assert "--temperature" in refused.err


def test_temperatures_of_line_after_line(sample: Sample) -> None:
    answer = sample("-i", "--seed", "1", "-n", "5", "-t", "0", "-t", "2", "--json", stdin="abc\nabd\n")
    seen = [(one["prompt"], one["temperature"], one["seed"]) for one in answer.objects]
    assert seen == [("abc", 0, 1), ("abc", 2, 1), ("abd", 0, 2), ("abd", 2, 2)]


def test_several_samples_are_whole_and_in_order(sample: Sample) -> None:
    settings = ["-p", "abc", "-n", "30", "--seed", "9", "--stop", "d"]
    answer = sample(*settings, "--num-samples", "4")
    texts = [str(one["text"]) for one in sample(*settings, "--num-samples", "4", "--json").objects]
    lines = ["abc" + text + ("" if text.endswith("\n") else "\n") for text in texts]
    assert answer.out == f"{SEPARATOR}\n".join(lines)
    assert "in 4 samples" in answer.err
    assert "seeds 9 to 12" in answer.err


def test_several_stops(sample: Sample) -> None:
    (one,) = sample("--stop", "a", "--stop", "b", "-t", "2", "--seed", "1", "--json").objects
    assert one["finish_reason"] == "stop"
    assert not set("ab") & set(str(one["text"]))


def test_prompt_from_a_file_and_from_standard_input(sample: Sample, tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("é a\n", encoding="utf-8")
    expected = sample("-p", "é a\n", "--seed", "1").out
    assert sample("-f", file, "--seed", "1").out == expected
    assert sample("-f", "-", "--seed", "1", stdin="é a\n").out == expected


def test_an_empty_prompt_starts_from_the_start_token(sample: Sample) -> None:
    expected = sample("-p", "\n", "--seed", "1", "--no-echo").out
    assert sample("--seed", "1").out == expected
    assert sample("-p", "", "--seed", "1").out == expected


def test_interactive_continues_line_after_line(sample: Sample) -> None:
    answer = sample("-i", "--seed", "1", "-n", "5", stdin="abc\nxyz\nabd")
    first = sample("-p", "abc", "--seed", "1", "-n", "5", "--no-echo").out
    third = sample("-p", "abd", "--seed", "3", "-n", "5", "--no-echo").out
    assert (answer.code, answer.out) == (0, first + third)
    assert "xyz" not in answer.out
    assert "'x'" in answer.err or "x" in answer.err


def test_a_long_prompt_works_with_a_note(sample: Sample) -> None:
    answer = sample("-p", "abcdefg" * 10, "-n", "5")
    assert answer.code == 0
    assert re.search("70 tokens.* 16.* last 14", answer.err)


def test_unknown_characters(sample: Sample) -> None:
    refused = sample("-p", "aXbY")
    assert (refused.code, refused.out) == (1, "")
    assert "X" in refused.err
    assert "Y" in refused.err
    skipped = sample("-p", "aXbY", "--unknown", "skip", "--seed", "1", "--no-echo")
    assert skipped.out == sample("-p", "ab", "--seed", "1", "--no-echo").out
    assert "X Y" in skipped.err
    echoed = sample("-p", "aXbY", "--unknown", "skip", "--seed", "1")
    assert echoed.out == "ab" + skipped.out


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["-t", "-1"], "temperature"),
        (["-t", "nan"], "temperature"),
        (["--top-p", "0"], "top.p"),
        (["--top-p", "1.01"], "top.p"),
        (["--min-p", "2"], "min.p"),
        (["-k", "-1"], "top.k"),
        (["-n", "-1"], "max.new.tokens"),
        (["--num-samples", "0"], "num.samples"),
        (["--repetition-penalty", "0"], "repetition.penalty"),
        (["--seed", "-1"], "seed"),
        (["--stop", ""], "stop"),
        (["--dtype", "int8"], "dtype"),
        (["--device", "abacus"], "no device called 'abacus'"),
        (["--device", "meta"], "'meta' is not supported"),
        (["--device", ""], "An empty value was given for .*device"),
        (["--checkpoint", "latest"], "latest.*\n.*best, last"),
        (["-p", "a", "-f", "b"], "--prompt and --prompt-file"),
        (["-p", "a", "-i"], "--prompt and --interactive"),
    ],
)
def test_wrong_usage(sample: Sample, arguments: list[str], named: str) -> None:
    answer = sample(*arguments)
    assert (answer.code, answer.out) == (2, "")
    assert re.search(named, answer.err)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--device", "cuda:99"], "CUDA|GPU"),
        (["--checkpoint", "12"], "no checkpoint '12'"),
        (["-f", "missing.txt"], "missing.txt"),
        (["-f", "."], "'.' is a folder, not a prompt"),
        (["--num-samples", "1000000000"], r"GB are free.\s+Hint: .*num.samples.* \d+"),
    ],
)
def test_expected_failures(sample: Sample, arguments: list[str], named: str) -> None:
    answer = sample(*arguments)
    assert (answer.code, answer.out) == (1, "")
    assert re.search(named, answer.err)


def test_a_prompt_file_that_is_not_utf8(sample: Sample, tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_bytes(b"abc\xff")
    answer = sample("-f", file)
    assert answer.code == 1
    assert "prompt.txt" in answer.err
    assert "3" in answer.err


def test_bytes_on_the_command_line_that_are_not_utf8(sample: Sample) -> None:
    answer = sample("-p", os.fsdecode(b"a\xff"))
    assert answer.code == 2
    assert "not valid UTF-8" in answer.err


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_on_a_cpu(sample: Sample, dtype: str) -> None:
    answer = sample("--device", "cpu", "--dtype", dtype, "-v", "-n", "40")
    assert answer.code == 0
    assert dtype in answer.err


def test_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    answer = Sample([])()
    assert (answer.code, answer.out) == (1, "")
    assert "gptcli train" in answer.err


def test_help_has_the_defaults() -> None:
    command = typer.main.get_command(app).commands["sample"].load()  # type: ignore[attr-defined]
    shown = {}
    for parameter in command.params:
        found = re.search(r"\(default: ([\d.]+)\)\.", getattr(parameter, "help", None) or "")
        if found:
            shown[parameter.name] = float(found[1])
    defaults = {name: field.default for name, field in SamplingConfig.model_fields.items()}
    assert shown == {name: defaults[name] for name in shown}
    assert shown.keys() == defaults.keys() - {"stop", "seed"}


def test_a_closed_pipe(cli: CommandLine, folder: Path) -> None:
    process = cli.start("sample", folder, "-n", "100000")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait(60) == 141
    assert errors == ""


def test_ctrl_c(cli: CommandLine, folder: Path) -> None:
    process = cli.start("sample", folder, "-n", "1000000", "--temperature", "3")
    assert process.stdout is not None
    process.stdout.read(10)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in errors


def test_8_bit_weights_generate_the_same_again(sample: Sample) -> None:
    arguments = ("-p", "abc", "-n", "40", "--seed", "3", "--json")
    plain = sample(*arguments).objects
    first, again = (sample(*arguments, "--quantize", "int8", "--num-samples", "2").objects for _ in range(2))
    assert [one["text"] for one in first] == [one["text"] for one in again]
    alone = sample("-p", "abc", "-n", "40", "--seed", "4", "--json", "--quantize", "int8").objects
    assert alone[0]["text"] == first[1]["text"]
    assert plain[0]["text"] != first[1]["text"]


def test_verbose_names_8_bit_weights(sample: Sample) -> None:
    assert "8-bit weights" in sample("-p", "abc", "-n", "1", "--quantize", "int8", "-v").err
    assert "8-bit weights" not in sample("-p", "abc", "-n", "1", "-v").err


def test_8_bit_weights_in_another_dtype_are_refused(sample: Sample) -> None:
    answer = sample("-p", "abc", "--quantize", "int8", "--dtype", "bfloat16")
    assert (answer.code, answer.out) == (2, "")
    assert "quantize" in answer.err
    assert "dtype" in answer.err
