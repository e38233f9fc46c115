"""A request becomes a plan: a run starts, resumes, or is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from gptcli.checkpoints.run_folder import read_run
from gptcli.config import load_config_file
from gptcli.config.values import nest
from gptcli.dataset.folder import Dataset
from gptcli.errors import CorpusError, DeviceError, ModelFolderError, OutOfMemoryError, StorageError, UsageError, size
from gptcli.model import devices
from gptcli.model.memory import training_memory
from gptcli.runs import completion, fitting, followers
from gptcli.runs.decision import NewRun, Resume, decide, training_device
from gptcli.runs.host_copy import copied_bytes
from gptcli.runs.plan import Plan, plan_for
from gptcli.runs.request import Request, new_request
from gptcli.training.trainer import Trainer
from tests.runs.small_runs import CPU, carry_out, plan, request, run, small_dataset


@pytest.fixture
def stopped(dataset: Dataset, tmp_path: Path) -> Path:
    """A run that was stopped after five of its twenty updates."""
    run(dataset, tmp_path / "run", stop_after=5)
    return tmp_path / "run"


def test_an_empty_list_of_texts_is_refused() -> None:
    with pytest.raises(UsageError, match="no text to train on"):
        new_request([])


def note(made: Plan, beginning: str) -> str:
    """The only note that begins so."""
    (found,) = [note for note in made.notes if note.startswith(beginning)]
    return found


def device_of(asked: Request) -> tuple[torch.device, str]:
    """The device on which a request trains, and the note about it."""
    return training_device(asked, decide(asked))


def test_a_new_run(dataset: Dataset, tmp_path: Path) -> None:
    made = plan(dataset, tmp_path / "run")
    assert isinstance(made.decision, NewRun)
    assert made.path == tmp_path / "run"
    assert made.checkpoint is None
    assert not (tmp_path / "run").exists(), "planning writes nothing"
    (tmp_path / "run").mkdir()
    assert isinstance(plan(dataset, tmp_path / "run").decision, NewRun), "an empty folder is as good as none"


def test_the_notes_tell_the_defaults(dataset: Dataset, tmp_path: Path) -> None:
    asked = Request(out=tmp_path / "run", flags=nest({"train.max_steps": 9}))
    made = plan_for(asked, decide(asked), dataset, CPU)
    assert made.config.preset == "tiny"
    assert "the default on a CPU" in note(made, "Model: tiny ")
    assert "because" in note(made, "Dtype: ")
    assert made.config.train.micro_batch_size
    assert made.config.train.dtype


def test_the_same_again_resumes(dataset: Dataset, stopped: Path) -> None:
    made = plan(dataset, stopped)
    assert isinstance(made.decision, Resume)
    assert made.checkpoint is not None
    assert made.begin == made.checkpoint.progress.step == 5
    assert "at step 5" in note(made, f"Resuming '{stopped}'")
    assert made.config == read_run(stopped).config


CHANGEABLE = {
    "train.max_steps": 30, "train.epochs": 3.0, "train.max_time": 60.0, "train.patience": 7,
    "train.eval_every": 3, "train.save_every": 3, "train.sample_every": 3, "train.log_every": 3,
    "train.keep_checkpoints": 5, "train.eval_tokens": 99, "train.device": "auto", "train.compile": "auto",
    "train.micro_batch_size": 2,
}  # fmt: skip


@pytest.mark.parametrize("key", CHANGEABLE)
def test_budgets_rhythms_and_machine_may_change(dataset: Dataset, stopped: Path, key: str) -> None:
    made = plan(dataset, stopped, {key: CHANGEABLE[key]})
    assert made.checkpoint is not None
    section, name = key.split(".")
    assert getattr(getattr(made.config, section), name) == CHANGEABLE[key]
    run(dataset, stopped, {key: CHANGEABLE[key]}, stop_after=1)
    assert read_run(stopped).config == made.config


FIXED = {
    "model.n_layer": 2, "model.n_head": 4, "model.n_embd": 32, "model.block_size": 8, "model.dropout": 0.2,
    "optim.lr": 0.02, "optim.schedule": "cosine", "optim.beta2": 0.95, "train.batch_size": 8, "train.seed": 5,
    "train.dtype": "bfloat16", "train.deterministic": True,
}  # fmt: skip


@pytest.mark.parametrize("key", FIXED)
def test_nothing_else_may_change(dataset: Dataset, stopped: Path, key: str) -> None:
    with pytest.raises(UsageError, match=re.escape(key)) as caught:
        plan(dataset, stopped, {key: FIXED[key]})
    assert caught.value.exit_code == 2
    assert str(FIXED[key]).replace("True", "true") in caught.value.message
    assert "`resume = never`" in caught.value.hint
    assert "run-2" in caught.value.hint


def test_all_changed_settings_are_named_at_once(dataset: Dataset, stopped: Path) -> None:
    with pytest.raises(UsageError) as caught:
        plan(dataset, stopped, FIXED)
    assert all(f"`{key}`: " in caught.value.message for key in FIXED)


def test_another_text_is_another_run(dataset: Dataset, stopped: Path, corpus: str, tmp_path: Path) -> None:
    other = small_dataset(tmp_path / "other", corpus[:4999] + ("a" if corpus[4999] != "a" else "e"))
    with pytest.raises(UsageError, match="other data") as caught:
        plan(other, stopped)
    assert "`train.init_from" in caught.value.hint, "its model can learn from the new text"
    assert str(stopped) in caught.value.hint
    assert "`resume = never`" in caught.value.hint


def test_resume_never_takes_the_next_free_name(dataset: Dataset, stopped: Path) -> None:
    assert plan(dataset, stopped, resume="never").path.name == "run-2"
    run(dataset, stopped, resume="never", stop_after=1)
    made = plan(dataset, stopped, resume="never")
    assert made.path.name == "run-3"
    assert isinstance(made.decision, NewRun)
    assert plan(dataset, stopped.with_name("fresh"), resume="never").path.name == "fresh"


def test_resume_must_requires_a_run(dataset: Dataset, stopped: Path) -> None:
    assert plan(dataset, stopped, resume="must").checkpoint is not None
    with pytest.raises(UsageError, match=r"no run .* to resume"):
        plan(dataset, stopped.with_name("other"), resume="must")


def test_finished(dataset: Dataset, tmp_path: Path) -> None:
    run(dataset, tmp_path / "run", {"train.max_steps": 10})
    for steps in (10, 7):  # fewer than it has done change nothing: no budget or schedule is mentioned
        (only,) = plan(dataset, tmp_path / "run", {"train.max_steps": steps}).notes
        assert "10 steps" in only
        assert "`train.max_steps = 20`" in only
        assert "`resume = never`" in only


def test_more_steps_move_the_schedule_and_a_note_says_so(dataset: Dataset, tmp_path: Path) -> None:
    """Linear, no warm-up: at the last of 10 steps a tenth of the peak is left, at step 10 of 40 three quarters."""
    flags = {"train.max_steps": 10, "optim.warmup_steps": 0, "optim.schedule": "linear"}
    run(dataset, tmp_path / "run", flags)
    made = plan(dataset, tmp_path / "run", flags | {"train.max_steps": 40})
    told = note(made, "The schedule ")
    assert all(figure in told for figure in ("40 steps", " 10:", "0.0075", "0.001."))


def test_what_the_request_leaves_open_is_taken_from_the_run(dataset: Dataset, tmp_path: Path) -> None:
    stored = {"train.dtype": "bfloat16", "train.micro_batch_size": 2, "train.epochs": 0.1, "train.max_steps": None}
    run(dataset, tmp_path / "run", stored, stop_after=2)
    silent = dict.fromkeys([*stored, "train.eval_every", "train.save_every", "train.log_every"])
    made = plan(dataset, tmp_path / "run", silent, preset=None)
    assert made.checkpoint is not None
    assert made.config == read_run(tmp_path / "run").config
    assert made.config.train.max_steps == 7


def test_stated_steps_replace_stored_epochs(dataset: Dataset, tmp_path: Path) -> None:
    """Otherwise the stored file would contradict itself, and `-c gptcli.toml` would not repeat the run."""
    run(dataset, tmp_path / "run", {"train.epochs": 0.1, "train.max_steps": None}, stop_after=2)
    run(dataset, tmp_path / "run", {"train.max_steps": 9})
    stored = read_run(tmp_path / "run").config
    assert (stored.train.epochs, stored.train.max_steps) == (None, 9)
    file = load_config_file(tmp_path / "run/gptcli.toml")
    asked = Request(file=file, out=tmp_path / "again")
    assert plan_for(asked, decide(asked), dataset, CPU).config == stored


@pytest.mark.parametrize(("dtype", "in_tf32"), [("float32", True), ("float32", False), ("bfloat16", True)])
def test_products_in_tf32_are_noted_where_they_are(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, in_tf32: bool
) -> None:
    monkeypatch.setattr(completion, "trains_in_tf32", lambda device, deterministic: in_tf32)
    noted = note(plan(dataset, tmp_path / "run", {"train.dtype": dtype}), "Dtype: ")
    assert ("TF32" in noted) is (in_tf32 and dtype == "float32")


def test_a_gpu_that_auto_leaves_out_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(devices, "_gpu_problem", lambda device: "No kernels.")
    device, told = device_of(request({"train.device": None}, out=tmp_path / "run"))
    assert device == CPU
    assert "No kernels." in told


def test_a_run_stays_on_its_device_unless_another_is_stated(
    dataset: Dataset, stopped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run began on the CPU of a machine with a GPU; later it moves to a machine that lacks its device."""
    silent = request({"train.device": None}, out=stopped)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(devices, "_gpu_problem", lambda device: "")
    assert device_of(request({"train.device": None}, out=stopped.with_name("new"))) == (torch.device("cuda"), "")
    assert device_of(silent) == (CPU, "")
    stated = request({"train.device": "cuda:0"}, out=stopped)
    assert device_of(stated) == (torch.device("cuda:0"), "")
    assert device_of(request({"train.device": "auto"}, out=stopped)) == (torch.device("cuda"), "")
    assert plan(dataset, stopped, {"train.device": None}).config.train.device == "cpu"
    run(dataset, stopped, {"train.device": "cuda:0"}, stop_after=0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    device, told = device_of(silent)
    assert device == CPU
    assert "'cuda:0'" in told
    assert "'cpu'" in told
    with pytest.raises(DeviceError):
        device_of(stated)


def test_auto_chooses_again_what_a_run_has_stored(dataset: Dataset, stopped: Path) -> None:
    """Without it the stored number stays, which may be too much for a machine with less memory."""
    assert plan(dataset, stopped, {"train.micro_batch_size": 2}).config.train.micro_batch_size == 2
    run(dataset, stopped, {"train.micro_batch_size": 2}, stop_after=1)
    assert plan(dataset, stopped, {"train.micro_batch_size": None}).config.train.micro_batch_size == 2
    assert plan(dataset, stopped, {"train.micro_batch_size": "auto"}).config.train.micro_batch_size == 4
    assert plan(dataset, stopped, {"train.device": "auto"}).config.train.device == "auto"


def test_memory_is_estimated_before_the_pace_is_measured(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory that the measured model took is no part of what training takes."""
    process, free = 10**9, 8 * 10**9

    def measured(*arguments: object) -> int:
        nonlocal process, free
        process, free = 5 * 10**9, 4 * 10**9
        return 10

    monkeypatch.setattr(fitting, "process_memory", lambda *device, **trains: process)
    monkeypatch.setattr(followers, "free_memory", lambda device: free)
    monkeypatch.setattr(completion, "steps_within", measured)
    made = plan(dataset, tmp_path / "run", {"train.max_steps": None, "train.max_time": 60.0})
    assert process > 10**9
    assert 1.0 < made.memory / 1e9 < 1.5
    assert f"Memory: about {size(made.memory)}; 8 GB are free." in made.notes


def test_no_checkpoint_yet(dataset: Dataset, tmp_path: Path) -> None:
    run(dataset, tmp_path / "run", stop_after=0)
    made = plan(dataset, tmp_path / "run")
    assert made.checkpoint is None
    assert isinstance(made.decision, Resume)
    assert any("no checkpoint yet" in note for note in made.notes)


def test_damaged_checkpoints_are_no_reason_to_start_again(dataset: Dataset, stopped: Path) -> None:
    (stopped / "checkpoints/step-00000005/model.safetensors").write_bytes(b"")
    with pytest.raises(ModelFolderError, match=r"No checkpoint .*model\.safetensors"):
        plan(dataset, stopped)


@pytest.mark.parametrize("name", ["gptcli.toml", "tokenizer.json", "config.json", "manifest.json"])
def test_an_altered_run_is_refused(dataset: Dataset, stopped: Path, name: str) -> None:
    content = (stopped / name).read_text()
    (stopped / name).write_text(content[: len(content) // 2])
    with pytest.raises(ModelFolderError, match=re.escape(name)):
        plan(dataset, stopped)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_anything_but_a_run_is_left_alone(dataset: Dataset, tmp_path: Path, kind: str) -> None:
    place = tmp_path / "thesis"
    content = place if kind == "file" else place / "chapter.txt"
    content.parent.mkdir(exist_ok=True)
    content.write_text("mine")
    for resume in ("auto", "never", "must"):
        with pytest.raises(StorageError, match="not a run"):
            plan(dataset, place, resume=resume)
    assert content.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [place]


def test_the_working_folder_is_refused_before_any_text_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StorageError, match=re.escape("'.'")):
        decide(request(out=Path(), data=("missing.txt",)))


def test_a_name_that_is_too_long(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="too long"):
        plan(dataset, tmp_path / ("x" * 300))


@pytest.mark.parametrize("length", [2, 9, 16, 17, 18, 40])
def test_a_text_shorter_than_the_context(tmp_path: Path, corpus: str, length: int) -> None:
    """Both counts are named, and the context window in the hint works."""
    short = small_dataset(tmp_path, corpus[: 2 * length], val_fraction=0.5)
    tokens = short.train.tokens
    assert tokens == length
    if tokens > 16:
        run(short, tmp_path / "run", {"train.max_steps": 2})
        return
    with pytest.raises(CorpusError, match=rf"\b{tokens} tokens.* 16 ") as caught:
        plan(short, tmp_path / "run")
    largest = int(re.search(r"`model.block_size = (\d+)`", caught.value.hint)[1])  # type: ignore[index]
    run(short, tmp_path / "run", {"model.block_size": largest, "train.max_steps": 2})
    with pytest.raises(CorpusError):
        plan(short, tmp_path / "other", {"model.block_size": largest + 1})


@pytest.mark.parametrize(("text", "fraction"), [("ab", 0.5), ("abcdefghij", None)])
def test_a_text_of_a_few_characters(tmp_path: Path, text: str, fraction: float | None) -> None:
    with pytest.raises(CorpusError) as caught:
        plan(small_dataset(tmp_path, text, fraction), tmp_path / "run", {"model.block_size": 1})
    assert "more text" in caught.value.hint
    assert "-1" not in caught.value.hint


def test_memory_is_refused_before_anything_is_written(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room for two sequences, four are refused; the hint names two, which a request that is silent gets."""
    model = plan(dataset, tmp_path / "run").config.model
    room = training_memory(model, 2, torch.float32, "cpu", 0).needed
    monkeypatch.setattr(followers, "free_memory", lambda device: room)
    with pytest.raises(OutOfMemoryError, match=r"needs about .* MB.* free") as caught:
        run(dataset, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    size = int(re.search(r"`train.micro_batch_size = (\d+)`", caught.value.hint)[1])  # type: ignore[index]
    assert size == 2
    assert plan(dataset, tmp_path / "run", {"train.micro_batch_size": size}).config.train.micro_batch_size == 2
    assert plan(dataset, tmp_path / "run", {"train.micro_batch_size": None}).config.train.micro_batch_size == 2
    monkeypatch.setattr(followers, "free_memory", lambda device: 1000)
    for stated in (None, 1):
        with pytest.raises(OutOfMemoryError, match="needs about") as caught:
            plan(dataset, tmp_path / "run", {"train.micro_batch_size": stated})
        assert "micro_batch_size" not in caught.value.hint


def test_a_micro_batch_is_never_larger_than_the_batch(dataset: Dataset, tmp_path: Path) -> None:
    assert plan(dataset, tmp_path / "run", {"train.micro_batch_size": 64}).config.train.micro_batch_size == 4


def test_a_note_tells_the_passes_over_the_text(dataset: Dataset, tmp_path: Path) -> None:
    told = note(plan(dataset, tmp_path / "run", {"train.max_steps": 140}), "Budget: ")
    assert all(figure in told for figure in ("140 steps", "4 × 16 tokens", " 2.0 times"))
    assert "memorize" not in told
    told = note(plan(dataset, tmp_path / "run", {"train.max_steps": 140_000}), "Budget: ")
    assert " 2,000.0 times" in told
    assert "memorize" in told


def test_a_note_counts_one_layer_and_one_head(dataset: Dataset, tmp_path: Path) -> None:
    shape = {"model.n_layer": 1, "model.n_head": 1}
    assert any("1 layer, 1 head," in note for note in plan(dataset, tmp_path / "run", shape).notes)


def test_a_note_tells_the_experts(dataset: Dataset, tmp_path: Path) -> None:
    told = note(plan(dataset, tmp_path / "run", {"model.n_expert": 4, "model.block_size": 1024}), "Model: ")
    assert all(figure in told for figure in ("4 experts", "2 per token", "1,024"))


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_plan_counts_the_copy_from_which_checkpoints_are_written(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimizer: str
) -> None:
    made = plan(dataset, tmp_path / "run", {"optim.optimizer": optimizer})
    assert made.copy == 0
    assert not [note for note in made.notes if note.startswith("Saving:")]
    monkeypatch.setattr("gptcli.runs.plan.DIRECT_BYTES", 0)
    made = plan(dataset, tmp_path / "run", {"optim.optimizer": optimizer})
    trainer = Trainer(made.config, dataset, CPU)
    trainer.step()
    state = trainer.state()
    assert made.copy == pytest.approx(copied_bytes(state.model) + copied_bytes(state.optimizer), rel=0.1)
    assert size(made.copy) in note(made, "Saving: ")


@pytest.mark.parametrize(
    ("settings", "rate"),
    [
        ({"optim.optimizer": "adamw"}, 4e-3),
        ({"optim.optimizer": "muon"}, 8e-3),
        ({"optim.optimizer": "adamw", "optim.lr": 1e-3}, 1e-3),
        ({}, 8e-3),
    ],
)
def test_another_optimizer_has_another_rate(
    dataset: Dataset, tmp_path: Path, settings: dict[str, object], rate: float
) -> None:
    """Muon's best rate is twice that of AdamW, and `tiny` states Muon's."""
    asked = new_request(dataset.path, out=tmp_path / "run", preset="tiny", settings={"train.max_steps": 2} | settings)
    assert plan_for(asked, decide(asked), dataset, CPU).config.optim.lr == pytest.approx(rate)
    shorter = new_request(
        dataset.path, out=tmp_path / "run", preset="tiny", settings={"train.max_steps": 1, **SMALLER} | settings
    )
    list(carry_out(plan_for(shorter, decide(shorter), dataset, CPU)))
    resumed = plan_for(shorter, decide(shorter), dataset, CPU)
    assert isinstance(resumed.decision, Resume)
    assert resumed.config.optim.lr == pytest.approx(rate)


SMALLER = {"model.n_layer": 1, "model.n_embd": 16, "model.block_size": 16, "train.batch_size": 2}
