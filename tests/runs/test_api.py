"""`gptcli.train` and `gptcli.plan`, called from Python: events in order, nothing printed, no signal handlers."""

from __future__ import annotations

import shutil
import signal
from itertools import groupby
from pathlib import Path

import pytest

import gptcli
from gptcli.dataset import vocabulary
from gptcli.errors import ConfigError, GptcliError, StorageError
from gptcli.runs.events import CheckpointSaved, EvalMetrics, Event, Planned, Preparing, RunFinished, StepMetrics
from gptcli.storage import FolderLock
from tests.runs.small_runs import FLAGS


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, corpus: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder of its own, with book.txt in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").write_text(corpus[:3000])
    return tmp_path


def test_a_training_from_python(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    events: list[Event] = []
    handlers = [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)]

    def on_event(event: Event) -> None:
        events.append(event)
        assert [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM)] == handlers

    run = gptcli.train("book.txt", preset="nano", family="gpt2", settings=FLAGS, on_event=on_event)
    assert run.path == Path("runs/book")
    assert run.end is events[-1]
    assert (run.end.step, run.end.stopped) == (20, "max_steps")
    kinds = [kind for kind, _ in groupby(map(type, events))]
    assert kinds[:2] == [Preparing, Planned]
    assert kinds[-2:] == [CheckpointSaved, RunFinished]
    assert [event.step for event in events if isinstance(event, StepMetrics)] == [*range(1, 21)]
    assert [event.step for event in events if isinstance(event, EvalMetrics)] == [10, 20]
    assert capfd.readouterr() == ("", "")


def test_nested_and_dotted_settings_are_the_same(folder: Path) -> None:
    nested = {"train": {"max_steps": 7, "device": "cpu"}, "model.n_layer": 1}
    dotted = {"train.max_steps": 7, "train.device": "cpu", "model": {"n_layer": 1}}
    one, other = (gptcli.plan("book.txt", preset="nano", settings=settings) for settings in (nested, dotted))
    assert one.config == other.config
    assert (one.config.train.max_steps, one.config.model.n_layer) == (7, 1)


def test_a_stop_is_asked_for_and_resumed(folder: Path) -> None:
    seen: list[int] = []

    def on_event(event: Event) -> None:
        if isinstance(event, StepMetrics):
            seen.append(event.step)

    options = {"preset": "nano", "family": "gpt2", "settings": FLAGS, "on_event": on_event}
    first = gptcli.train("book.txt", "run", should_stop=lambda: len(seen) >= 7, **options)
    assert (first.end.stopped, first.end.step) == ("interrupted", 7)
    assert gptcli.train("book.txt", "run", resume="must", **options).end.step == 20
    assert seen == [*range(1, 21)]


def test_a_dataset_is_made_again_as_it_was_when_the_choice_of_a_tokenizer_has_changed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"preset": "nano", "family": "gpt2"}
    gptcli.train("book.txt", "run", settings=FLAGS | {"train.max_steps": 10}, **options)
    assert gptcli.load("run").tokenizer.kind == "char"
    shutil.rmtree("data")
    monkeypatch.setattr(vocabulary, "CHAR_BELOW_BYTES", 1000)
    assert gptcli.train("book.txt", "run", resume="must", settings=FLAGS, **options).end.step == 20
    shutil.rmtree("data")
    gptcli.train("book.txt", "other", settings=FLAGS, **options)
    assert gptcli.load("other").tokenizer.kind == "bpe", "control: the choice has changed"


def test_a_resumed_run_leaves_no_dataset_for_others(folder: Path) -> None:
    options = {"preset": "nano", "family": "gpt2"}
    sized = {"tokenizer.kind": "bpe", "tokenizer.vocab_size": 300}
    gptcli.train("book.txt", "run", settings=FLAGS | {"train.max_steps": 10} | sized, **options)
    datasets = set(Path("data").iterdir())
    assert gptcli.train("book.txt", "run", resume="must", settings=FLAGS, **options).end.step == 20
    gptcli.train("book.txt", "other", settings=FLAGS, **options)
    assert gptcli.load("other").tokenizer.kind == "char"
    for path in set(Path("data").iterdir()) - datasets:
        shutil.rmtree(path)
    assert gptcli.train("book.txt", "run", resume="must", settings=FLAGS, **options).end.step == 20


def test_a_plan_leaves_nothing_on_disk(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    made = gptcli.plan("book.txt", preset="nano", settings={"train.device": "cpu"})
    assert made.path == Path("runs/book")
    assert made.refusal is None
    assert made.memory > 0
    assert sorted(folder.rglob("*")) == before


def test_a_run_that_another_process_trains_is_refused_before_anything_is_said(folder: Path) -> None:
    options = {"preset": "nano", "family": "gpt2", "settings": FLAGS}
    gptcli.train("book.txt", "run", should_stop=lambda: True, **options)
    events: list[Event] = []
    with FolderLock(Path("run")):
        with pytest.raises(StorageError, match="Another process"):
            gptcli.train("book.txt", "run", on_event=events.append, **options)
        assert gptcli.plan("book.txt", "run", **options).refusal is None
    assert events == []
    assert gptcli.train("book.txt", "run", **options).end.step == 20


def test_the_notes_of_a_plan_name_the_run(folder: Path) -> None:
    options = {"preset": "nano", "family": "gpt2", "settings": FLAGS}
    stopped = gptcli.train("book.txt", should_stop=lambda: True, **options)
    for resume, name in (("never", "runs/book-2"), ("auto", "runs/book")):
        notes = [note for note in gptcli.plan("book.txt", resume=resume, **options).notes if f"'{name}'" in note]
        assert len(notes) == 1
    assert str(stopped.path) == "runs/book"


def test_an_error_in_a_callback_reaches_the_caller(folder: Path) -> None:
    """What was saved before it stays, and the lock is released although the error, as in a notebook, is kept."""

    def on_event(event: Event) -> None:
        if isinstance(event, StepMetrics) and event.step == 12:
            raise ZeroDivisionError

    options = {"preset": "nano", "family": "gpt2", "settings": FLAGS}
    with pytest.raises(ZeroDivisionError) as caught:
        gptcli.train("book.txt", on_event=on_event, **options)
    events: list[Event] = []
    assert gptcli.train("book.txt", on_event=events.append, **options).end.step == 20
    assert [event.step for event in events if isinstance(event, StepMetrics)] == [*range(11, 21)]
    del caught


@pytest.mark.parametrize(
    ("options", "error", "fact"),
    [
        ({"settings": {"optim.lr": 0}}, ConfigError, "optim.lr"),
        ({"settings": {"optim.rate": 1}}, ConfigError, "optim.rate"),
        ({"preset": "smal"}, GptcliError, "'small'"),
        ({"out": "book.txt"}, StorageError, "book.txt"),
    ],
)
def test_errors_are_raised(folder: Path, options: dict[str, object], error: type[GptcliError], fact: str) -> None:
    with pytest.raises(error) as caught:
        gptcli.train("book.txt", **options)  # type: ignore[arg-type]
    assert fact in f"{caught.value.message} {caught.value.hint}"
    assert sorted(path.name for path in folder.iterdir()) == ["book.txt"]
