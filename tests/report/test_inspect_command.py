"""`gptcli inspect`: what it accepts, its JSON names, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import shutil
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gptcli.cli.app import app
from gptcli.config import ModelConfig
from gptcli.interop.huggingface import config_to_hf
from gptcli.report import text as text_report
from gptcli.report.run import Comparison, Difference, RunList, RunSummary, evaluations
from gptcli.ui.chart import MARK
from gptcli.ui.console import Output
from gptcli.ui.reports import show_report
from tests.conftest import CommandLine, Result
from tests.runs.small_runs import series


@pytest.fixture(scope="module")
def workplace(corpus_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two short runs, their dataset, and the text. Do not change it: tests share it."""
    folder = tmp_path_factory.mktemp("inspect")
    shutil.copy(corpus_file, folder / "book.txt")
    common = (
        "--preset",
        "nano",
        "--eval-every",
        "1",
        "--save-every",
        "1",
        "--batch-size",
        "2",
        "--set",
        "train.eval_tokens=256",
        "-q",
    )
    train = CommandLine(folder)
    assert train("train", "book.txt", "--max-steps", "2", *common).code == 0
    assert train("train", "book.txt", "--max-steps", "1", "--lr", "0.001", "-o", "runs/other", *common).code == 0
    os.utime(folder / "runs/other/model.safetensors", (1, 1))
    return folder


def inspect(folder: Path, *arguments: str) -> Result:
    """The command in this process, in `folder`."""
    with chdir(folder):
        done = CliRunner().invoke(app, ["inspect", *arguments])
    return Result(done.exit_code, done.stdout, done.stderr)


def inspected(folder: Path, *arguments: str) -> dict[str, Any]:
    result = inspect(folder, *arguments, "--json")
    assert result.code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_run(workplace: Path) -> None:
    found = inspected(workplace, "runs/book")
    assert found["kind"] == "run"
    assert sum(part["count"] for part in found["parameters"]["parts"]) == found["parameters"]["total"]
    assert found["summary"]["state"] == "finished"
    assert found["summary"]["step"] == found["checkpoints"][-1] == 2
    assert found["data"].startswith("book")
    steps = [evaluation["step"] for evaluation in found["evaluations"]]
    assert steps == [1, 2]
    best = min(found["evaluations"], key=lambda evaluation: float(evaluation["val_loss"]))
    assert found["summary"]["best_val_loss"] == best["val_loss"]
    assert found["summary"]["best_step"] == found["weights_step"] == best["step"]
    assert {"activations", "memory", "flops", "config"} <= found.keys()


def test_memory_of_a_run_is_that_of_its_setting(workplace: Path, tmp_path: Path) -> None:
    """A run with activation checkpointing keeps fewer activations than another of its shape."""
    train = CommandLine(workplace)
    options = ("--preset", "nano", "--max-steps", "1", "--batch-size", "2", "--activation-checkpointing", "-q")
    assert train("train", "book.txt", *options, "-o", tmp_path / "run").code == 0
    less, usual = (inspected(workplace, str(run))["memory"]["training"] for run in (tmp_path / "run", "runs/book"))
    assert less["activations"] < usual["activations"]
    assert less["parameters"] == usual["parameters"]


def test_newest_run_is_the_default_and_named(workplace: Path) -> None:
    result = CommandLine(workplace)("inspect")
    assert result.code == 0
    assert "runs/book" in result.stderr
    assert "\x1b" not in result.stdout
    for title in ("Run runs/book", "Parameters of book", "Activations", "Memory", "Arithmetic"):
        assert title in result.stdout


def test_presets_where_there_is_no_run(tmp_path: Path) -> None:
    result = inspect(tmp_path)
    assert result.code == 0
    assert "124,439,808" in result.stdout
    assert "no run" in result.stderr


def test_presets_by_name(workplace: Path) -> None:
    result = CommandLine(workplace)("inspect", "presets")
    assert (result.code, result.stderr) == (0, "")
    assert "124,439,808" in result.stdout


def test_a_closed_pipe_ends_quietly(workplace: Path) -> None:
    process = CommandLine(workplace).start("inspect", "runs/book")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 141
    process.stderr.close()


def test_list_of_runs(workplace: Path) -> None:
    found = inspected(workplace, "runs")
    assert [(run["name"], run["step"], run["state"]) for run in found["runs"]] == [
        ("book", 2, "finished"),
        ("other", 1, "finished"),
    ]
    assert all(run["bytes"] > 10**6 and run["best_val_loss"] < 6 for run in found["runs"])


def test_bits_per_byte(workplace: Path) -> None:
    for run in inspected(workplace, "runs")["runs"]:
        expected = series(workplace / run["path"], "val/bpb")[run["best_step"]]
        assert run["best_bits_per_byte"] == pytest.approx(expected, rel=1e-12)
        for shown in (inspect(workplace, "runs").stdout, inspect(workplace, run["path"]).stdout):
            assert f" {expected:.3f}" in shown


@pytest.mark.parametrize(
    "log", [None, b"", b'{"step": 2, "val/loss": 0, "val/bpb": 1}\n', b'\x00 "val/bpb" [', b'"val/bpb"']
)
def test_a_log_without_bits_per_byte_leaves_the_cell_empty(workplace: Path, tmp_path: Path, log: bytes | None) -> None:
    shutil.copytree(workplace / "runs/book", tmp_path / "runs/book")
    path = tmp_path / "runs/book/metrics.jsonl"
    path.unlink()
    if log is not None:
        path.write_bytes(log)
    (found,) = inspected(tmp_path, "runs")["runs"]
    assert found["best_bits_per_byte"] is None
    assert found["best_val_loss"] is not None
    assert re.search(r"book .* – ", inspect(tmp_path, "runs").stdout)


def test_the_list_of_runs_fits_into_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line for each run: a narrow terminal leaves out what matters least, and says so."""
    name, figures = "tinyshakespeare", {"parameters": 747_136, "tokens": 3_190_000, "flops": 10**13}
    summary = RunSummary(
        *(name, f"runs/{name}", "resumable", "tiny"), **figures, tokens_per_parameter=4.27, step=1_234, max_steps=5_678,
        best_val_loss=1.4988, best_step=1_234, best_bits_per_byte=2.1623, bytes=15_200_000,
    )  # fmt: skip
    monkeypatch.setenv("COLUMNS", "80")
    show_report(RunList("runs", (summary, summary)), Output())
    title, _, _, *rows, last = capsys.readouterr().out.splitlines()
    assert title == "Runs in runs"
    assert len(rows) == 2
    assert all(
        max(map(len, (*rows, last))) <= 80 and word in rows[0] for word in (name, "1.4988", "2.162", "resumable")
    )
    assert "preset" in last


def test_a_run_without_checkpoints_shows_its_best_weights(workplace: Path, tmp_path: Path) -> None:
    shutil.copytree(workplace / "runs", tmp_path / "runs")
    with_checkpoints = inspected(tmp_path, "runs/book")["summary"]
    for checkpoint in (tmp_path / "runs/book/checkpoints").iterdir():
        shutil.rmtree(checkpoint)
    summary = inspected(tmp_path, "runs/book")["summary"]
    assert (summary["state"], summary["step"]) == ("no checkpoint", 2)
    for name in ("best_val_loss", "best_step"):
        assert summary[name] == with_checkpoints[name] is not None
    assert inspected(tmp_path, "runs")["runs"][0] == summary
    assert "no checkpoint, but the best weights" in inspect(tmp_path, "runs/book").stdout


def test_list_of_datasets(workplace: Path, tmp_path: Path) -> None:
    shutil.copytree(workplace / "data", tmp_path / "data")
    [made] = list((tmp_path / "data").iterdir())
    shutil.copytree(made, tmp_path / "data/broken")
    (tmp_path / "data/broken/dataset.json").write_text("{", encoding="utf-8")
    found = inspected(tmp_path, "data")
    good, broken = sorted(found["datasets"], key=lambda dataset: dataset["name"] == "broken")
    assert (good["name"], good["tokenizer"], good["problem"]) == (made.name, "char", "")
    assert good["tokens"] == len((workplace / "book.txt").read_text(encoding="utf-8"))
    assert good["bytes"] == sum(file.stat().st_size for file in made.iterdir()) > good["tokens"]
    assert "dataset.json" in broken["problem"]
    assert found["bytes"] == good["bytes"] + broken["bytes"]
    shown = inspect(tmp_path, "data").stdout
    assert made.name in shown
    assert max(map(len, shown.splitlines())) <= 80, "a row says that a dataset is damaged; inspecting it says why"
    assert "total" in shown


def test_damaged_runs_are_listed_as_such(workplace: Path, tmp_path: Path) -> None:
    shutil.copytree(workplace / "runs", tmp_path / "runs")
    (tmp_path / "runs/book/gptcli.toml").write_text("preset = ", encoding="utf-8")
    found = inspected(tmp_path, "runs")
    assert [run["state"] for run in found["runs"]] == ["damaged", "finished"]
    assert "gptcli.toml" in found["runs"][0]["problem"]
    result = inspect(tmp_path, "runs/book")
    assert result.code == 1
    assert "gptcli.toml" in result.stderr


def test_a_damaged_checkpoint_is_told(workplace: Path, tmp_path: Path) -> None:
    shutil.copytree(workplace / "runs/book", tmp_path / "run")
    (tmp_path / "run/checkpoints/step-00000002/state.json").write_text("{}", encoding="utf-8")
    found = inspected(tmp_path, "run")
    assert found["summary"]["step"] == 1
    assert found["summary"]["state"] == "resumable"
    assert "step 2" in found["notes"][0]


def test_damaged_weights_are_told(workplace: Path, tmp_path: Path) -> None:
    shutil.copytree(workplace / "runs/book", tmp_path / "run")
    weights = tmp_path / "run/model.safetensors"
    assert inspected(tmp_path, "run")["notes"] == []
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    found = inspected(tmp_path, "run")
    assert found["notes"] == ["The best weights are damaged: 'run/model.safetensors' does not hold what was written."]
    assert found["summary"]["state"] == "finished"
    weights.write_bytes(content[:100])
    assert "cannot be read" in inspected(tmp_path, "run")["notes"][0]


def test_differences_of_two_runs(workplace: Path) -> None:
    found = inspected(workplace, "runs/book", "runs/other")
    keys = {difference["key"]: (difference["one"], difference["other"]) for difference in found["config"]}
    assert keys == {"optim.lr": (0.01, 0.001), "train.max_steps": (2, 1)}
    results = {difference["key"]: (difference["one"], difference["other"]) for difference in found["results"]}
    assert results["tokens"] == (2 * 2 * 128, 2 * 128)
    assert results["flops"][0] == 2 * results["flops"][1] > 0
    assert "best_val_loss" in results
    assert results["best_bits_per_byte"][0] < results["best_bits_per_byte"][1]
    assert [[item["step"] for item in run] for run in found["evaluations"]] == [[1, 2], [1]]
    shown = inspect(workplace, "runs/book", "runs/other").stdout
    assert MARK in shown
    assert "book (line) and other" in shown


def test_losses_of_other_tokens_are_compared_in_bits_per_byte(
    workplace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alike = inspected(workplace, "runs/book", "runs/other")
    assert not alike["different_tokens"]
    assert "bits per byte, as" not in inspect(workplace, "runs/book", "runs/other").stdout
    shutil.copytree(workplace / "runs/book", tmp_path / "words")
    config = (tmp_path / "words/gptcli.toml").read_text()
    assert 'kind = "char"' in config
    (tmp_path / "words/gptcli.toml").write_text(config.replace('kind = "char"', 'kind = "bpe"'))
    book = str(workplace / "runs/book")
    found = inspected(tmp_path, book, "words")
    assert found["different_tokens"]
    bits = series(workplace / "runs/book", "val/bpb")
    assert {item["step"]: item["bits_per_byte"] for item in found["evaluations"][0]} == bits
    shown = inspect(tmp_path, book, "words").stdout
    assert "in bits per byte" in shown
    highest = next(line for line in shown.splitlines() if "┤" in line)
    assert highest.split("┤")[0].strip() == f"{max(bits.values()):.2f}"


def test_a_digest_leaves_room_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    one, other = (RunSummary(name, f"runs/{name}", "finished") for name in ("one", "other"))
    show_report(
        Comparison(one, other, (Difference("train.init_sha256", None, "0123abcd" * 8),), (), ((), ())), Output()
    )
    assert re.search("train.init_sha256 +– +0123abcd…\n", capsys.readouterr().out)


def test_the_ids_of_characters_are_explained(tmp_path: Path) -> None:
    """Of é and 中 the tokenizer needs the parts: two bytes, three bytes, and two bytes that are joined first."""
    (tmp_path / "a.txt").write_text("aé中\n" * 20, encoding="utf-8")
    with chdir(tmp_path):
        done = CliRunner().invoke(app, ["tokenize", "a.txt", "-o", "tokens"])
    words = "11 ids (4 characters, 6 parts of characters, end of text)"
    assert words in done.stderr
    assert words in inspect(tmp_path, "tokens").stdout
    CliRunner().invoke(app, ["tokenize", str(tmp_path / "a.txt"), "-o", str(tmp_path / "bpe"), "--tokenizer", "bpe"])
    assert "ids (byte-level BPE)" in inspect(tmp_path, "bpe").stdout


def test_dataset(workplace: Path) -> None:
    (folder,) = (workplace / "data").iterdir()
    found = inspected(workplace, str(folder))
    assert found["train"]["tokens"] + found["val"]["tokens"] == 200_000
    assert found["train"]["bytes_per_token"] == 1
    assert found["sources"][0]["name"] == "book.txt"


def test_altered_dataset_is_refused(workplace: Path, tmp_path: Path) -> None:
    (folder,) = (workplace / "data").iterdir()
    shutil.copytree(folder, tmp_path / "data")
    shard = tmp_path / "data/train-00000.npy"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    result = inspect(tmp_path, "data")
    assert result.code == 1
    assert "train-00000.npy" in result.stderr


@pytest.mark.parametrize("tokenizer", ["runs/book", "runs/book/tokenizer.json"])
def test_pieces(workplace: Path, tmp_path: Path, tokenizer: str) -> None:
    (tmp_path / "line.txt").write_text("def x\n" * 20, encoding="utf-8")
    found = inspected(workplace, tokenizer, str(tmp_path / "line.txt"))
    assert found["tokens"] == found["bytes"] == len(found["pieces"]) == 120
    assert [piece["text"] for piece in found["pieces"][:5]] == list("def x")
    assert found["pieces"][0]["hex"] == "64"


def test_a_long_text_is_counted_whole_and_listed_in_part(
    workplace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "line.txt").write_text("def x\n" * 20, encoding="utf-8")
    monkeypatch.setattr(text_report, "PIECES", 7)
    report = text_report.describe_tokens(workplace / "runs/book/tokenizer.json", tmp_path / "line.txt")
    assert (report.tokens, report.distinct_tokens, report.characters) == (120, 6, 120)
    assert [piece.text for piece in report.pieces] == list("def x\nd")


def test_text(workplace: Path) -> None:
    found = inspected(workplace, "book.txt")
    text = (workplace / "book.txt").read_text(encoding="utf-8")
    assert found["characters"] == 200_000
    assert found["lines"] == len(text.split("\n"))
    assert found["distinct_characters"] == len(set(text)) == len(found["alphabet"])
    assert found["tokenizer"] == "char"


def test_hugging_face_folder(tmp_path: Path) -> None:
    config = ModelConfig(vocab_size=11, n_layer=2, n_head=3, n_embd=12, block_size=16)
    (tmp_path / "hf").mkdir()
    content = json.dumps(config_to_hf(config, bos_token_id=0, eos_token_id=None))
    (tmp_path / "hf/config.json").write_text(content, encoding="utf-8")
    found = inspected(tmp_path, "hf", "--length", "5", "--batch-size", "2")
    assert found["activations"][-1]["shape"] == [2, 5, 11]


def test_no_line_ends_with_spaces_on_a_pipe(workplace: Path, tmp_path: Path) -> None:
    for thing in (["runs/book"], ["runs"], ["data"], ["book.txt"], ["--machine"], []):
        lines = inspect(workplace, *thing).stdout.splitlines()
        assert lines
        assert [line for line in lines if line != line.rstrip()] == []


def test_machine(tmp_path: Path) -> None:
    found = inspected(tmp_path, "--machine")
    assert found["devices"][-1]["device"] == "cpu"
    assert found["devices"][-1]["dtype_reason"]


def test_text_of_a_file_does_not_act_on_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "a\x1b[31m.txt").write_text("[bold]x[/bold] \x1b[31m" * 9, encoding="utf-8")
    result = inspect(tmp_path, "a\x1b[31m.txt")
    assert result.code == 0
    assert "\x1b" not in result.stdout
    assert "[bold]"[1] in result.stdout


@pytest.mark.parametrize("content", [b"noise", b"\x80\x02}q\x00."])
def test_a_folder_of_texts_with_another_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.txt").write_text("a text\n")
    (tmp_path / "b.bin").write_bytes(content)
    result = inspect(tmp_path, ".", "--json")
    assert result.code == 0, result.stderr
    assert json.loads(result.stdout)["kind"] == "text"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["nowhere"], 1, "nowhere"),
        (["ftp://example.com/a.txt"], 2, "'ftp://example.com/a.txt' is an address"),
        (["tiny"], 1, "--preset tiny"),
        (["weights.pt"], 1, "pickle"),
        (["weights"], 1, "pickle"),
        (["noise.bin"], 1, "not text"),
        (["/dev/null"], 1, "/dev/null"),
        (["--preset", "nanoo"], 2, "nano"),
        (["--preset", "nano", "--length", "129"], 2, "129"),
        (["--preset", "nano", "--machine"], 2, "--machine"),
        (["--vocab-size", "9"], 2, "--preset"),
        (["a", "b", "c"], 2, "3 things"),
        (["empty.txt"], 1, "empty.txt"),
    ],
)
def test_refusals(tmp_path: Path, arguments: list[str], code: int, told: str) -> None:
    for name in ("weights.pt", "empty.txt"):
        (tmp_path / name).touch()
    (tmp_path / "noise.bin").write_bytes(bytes(range(256)))
    (tmp_path / "weights").mkdir()
    for pickle in (tmp_path / "weights.pt", tmp_path / "weights/model.bin"):
        pickle.write_bytes(b"\x80\x02}q\x00.")
    result = inspect(tmp_path, *arguments)
    assert result.code == code
    assert told in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_a_torn_last_line_of_the_metrics_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "val/loss": 2.5}\n{"step": 2, "val/l', encoding="utf-8")
    assert [(evaluation.step, evaluation.val_loss) for evaluation in evaluations(tmp_path / "metrics.jsonl")] == [
        (1, 2.5)
    ]
