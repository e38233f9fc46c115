"""`gptcli train` in this process: its output, and refusals that write nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

from gptcli.checkpoints.checkpoint import newest_checkpoint
from gptcli.checkpoints.run_folder import read_run
from gptcli.cli.app import app
from gptcli.dataset import preparation
from gptcli.training import trainer
from gptcli.training.trainer import Trainer
from gptcli.training.update import Update
from tests.runs.small_runs import FLAGS, series


def small(**settings: object) -> list[str]:
    """The options of a small run, with other values of settings of `train` by name; None leaves one out."""
    flags = FLAGS | {f"train.{name}": value for name, value in settings.items()}
    return [f"--set={key}={value}" for key, value in flags.items() if value is not None]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, corpus: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder of its own, with book.txt in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").write_text(corpus[:2000])
    return tmp_path


def invoke(*arguments: str, data: str = "book.txt") -> Result:
    return CliRunner().invoke(app, ["train", data, *arguments])


def train(*arguments: str, data: str = "book.txt", **settings: object) -> Result:
    return invoke(*small(**settings), "--preset", "nano", *arguments, data=data)


def test_a_pipe_gets_plain_rows_and_the_path() -> None:
    result = train(eval_every=5)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == "runs/book\n"
    rows = [line for line in result.stderr.splitlines() if line.startswith("step ")]
    assert [row.split()[1] for row in rows] == ["5/20", "10/20", "15/20", "20/20"]
    row = (
        r"step 20/20  loss \d\.\d{4}  val \d\.\d{4}  best \d\.\d{4} at \d+  lr \d\.\d\de-\d\d  tok/s [\d,]+  left 0:00"
    )
    assert re.fullmatch(row, rows[-1])
    assert "\x1b" not in result.stderr
    done = r"Done: 20 steps in 0:0\d\. Best validation loss \d\.\d{4} nats per token \(perplexity"
    assert re.search(done, result.stderr)
    assert "Next: gptcli sample runs/book" in result.stderr


def test_quiet_prints_the_path_alone() -> None:
    result = train("-q", "--set=train.sample_every=10")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "runs/book\n", "")
    again = train("-q")
    assert (again.exit_code, again.stdout, again.stderr) == (0, "runs/book\n", "")


def test_json_is_one_object_with_stable_names() -> None:
    result = train("--json")
    told: dict[str, Any] = json.loads(result.stdout)
    best = ["best_val_loss", "best_bits_per_byte", "best_step"]
    assert list(told) == ["run", "steps", "tokens", *best, "val_loss", "seconds", "stopped"]
    assert (told["run"], told["steps"], told["tokens"], told["stopped"]) == ("runs/book", 20, 20 * 64, "max_steps")
    losses = series(Path("runs/book"), "val/loss")
    assert told["val_loss"] == losses[20]
    assert told["best_val_loss"] == losses[told["best_step"]] == min(losses.values())
    assert told["best_bits_per_byte"] == series(Path("runs/book"), "val/bpb")[told["best_step"]]


def test_bits_per_byte_of_the_best_loss_also_of_a_finished_run() -> None:
    for result in (train(), train()):
        bits = min(series(Path("runs/book"), "val/bpb").values())
        assert f", {bits:.2f} bits per byte) at step" in result.stderr


def test_a_finished_run_says_how_to_train_longer() -> None:
    train()
    result = train()
    assert (result.exit_code, result.stdout) == (0, "runs/book\n")
    assert "20 steps" in result.stderr
    assert "max-steps 40" in result.stderr
    assert "resume never" in result.stderr


def test_a_changed_text_and_the_way_on(folder: Path) -> None:
    """Following the hint trains the model on the new text."""
    assert train().exit_code == 0
    before = everything(folder / "runs")
    text = (folder / "book.txt").read_text()
    (folder / "book.txt").write_text(text[1000:] + text[:1000])
    result = train()
    assert result.exit_code == 2
    assert "'runs/book'" in result.stderr
    assert re.search(r"--init-from runs/book\b", result.stderr)
    assert everything(folder / "runs") == before
    result = train("--init-from", "runs/book", "-o", "runs/other")
    assert (result.exit_code, result.stdout) == (0, "runs/other\n"), result.stderr


def test_never_starts_another() -> None:
    train()
    assert train("--resume", "never").stdout == "runs/book-2\n"


def test_markup_in_names_and_samples_is_text(folder: Path) -> None:
    """The model knows only these characters, so its samples consist of them; the file has such a name, too."""
    name = "[red]x[link=a].txt"
    (folder / name).write_text("[red]x[/red] [bold]\x1b[31m" * 100)
    result = train("--set=train.sample_every=10", "-o", "[red]run", data=name)
    assert (result.exit_code, result.stdout) == (0, "[red]run\n")
    samples = series(folder / "[red]run", "sample")
    printed = samples[20].replace("\x1b", "\\x1b")
    assert f"── sample at step 20 ──\n{printed}" in result.stderr
    assert "\x1b" not in result.stderr
    failed = train(data="[red]missing[/red].txt")
    assert "[red]missing[/red].txt" in failed.stderr


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


BAD = {
    "--lr 0": ["lr"],
    "--lr nan": ["lr", "finite"],
    "--dropout 1": ["dropout"],
    "--dropout -0.5": ["dropout"],
    "--batch-size 0": ["batch"],
    "--n-embd 50 --n-head 4": ["multiple", "50", "4"],
    "--preset smal": ["'small'"],
    "--set optim.learningrate=1": ["learningrate"],
    "--set lr=1": ["lr=1"],
    "--set optim.lr=1 --lr 1": ["--lr", "twice"],
    "--set optim.beta1=0.5 --set optim.beta1=0.6": ["optim.beta1", "twice"],
    "--set train.lr=1": ["'train.lr'", "'optim.lr'"],
    "--max-steps abc": ["--max-steps", "whole number"],
    "--max-time soon": ["soon", "90s"],
    "--dtype float8": ["dtype", "float8"],
    "--schedule cosin": ["schedule", "cosin"],
    "--compile maybe": ["compile", "maybe"],
    "--vocab-size 5": ["vocab", "5"],
    "--val-fraction 1": ["fraction", "1"],
    "-c missing.toml": ["missing.toml"],
    "--resume must": ["no run", "'runs/book'"],
    "--resume perhaps": ["perhaps"],
    "--lr 0 --dropout 2 --vocab-size 1": ["lr", "dropout", "2.0", "vocab"],
    "--n-layer 100000": ["layer", "100000", "512"],
    "--micro-batch-size many": ["micro", "many", "auto"],
    "--device tpu": ["'tpu'"],
    "--preset=": ["empty", "preset"],
    "--tokenizer char --vocab-size 300": ["vocab", "char"],
    "--tokenizer other.json --vocab-size 300": ["vocab", "'other.json'"],
    "--set tokenizer.kind=char --set tokenizer.vocab_size=300": ["vocab", "bpe"],
    "--set model.vocab_size=300": ["model.vocab_size", "vocab"],
    "ftp://example.com/book.txt": ["address", "ftp://example.com/book.txt"],
}
"""Facts that the message must contain, by options."""


@pytest.mark.parametrize("options", BAD)
def test_bad_values_write_nothing(folder: Path, options: str) -> None:
    before = everything(folder)
    result = invoke(*options.split())
    assert result.exit_code == 2, result.stderr
    assert [fact for fact in BAD[options] if fact not in result.stderr] == [], result.stderr
    assert "Traceback" not in result.stderr
    assert everything(folder) == before


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('tokenizer = "char"', "tokenizer"),
        ("[tokenizer]\nkind = 5", "cannot be 5"),
        ("train = 3", "train"),
        ("model = 3", "model = 3 must be a table of settings"),
        ("preset = 3", "no preset called '3'"),
        ("[optim]\nlr = 0.1\nlearn = 2", "optim.learn"),
        ("[optm]\nlr = 1", "'optm.lr'"),
    ],
)
def test_bad_config_files_write_nothing(folder: Path, content: str, words: str) -> None:
    (folder / "a.toml").write_text(content)
    before = everything(folder)
    for others in ([], ["--n-layer", "2"], ["--family", "gpt2"]):
        result = invoke("-c", "a.toml", *others)
        assert result.exit_code == 2, result.stderr
        assert words in result.stderr
    assert everything(folder) == before


@pytest.mark.parametrize("device", ["cuda", "cuda:7", "mps"])
def test_a_missing_device(folder: Path, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    before = everything(folder)
    result = invoke("--device", device)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert everything(folder) == before


def test_a_place_below_a_file_is_refused_before_the_text_is_read(folder: Path) -> None:
    before = everything(folder)
    result = invoke("-o", "book.txt/run")
    assert (result.exit_code, "Writing 'book.txt/run' failed" in result.stderr) == (1, True)
    assert "--out" in result.stderr
    assert "Data:" not in result.stderr
    assert everything(folder) == before


def test_a_bad_default_place_is_refused_before_the_text_is_read(folder: Path) -> None:
    (folder / "runs/book").mkdir(parents=True)
    (folder / "runs/book/chapter.txt").write_text("mine")
    before = everything(folder)
    result = invoke()
    assert (result.exit_code, "'runs/book' is a folder with other files in it" in result.stderr) == (1, True)
    assert everything(folder) == before


def test_shapes_are_checked_against_the_run_that_resumes(folder: Path) -> None:
    """128, the width of the default preset, is no multiple of 3; that of this run is."""
    options = ("--preset", "nano", "--n-head", "3", "--max-steps", "2", "--device", "cpu")
    assert invoke(*options).exit_code == 0
    result = invoke("--n-head", "3", "--max-steps", "3")
    assert (result.exit_code, result.stdout) == (0, "runs/book\n"), result.stderr
    result = invoke("--preset", "tiny", "--n-head", "3", "--resume", "never")
    assert "(128) must be a multiple of" in result.stderr
    assert not (folder / "runs/book-2").exists()


def test_a_run_resumes_where_its_device_is_missing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(max_steps=2)
    config = folder / "runs/book/gptcli.toml"
    config.write_text(config.read_text().replace('device = "cpu"', 'device = "mps"'))
    manifest = json.loads((folder / "runs/book/manifest.json").read_text())
    del manifest["files"]["gptcli.toml"]
    (folder / "runs/book/manifest.json").write_text(json.dumps(manifest))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    result = train(max_steps=3, device=None)
    assert (result.exit_code, result.stdout) == (0, "runs/book\n"), result.stderr
    assert "'mps'" in result.stderr
    assert "'cpu'" in result.stderr


def test_auto_replaces_a_stored_value(folder: Path) -> None:
    """The stored micro-batch size and device belong to the machine of an earlier session."""
    train(max_steps=2)
    others = [*small(micro_batch_size=None, device=None), "--preset", "nano", "--dry-run", "--json"]
    kept = json.loads(invoke(*others).stdout)["config"]["train"]
    assert (kept["micro_batch_size"], kept["device"]) == (4, "cpu")
    changed = json.loads(invoke(*others, "--micro-batch-size", "2", "--device", "auto").stdout)["config"]["train"]
    assert (changed["micro_batch_size"], changed["device"]) == (2, "auto")
    assert invoke(*others, "--micro-batch-size", "auto").exit_code == 0


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--tokenizer=bpe", "tokenizer"),
        ("--vocab-size=300", "vocab"),
        ("--set=tokenizer.kind=bpe", "tokenizer"),
        ("--set=data.val_fraction=0.3", "fraction"),
    ],
)
def test_settings_about_reading_text_are_refused_for_a_dataset(folder: Path, option: str, told: str) -> None:
    assert CliRunner().invoke(app, ["tokenize", "book.txt", "-o", "tokens"]).exit_code == 0
    before = everything(folder)
    result = train(option, data="tokens")
    assert (result.exit_code, everything(folder) == before) == (2, True)
    assert told in result.stderr
    assert "dataset" in result.stderr


def test_a_vocabulary_size_is_obeyed_and_stored(folder: Path) -> None:
    result = train("--vocab-size", "300")
    assert result.exit_code == 0, result.stderr
    assert "Tokenizer: BPE" in result.stderr
    config = read_run(Path("runs/book")).config
    assert (config.tokenizer.kind, config.tokenizer.vocab_size) == ("bpe", 300)
    assert invoke("-c", "runs/book/gptcli.toml", "-o", "again").exit_code == 0
    assert len(list((folder / "data").iterdir())) == 1, "the same dataset"
    assert train("-o", "chars").exit_code == 0
    config = read_run(Path("chars")).config
    assert (config.tokenizer.kind, config.tokenizer.vocab_size) == ("char", None)


def test_a_config_file_may_state_how_text_was_read(folder: Path) -> None:
    """The config of a run does, and repeats the run from the same dataset."""
    assert CliRunner().invoke(app, ["tokenize", "book.txt", "-o", "tokens"]).exit_code == 0
    assert train(data="tokens").exit_code == 0
    assert invoke("-c", "runs/tokens/gptcli.toml", "-o", "again", data="tokens").exit_code == 0


@pytest.mark.parametrize("place", ["book.txt", "thesis", "x" * 300])
def test_a_bad_place_writes_nothing(folder: Path, place: str) -> None:
    (folder / "thesis").mkdir()
    (folder / "thesis/chapter.txt").write_text("mine")
    before = everything(folder)
    result = invoke("-o", place)
    assert result.exit_code == 1, result.stderr
    assert place[:40] in result.stderr
    assert everything(folder) == before


def test_dry_run_writes_nothing(folder: Path) -> None:
    before = everything(folder)
    result = train("--dry-run")
    assert result.exit_code == 0, result.stderr
    assert 'preset = "nano"' in result.stdout
    assert "Memory: about" in result.stderr
    told = json.loads(train("--dry-run", "--json").stdout)
    assert told["config"]["train"]["max_steps"] == 20
    assert told["memory_bytes"] > 0
    assert everything(folder) == before


def test_a_dry_run_reads_the_tokens_that_are_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert train(max_steps=1).exit_code == 0
    before = everything(folder)
    monkeypatch.setattr(preparation, "write_dataset", None)  # nothing is tokenized again
    result = train("--dry-run")
    assert result.exit_code == 0, result.stderr
    assert everything(folder) == before


def test_a_later_config_file_overrides_an_earlier_one(folder: Path) -> None:
    (folder / "one.toml").write_text("[model]\nn_layer = 1\nn_head = 1\n")
    (folder / "two.toml").write_text("[model]\nn_layer = 2\n")
    told = json.loads(invoke("-c", "one.toml", "-c", "two.toml", "--dry-run", "--json").stdout)
    assert (told["config"]["model"]["n_layer"], told["config"]["model"]["n_head"]) == (2, 1)


def test_a_char_tokenizer_may_replace_the_bpe_of_a_config_file(folder: Path) -> None:
    """The size in the file belongs to its BPE tokenizer: no stated setting is ignored."""
    (folder / "bpe.toml").write_text('[tokenizer]\nkind = "bpe"\nvocab_size = 300\n')
    assert invoke("-c", "bpe.toml", "--tokenizer", "char", "--dry-run").exit_code == 0
    (folder / "bpe.toml").write_text('[tokenizer]\nkind = "char"\n')
    assert invoke("-c", "bpe.toml", "--vocab-size", "300", "--dry-run").exit_code == 2


def test_the_stored_config_repeats_the_run(folder: Path) -> None:
    train("-o", "one")
    assert invoke("-c", "one/gptcli.toml", "-o", "two").exit_code == 0
    assert (folder / "one/model.safetensors").read_bytes() == (folder / "two/model.safetensors").read_bytes()


def stop_at(monkeypatch: pytest.MonkeyPatch, step: int, signum: int) -> None:
    """The signal arrives in the middle of an update."""
    plain = Trainer.step

    def signalled(self: Trainer, should_stop: Callable[[], bool]) -> Update | None:
        if self.completed_steps == step - 1:
            os.kill(os.getpid(), signum)
        return plain(self, should_stop)

    monkeypatch.setattr(Trainer, "step", signalled)


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves(folder: Path, monkeypatch: pytest.MonkeyPatch, signum: int, code: int) -> None:
    """The printed command resumes this very run, although the first one asked for a new run."""
    train()
    arguments = ["train", "book.txt", *small(), "--preset", "nano", "--resume", "never"]
    monkeypatch.setattr(sys, "argv", ["gptcli", *arguments])
    with monkeypatch.context() as patch:
        stop_at(patch, 7, signum)
        result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert "step 7" in result.stderr
    resuming = re.search(r"Resume with: gptcli (.*)", result.stderr)
    assert resuming is not None
    assert resuming[1].endswith("--preset nano --out runs/book-2")
    assert CliRunner().invoke(app, resuming[1].split()).stdout == "runs/book-2\n"
    checkpoint, _ = newest_checkpoint(folder / "runs/book-2")
    assert checkpoint is not None
    assert checkpoint.progress.step == 20


def test_json_of_a_stopped_run(monkeypatch: pytest.MonkeyPatch) -> None:
    stop_at(monkeypatch, 7, signal.SIGINT)
    result = train("--json")
    assert result.exit_code == 130
    told = json.loads(result.stdout)
    assert (told["steps"], told["stopped"]) == (7, "interrupted")


def test_not_a_number_ends_with_3(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "accumulate_gradients", lambda *arguments, **options: torch.tensor(float("nan")))
    result = train()
    assert (result.exit_code, result.stdout) == (3, "")
    assert "NaN" in result.stderr
    assert re.search(r"lr[ =]0\.005", result.stderr)


def test_a_run_is_not_text(folder: Path) -> None:
    """Otherwise its model card would be trained on: a folder stands for its *.md files."""
    assert train().exit_code == 0
    result = train("-o", "runs/other", data="runs/book")
    assert (result.exit_code, "'runs/book' is a run, not text" in result.stderr) == (2, True)
    assert not Path("runs/other").exists()


def test_a_name_that_is_too_long() -> None:
    result = invoke(data="x" * 300)
    assert result.exit_code == 1
    assert "too long" in result.stderr
