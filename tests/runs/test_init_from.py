"""Fine-tuning: what a run takes from a pretrained model, what is refused, and that it needs the model only once."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner, Result

from gptcli.checkpoints.checkpoint import Checkpoint
from gptcli.checkpoints.run_folder import read_run
from gptcli.checkpoints.tensors import digest, read_metadata
from gptcli.cli.app import app
from gptcli.config.presets import PRESETS, fine_tuning
from gptcli.config.values import flatten
from gptcli.dataset.folder import Dataset
from gptcli.errors import UsageError
from gptcli.generation.loaded_model import open_model
from gptcli.interop.huggingface import tensors_to_hf
from gptcli.model import resize
from gptcli.runs import opening, pretrained, session
from gptcli.runs.completion import epoch_steps
from gptcli.runs.events import Event
from gptcli.runs.rhythm import EVALUATIONS
from gptcli.tokenizer.tokenizer import load_tokenizer
from gptcli.training.trainer import Trainer
from tests.model.reference import assert_close
from tests.runs.small_runs import assert_same_end, carry_out, lines, plan, run, series

BESIDE_STEPS = ("--set=train.log_every=1", "--device", "cpu", "--dtype", "float32")
QUICK = ("--max-steps", "6", *BESIDE_STEPS)


@pytest.fixture(scope="module")
def trained(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of ten updates, from which the tests start. Do not change it."""
    path = tmp_path_factory.mktemp("trained") / "base"
    run(dataset, path, {"train.max_steps": 10})
    return path


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, corpus: str, dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with book.txt, all of whose characters the model knows."""
    monkeypatch.chdir(tmp_path)
    known = set((dataset.path.parent / "book.txt").read_text())
    text = "".join(character for character in corpus[20_000:24_000] if character in known)
    (tmp_path / "book.txt").write_text(text)
    return tmp_path


def train(*arguments: object, data: str = "book.txt") -> Result:
    return CliRunner().invoke(app, ["train", data, *map(str, arguments)])


def fine_tune(start: Path | str, *arguments: object) -> Result:
    quick = BESIDE_STEPS if any("max_steps" in str(given).replace("-", "_") for given in arguments) else QUICK
    result = train("--init-from", start, *quick, *arguments)
    assert result.exit_code == 0, result.stderr
    return result


def refused(*arguments: object, code: int = 2) -> str:
    before = sorted(Path().rglob("*"))
    result = train(*arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert "Hint: " in result.stderr
    assert sorted(Path().rglob("*")) == before, "a refusal writes nothing"
    return result.stderr


def first_loss(path: Path) -> float:
    """The validation loss before the first update."""
    loss: float = series(path, "val/loss")[0]
    return loss


def changed(trained: Path, place: Path, change: Callable[[Path], object]) -> Path:
    """A changed copy of the pretrained model, without the files that only a run has."""
    place.mkdir()
    for name in ("config.json", "generation_config.json", "tokenizer.json", "model.safetensors"):
        shutil.copy(trained / name, place / name)
    change(place)
    return place


def test_shape_tokenizer_and_weights_are_those_of_the_pretrained_model(trained: Path) -> None:
    result = fine_tune(trained)
    assert result.stdout == "runs/book\n"
    assert "Starting from 'base'" in result.stderr
    assert re.search(r"^Model: \d layers?, ", result.stderr, re.MULTILINE), "the shape is not that of a preset"
    begun = Path("runs/book")
    assert load_tokenizer(begun).fingerprint == load_tokenizer(trained).fingerprint
    old, new = open_model(trained), open_model(begun, "best")
    assert new.model.config == old.model.config.model_copy(update={"dropout": new.model.config.dropout})
    assert "head_dim" not in (begun / "gptcli.toml").read_text(), "a width that follows from others is not stored"
    train("--init-from", trained, *BESIDE_STEPS, "--resume", "never", "--max-steps", "1", "--lr", "1e-30")
    unchanged = open_model(Path("runs/book-2"), "last").model.state_dict()
    assert all(torch.equal(tensor, unchanged[name]) for name, tensor in old.model.state_dict().items())


def test_the_first_evaluation_is_that_of_the_pretrained_model(trained: Path) -> None:
    """`eval` with the pretrained model agrees, on the part of the text that was held out."""
    fine_tune(trained)
    text = Path("book.txt").read_text()
    Path("val.txt").write_text(text[len(text) - len(text) // 10 :])
    scored = CliRunner().invoke(app, ["eval", str(trained), "val.txt", "--stride", "16", "--json", "--device", "cpu"])
    assert first_loss(Path("runs/book")) == pytest.approx(json.loads(scored.stdout)["loss"], abs=0.05)


def test_the_run_remembers_its_pretrained_model(trained: Path, folder: Path) -> None:
    fine_tune(trained)
    config = read_run(Path("runs/book")).config.train
    assert config.init_from == "base"
    assert config.init_sha256 == read_metadata(trained / "model.safetensors")["sha256"]
    for path in Path("runs/book").rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert str(trained.parent).encode() not in content, f"{path} holds a path"
            assert str(folder).encode() not in content, f"{path} holds a path"
    assert "| started from | base (sha256 of its weights " in Path("runs/book/README.md").read_text()
    shown = CliRunner().invoke(app, ["inspect", "runs/book"]).stdout
    assert f"base ({config.init_sha256[:8]})" in shown
    known = json.loads(CliRunner().invoke(app, ["inspect", "runs/book", "--json"]).stdout)
    assert known["config"]["train"]["init_from"] == "base"


def test_the_recipe_lies_between_preset_and_file(trained: Path, folder: Path) -> None:
    def config(*arguments: str) -> dict[str, Any]:
        result = train("--init-from", trained, "--dry-run", "--json", *arguments)
        assert result.exit_code == 0, result.stderr
        made: dict[str, Any] = json.loads(result.stdout)["config"]
        return made

    recipe = config()
    assert recipe["preset"] == "nano", "the one whose size is nearest"
    wanted = flatten(fine_tuning("nano"))
    assert wanted["optim.lr"] < PRESETS["nano"]["optim"]["lr"]
    made = flatten(recipe)
    assert {key: made[key] for key in wanted if key != "train.max_steps"} == {
        key: value for key, value in wanted.items() if key != "train.max_steps"
    }
    steps = recipe["train"]["max_steps"]
    assert steps < PRESETS["nano"]["train"]["max_steps"]
    assert recipe["train"]["eval_every"] == recipe["train"]["save_every"] == -(-steps // EVALUATIONS)
    (folder / "c.toml").write_text("[optim]\nlr = 0.5\n[train]\nbatch_size = 5\n")
    file = config("-c", "c.toml")
    assert (file["optim"]["lr"], file["train"]["batch_size"]) == (0.5, 5)
    assert file["train"]["patience"] == recipe["train"]["patience"]
    assert config("-c", "c.toml", "--lr", "0.25")["optim"]["lr"] == 0.25


@pytest.mark.parametrize(
    ("budget", "epochs", "steps"), [(["--max-steps", "7"], None, 7), (["--epochs", "0.1"], 0.1, None)]
)
def test_a_stated_budget_takes_the_place_of_the_recipe(
    trained: Path, budget: list[str], epochs: float | None, steps: int | None
) -> None:
    result = train("--init-from", trained, "--dry-run", "--json", *budget)
    made = json.loads(result.stdout)["config"]["train"]
    assert made["epochs"] == epochs
    assert steps in (None, made["max_steps"])


def test_settings_that_agree_with_the_pretrained_model_are_allowed(dataset: Dataset, folder: Path) -> None:
    """The default preset's width is no multiple of these heads; the pretrained model's is."""
    run(dataset, folder / "three", {"model.n_head": 3, "model.n_embd": 48, "train.max_steps": 1})
    result = train("--init-from", "three", "--n-head", "3", "--dry-run", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["config"]["model"]["n_head"] == 3


def test_a_stated_number_of_steps_stays_on_resume(trained: Path, folder: Path, dataset: Dataset) -> None:
    """The recipe's epochs, fewer steps than stated, do not return on resume; nor does its patience to a run without."""
    stated = {"train.init_from": str(trained), "train.max_steps": 5000}
    begun = plan(dataset, folder / "run", stated, family=None)
    assert (begun.config.train.max_steps, begun.config.train.epochs) == (5000, None)
    train_config = begun.config.train.model_copy(update={"patience": None})
    begun = replace(begun, config=begun.config.model_copy(update={"train": train_config}))
    carry_out(begun, stop_after=1)
    resumed = plan(dataset, folder / "run", stated | {"train.max_steps": None}, family=None)
    assert resumed.checkpoint is not None
    assert resumed.config == begun.config
    more = stated | {"train.max_steps": None, "train.epochs": 20.0}
    resumed = plan(dataset, folder / "run", more, family=None)
    assert resumed.config.train.max_steps == round(20 * epoch_steps(resumed.config, dataset))


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"model.n_layer": 3}, ["`model.n_layer = 3`", "'base'", " 1"]),
        ({"model.n_head": 4}, ["`model.n_head = 4`"]),
        ({"model.n_embd": 32}, ["`model.n_embd = 32`"]),
        ({"model.block_size": 17}, ["`model.block_size = 17`", "'base'", "16"]),
        ({"tokenizer.kind": "bpe"}, ["`tokenizer.kind = bpe`", "'base'"]),
        ({"tokenizer.vocab_size": 300}, ["`tokenizer.vocab_size", "'base'"]),
    ],
)
def test_contradictions_are_refused(
    trained: Path, folder: Path, dataset: Dataset, settings: dict[str, Any], facts: list[str]
) -> None:
    sizes = dict.fromkeys(("model.n_layer", "model.n_head", "model.n_embd", "model.block_size"))
    with pytest.raises(UsageError) as caught:
        plan(dataset, folder / "run", sizes | {"train.init_from": str(trained)} | settings, preset=None, family=None)
    assert all(fact in caught.value.message for fact in facts)


def test_a_preset_of_another_size_is_refused(trained: Path) -> None:
    refused("--init-from", trained, "--preset", "mini")
    refused("--init-from", trained, "--n-layer", "3")


@pytest.mark.parametrize("option", ["--lr=0", "--set=optim.rate=1", "--family=modern", "--max-time=soon"])
def test_nothing_is_downloaded_for_an_impossible_request(monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    """A shape is judged only once the model is known: 3 heads do not divide the default preset's width."""
    asked: list[str] = []

    def find_model(thing: str, *, quiet: bool) -> Path:
        asked.append(thing)
        return Path("nowhere")

    monkeypatch.setattr(pretrained, "find_model", find_model)
    assert train("--init-from", "hf://owner/name", option).exit_code == 2
    assert asked == []
    refused("--init-from", "hf://owner/name", "--n-head", "3", code=1)
    assert asked == ["hf://owner/name"]


def test_other_weights_than_the_config_names(trained: Path) -> None:
    result = train("--init-from", trained, "--set=train.init_sha256=" + "0" * 64)
    assert result.exit_code == 1
    assert "'base'" in result.stderr
    assert "init_sha256" in result.stderr


def test_a_missing_pretrained_model() -> None:
    assert "There is no 'nowhere'" in refused("--init-from", "nowhere", code=1)
    assert "'book.txt' is a file" in refused("--init-from", "book.txt", code=1)
    Path("model.pt").write_bytes(b"\x80\x02}q\x00.")
    assert "pickle" in refused("--init-from", "model.pt", code=1)


def test_characters_that_the_model_does_not_know(trained: Path, folder: Path) -> None:
    """The text that contains them is named."""
    (folder / "texts").mkdir()
    (folder / "texts/a.txt").write_text((folder / "book.txt").read_text())
    (folder / "texts/b.txt").write_text("naïve 漢字 " * 500)
    result = train("--init-from", trained, data="texts")
    assert result.exit_code == 1
    assert "texts/b.txt" in result.stderr
    assert "'漢'" in result.stderr


def test_a_dataset_must_have_the_same_tokenizer(trained: Path, dataset: Dataset) -> None:
    assert CliRunner().invoke(app, ["tokenize", "book.txt", "-o", "other"]).exit_code == 0
    other = train("--init-from", trained, data="other")
    assert other.exit_code == 2
    assert "has another tokenizer than 'base'" in other.stderr
    same = train("--init-from", trained, *QUICK, data=str(dataset.path))
    assert same.exit_code == 0, same.stderr


def check_shorter_context(trained: Path, path: Path) -> None:
    """Logits within the shorter context window are those of the pretrained model, as no token looks ahead."""
    fine_tune(trained, "--block-size", "8", "--lr", "1e-30", "--set=train.max_steps=1", "-o", path)
    short, whole = open_model(path, "last").model, open_model(trained).model
    assert short.config.block_size == 8
    ids = torch.randint(whole.config.vocab_size, (3, 8), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert_close(short(ids), whole(ids))


def test_a_shorter_context(trained: Path) -> None:
    check_shorter_context(trained, Path("short"))


def test_control_positions_cut_at_the_wrong_end(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(state: Any, config: Any) -> dict[str, torch.Tensor]:
        return dict(state) | {"wpe.weight": state["wpe.weight"][-config.block_size :]}

    monkeypatch.setattr(pretrained, "resized", cut)
    with pytest.raises(AssertionError):
        check_shorter_context(trained, Path("short"))


def add_token(folder: Path) -> None:
    """A special token with the next id, as chat templates and padding bring."""
    document = json.loads((folder / "tokenizer.json").read_text())
    document["added_tokens"].append(
        {**document["added_tokens"][0], "id": len(document["model"]["vocab"]), "content": "<|pad|>"}
    )
    (folder / "tokenizer.json").write_text(json.dumps(document))


def test_new_special_tokens_get_rows(trained: Path, folder: Path) -> None:
    start = changed(trained, folder / "start", add_token)
    refusal = CliRunner().invoke(app, ["sample", str(start)])
    assert refusal.exit_code == 1
    assert "init" in refusal.stderr
    result = fine_tune(start, "--lr", "1e-30", "--set=train.max_steps=1")
    assert "1 row" in result.stderr
    old = open_model(trained).model.wte.weight
    new = open_model(Path("runs/book"), "last").model.wte.weight
    assert torch.equal(new[: len(old)], old)
    assert torch.allclose(new[len(old) :], old.mean(0), atol=1e-7)
    assert CliRunner().invoke(app, ["sample", "runs/book", "-n", "5", "--device", "cpu"]).exit_code == 0


def split(folder: Path) -> None:
    """Put the weights into two files with an index."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    files = {name: f"model-0000{1 + number % 2}-of-00002.safetensors" for number, name in enumerate(tensors)}
    for file in set(files.values()):
        save_file({name: tensors[name] for name in tensors if files[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))


def test_shards_have_the_digest_of_the_whole(trained: Path, folder: Path) -> None:
    fine_tune(changed(trained, folder / "shards", split))
    stored = read_run(Path("runs/book")).config.train.init_sha256
    model = open_model(trained).model
    assert stored == digest(tensors_to_hf(model.state_dict(), model.config))


def begin(dataset: Dataset, start: Path, path: Path, stop_after: int | None = None) -> list[Event]:
    """Fine-tune the model at `start`, or resume; at most `stop_after` updates in this session."""
    flags = {"train.init_from": str(start), "train.eval_every": 5, "train.patience": None}
    return run(dataset, path, flags, stop_after=stop_after, family=None)


@pytest.mark.parametrize("updates", [0, 3, 10])
def test_resuming_does_not_need_the_pretrained_model(
    trained: Path, folder: Path, dataset: Dataset, updates: int
) -> None:
    """Stopped, and resumed after the pretrained model was deleted: bit for bit as without the stop."""
    start = changed(trained, folder / "base", lambda _: None)
    begin(dataset, start, folder / "cut", stop_after=updates)
    begin(dataset, start, folder / "whole")
    shutil.rmtree(start)
    begin(dataset, start, folder / "cut")
    assert_same_end(folder / "cut", folder / "whole")
    assert series(folder / "cut", "val/loss") == series(folder / "whole", "val/loss")


def test_control_a_resume_that_restores_nothing(
    trained: Path, folder: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def restore(trainer: Trainer, checkpoint: Checkpoint) -> None:
        trainer.completed_steps = checkpoint.progress.step  # and nothing else

    begin(dataset, trained, folder / "cut", stop_after=3)
    begin(dataset, trained, folder / "whole")
    monkeypatch.setattr(opening, "restore", restore)
    begin(dataset, trained, folder / "cut")
    with pytest.raises(AssertionError):
        assert_same_end(folder / "cut", folder / "whole")


def test_killed_before_the_first_checkpoint(
    trained: Path, folder: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_: session.Session) -> None:
        raise KeyboardInterrupt

    start = changed(trained, folder / "base", lambda _: None)
    with monkeypatch.context() as patched:
        patched.setattr(session.Session, "fit", killed)
        with pytest.raises(KeyboardInterrupt):
            begin(dataset, start, folder / "cut")
    begin(dataset, start, folder / "whole")
    shutil.rmtree(start)
    begin(dataset, start, folder / "cut")
    assert_same_end(folder / "cut", folder / "whole")


def test_a_run_that_lost_its_checkpoints_does_not_start_over(trained: Path) -> None:
    fine_tune(trained)
    shutil.rmtree("runs/book/checkpoints")
    metadata = read_metadata(Path("runs/book/model.safetensors"))
    assert metadata["step"] != "0", "the test needs a better evaluation than the first"
    result = train("--init-from", trained, *QUICK)
    assert result.exit_code == 1
    assert "no checkpoint" in result.stderr


def test_another_pretrained_model_is_another_run(trained: Path, folder: Path) -> None:
    fine_tune(trained)
    other = changed(trained, folder / "other", lambda _: None)
    assert "init_from: base → other" in train("--init-from", other, *QUICK).stderr.replace("-", "_")
    assert train("--preset", "nano", "--n-layer", "1", *QUICK, "-o", "scratch").exit_code == 0
    result = train("--init-from", trained, *QUICK, "-o", "scratch")
    assert "init_from: unset → base" in result.stderr.replace("-", "_")


def test_the_stored_config_repeats_the_run(trained: Path, folder: Path) -> None:
    fine_tune(trained)
    again = ("-c", "runs/book/gptcli.toml", "-o", "again")
    assert "'runs/book/base'" in train(*again).stderr
    assert train(*again, "--init-from", trained).exit_code == 0
    assert_same_end(Path("runs/book"), Path("again"))

    def other_weights(place: Path) -> None:
        shutil.copy("again/model.safetensors", place / "model.safetensors")

    other = changed(trained, folder / "base", other_weights)
    refusal = train("-c", "runs/book/gptcli.toml", "-o", "third", "--init-from", other)
    assert refusal.exit_code == 1
    assert "init_sha256" in refusal.stderr


def test_metrics_begin_with_the_pretrained_model(trained: Path) -> None:
    fine_tune(trained)
    first, *rest = lines(Path("runs/book"))
    assert (first["step"], "val/loss" in first, "train/loss" in first) == (0, True, False)
    assert [line["step"] for line in rest] == sorted(line["step"] for line in rest)
    assert Path("runs/book/checkpoints/step-00000006").is_dir()


def test_pickled_weights_are_refused(folder: Path) -> None:
    (folder / "old").mkdir()
    (folder / "old" / "pytorch_model.bin").write_bytes(b"\x80\x02}q\x00.")
    assert "pickled" in refused("--init-from", folder / "old", code=1)


def test_resized_rows_and_positions(trained: Path) -> None:
    state = open_model(trained).model.state_dict()
    config = open_model(trained).model.config
    same = resize.resized(state, config)
    assert all(torch.equal(same[name], tensor) for name, tensor in state.items())
    with pytest.raises(AssertionError):
        resize.resized(state, config.model_copy(update={"block_size": 17}))
