"""Resuming reads each file of the run folder at most once before the session begins to train or to evaluate."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gptcli import api
from gptcli.runs import opening, session
from gptcli.runs.events import Event, Note, Planned, Preparing, Resumed, StepMetrics
from tests.opens import opened_files
from tests.runs.small_runs import FLAGS

SETTINGS = {**FLAGS, "train.max_steps": 30}


class _Stopped(Exception):  # noqa: N818 - the test has seen enough
    pass


@pytest.fixture
def folder(tmp_path: Path, corpus: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with book.txt."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").write_text(corpus[:5000])
    return tmp_path


def stop_at(step: int) -> tuple[Callable[[Event], None], Callable[[], bool]]:
    """The two callbacks that stop a training after a step."""
    reached = [step == 0]

    def on_event(event: Event) -> None:
        reached[0] |= isinstance(event, StepMetrics) and event.step == step

    return on_event, lambda: reached[0]


def train(init_from: str | None = None, stop_after: int | None = None) -> None:
    settings = SETTINGS | ({"train.init_from": init_from, "train.patience": None} if init_from else {})
    on_event, should_stop = stop_at(-1 if stop_after is None else stop_after)
    options = {} if init_from else {"preset": "nano", "family": "gpt2"}
    api.train("book.txt", "run", settings=settings, on_event=on_event, should_stop=should_stop, **options)


def reads_on_resume(init_from: str | None = None) -> Counter[str]:
    """How often each file of the run folder is opened for reading until training continues."""
    settings = SETTINGS | ({"train.init_from": init_from, "train.patience": None} if init_from else {})
    options = {} if init_from else {"preset": "nano", "family": "gpt2"}
    reads = Counter[str]()

    def on_event(event: Event) -> None:
        if not isinstance(event, Preparing | Planned | Resumed | Note):
            run = Path("run").resolve()
            inside = [file.path for file in opened if file.is_read and file.path.is_relative_to(run)]
            reads.update(str(path.relative_to(run)) for path in inside)
            raise _Stopped

    with opened_files() as opened, pytest.raises(_Stopped):
        api.train("book.txt", "run", settings=settings, on_event=on_event, **options)
    return reads


def assert_once(reads: Counter[str]) -> None:
    assert [name for name, times in reads.items() if times > 1] == []


def check(steps: int, init_from: str | None = None) -> Counter[str]:
    train(init_from, stop_after=steps)
    reads = reads_on_resume(init_from)
    assert_once(reads)
    for name in ("gptcli.toml", "manifest.json", "tokenizer.json"):
        assert reads[name] == 1, "the test sees what is read"
    return reads


def test_a_run_that_was_stopped(folder: Path) -> None:
    reads = check(15)
    for name in ("model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"):
        assert reads[f"checkpoints/step-00000015/{name}"] == 1
        assert reads[f"checkpoints/step-00000010/{name}"] == 0
    assert reads["model.safetensors"] == 1
    assert reads["metrics.jsonl"] == 1


def test_a_run_with_a_damaged_checkpoint(folder: Path) -> None:
    train(stop_after=15)
    (folder / "run/checkpoints/step-00000015/optimizer.safetensors").write_bytes(b"half")
    reads = reads_on_resume()
    assert_once(reads)
    assert reads["checkpoints/step-00000010/model.safetensors"] == 1


@pytest.mark.parametrize("steps", [0, 9])
def test_a_run_without_a_checkpoint(folder: Path, steps: int) -> None:
    """As if it had been killed before its first checkpoint."""
    train(stop_after=steps)
    shutil.rmtree(folder / "run/checkpoints")
    (folder / "run/checkpoints").mkdir()
    card = folder / "run/README.md"
    card.write_text(card.read_text().replace(f"| steps | {steps} of", "| steps | 0 of"))
    reads = reads_on_resume()
    assert_once(reads)


@pytest.fixture
def base(folder: Path) -> Path:
    """A run to fine-tune."""
    api.train("book.txt", "base", settings={**FLAGS, "train.max_steps": 2}, preset="nano", family="gpt2")
    return folder / "base"


@pytest.mark.parametrize("steps", [0, 15])
def test_a_fine_tuned_run(base: Path, steps: int) -> None:
    """Its pretrained model is gone."""
    train(str(base), stop_after=steps)
    shutil.rmtree(base)
    reads = reads_on_resume(str(base))
    assert_once(reads)
    assert reads["tokenizer.json"] == reads[f"checkpoints/step-{steps:08}/model.safetensors"] == 1


def test_a_fine_tuned_run_that_was_killed_before_its_first_checkpoint(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_: session.Session) -> Iterator[Event]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(session.Session, "fit", killed)
        with pytest.raises(KeyboardInterrupt):
            train(str(base))
    reads = reads_on_resume(str(base))
    assert_once(reads)
    assert reads["model.safetensors"] == 1


def test_control_a_file_that_is_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = opening.refresh_weights_entry

    def twice(run: opening.StoredRun) -> None:
        plain(run)
        plain(run)

    monkeypatch.setattr(opening, "refresh_weights_entry", twice)
    with pytest.raises(AssertionError, match=r"model\.safetensors"):
        check(15)
