"""`gptcli.review`: what it reads of runs, and that it changes nothing."""

from __future__ import annotations

import math
import os
import shutil
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest

import gptcli
from gptcli.errors import UsageError
from gptcli.generation.positions import MOST_DISTANCES, position_encoding
from gptcli.report import history
from gptcli.report.history import logged_bits_per_nat, read_history
from gptcli.report.review import Review
from gptcli.storage import FolderLock
from tests.model.reference import random_model, sinusoid
from tests.model.variants import variant
from tests.report.awkward_run import MARKUP, STEADY, awkward_run
from tests.runs import small_runs


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Do not change it: tests share it."""
    return awkward_run(tmp_path_factory.mktemp("review"))


@pytest.fixture(scope="module")
def reviewed(run: Path) -> Review:
    return gptcli.review(run)


def test_the_log_of_a_run(run: Path) -> None:
    history = read_history(run)
    logged = [line for line in small_runs.lines(run) if "train/loss" in line]
    assert [step.step for step in history.steps] == list(range(1, 21))
    assert [step.loss for step in history.steps] == [line["train/loss"] for line in logged]
    assert [step.tokens_per_second for step in history.steps] == [line["perf/tok_per_sec"] for line in logged]
    assert [one.step for one in history.evaluations] == [5, 10, 15, 20]
    assert {one.step: one.loss for one in history.evaluations} == small_runs.series(run, "val/loss")
    assert [sample.step for sample in history.samples] == [10, 20, 20]
    assert history.samples[-1].text == MARKUP


def test_resumes_are_known(run: Path) -> None:
    assert read_history(run).resumes == (10,)


def test_a_log_with_damage(run: Path, tmp_path: Path) -> None:
    lines = [
        *('{"step": 1, "seconds": 1, "train/loss": null, "train/lr": 0.1, "train/grad_norm": null}', "{", "[]", "7"),
        *('{"step": "x", "train/loss": 1}', '{"seconds": 1, "train/loss": 1}', '{"step": 3, "save_failed": true}'),
        *(
            '{"step": 2, "seconds": 2, "val/loss": 1.5}',
            '{"step": 2, "seconds": 2, "val/loss": null}',
            '{"step": 4, "tr',
        ),
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "events.out.tfevents.1.x.1.0").write_bytes(b"\x18no event")
    history = read_history(tmp_path)
    [step] = history.steps
    assert (step.step, step.loss, step.lr, step.grad_norm, step.tokens_per_second) == (1, None, 0.1, None, None)
    assert [(one.step, one.loss, one.bits_per_byte) for one in history.evaluations] == [(2, 1.5, None)]
    assert (history.samples, history.resumes) == ((), ())


def test_bits_per_nat_come_from_the_end_of_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its last sound evaluation, and without reading what a long training logged before."""
    evaluations = ['{"step": 2, "val/loss": 2.0, "val/bpb": 3.0}', '{"step": 4, "val/loss": 1.0, "val/bpb": 1.25}']
    log = [*evaluations, '{"step": 5, "train/loss": 1}', '{"step": 6, "val/loss": null, "val/bpb": 9}', '{"val/bpb": 1']
    (tmp_path / "metrics.jsonl").write_text("\n".join(log), encoding="utf-8")
    assert logged_bits_per_nat(tmp_path) == 1.25
    monkeypatch.setattr(history, "END_BYTES", len("\n".join(log[1:])) - 1)
    assert logged_bits_per_nat(tmp_path) is None


def test_inside_one_run(reviewed: Review) -> None:
    inside = reviewed.runs[0].inside
    assert inside is not None
    assert [sample.seed for sample in inside.samples] == [1, 2]
    assert all(len(sample.logprobs) == sample.tokens for sample in inside.samples)
    assert all(len(token.alternatives) == 5 for sample in inside.samples for token in sample.logprobs)
    assert inside.text == inside.samples[0].text
    assert "".join(token.text for token in inside.attention.tokens) == inside.text[: len(inside.attention.tokens)]
    assert len({near.token.text for near in inside.neighbors}) == len(inside.neighbors) > 2
    assert inside.positions.kind == "learned"
    assert inside.positions.values.shape == (16, 16)
    assert reviewed.differences == ()


def test_another_text(run: Path) -> None:
    inside = gptcli.review(run, text="<b>").runs[0].inside
    assert inside is not None
    assert [token.text for token in inside.attention.tokens] == ["<", "b", ">"]


def test_a_run_in_training_is_only_read(run: Path) -> None:
    def content() -> dict[str, tuple[int, int]]:
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in run.rglob("*")}

    before = content()
    with FolderLock(run):
        assert gptcli.review(run).runs[0].history.steps
    assert content() == before


def test_several_runs(run: Path, tmp_path: Path) -> None:
    text = tmp_path / "text"
    other = tmp_path / "other"
    small_runs.run(small_runs.small_dataset(text, "the cat sat on the mat\n" * 200), other, STEADY | {"optim.lr": 0.02})
    both = gptcli.review(run, other)
    assert [one.inside for one in both.runs] == [None, None]
    different = {setting.key: setting.values for setting in both.differences}
    assert different["optim.lr"] == (0.01, 0.02)
    assert different["train.eval_every"] == (5, 10)
    names = [one.run.data_fingerprint[:8] for one in both.runs]
    assert different["data"] == tuple(f"data ({name})" for name in names)
    assert "model.n_embd" not in different


def test_a_run_without_weights(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "run"
    shutil.copytree(run, path)
    shutil.rmtree(path / "checkpoints")
    os.unlink(path / "model.safetensors")
    [one] = gptcli.review(path).runs
    assert one.inside is None
    assert len(one.history.steps) == 20
    assert any("model" in note for note in one.notes)


def test_the_newest_run(run: Path, tmp_path: Path) -> None:
    with chdir(tmp_path), pytest.raises(UsageError, match="no run"):
        gptcli.review()
    shutil.copytree(run, tmp_path / "runs/one")
    with chdir(tmp_path):
        assert gptcli.review().runs[0].run.name == "one"


def test_refusals(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run folder"):
        gptcli.review(tmp_path)
    with pytest.raises(UsageError, match="single run"):
        gptcli.review(run, run, text="ab")
    with pytest.raises(UsageError, match="9 runs"):
        gptcli.review(*[run] * 9)
    with pytest.raises(UsageError, match="two tokens"):
        gptcli.review(run, text="a")


@pytest.mark.parametrize("kind", ["learned", "sinusoidal", "rope"])
def test_positions_are_alike_by_their_distance(kind: str) -> None:
    model = random_model(variant("gpt2", position=kind))
    encoding = position_encoding(model)
    T, width = 12, 2 if kind == "rope" else 16
    assert encoding.values.shape == (T, width)
    assert encoding.similarity[0] == pytest.approx(1)
    if kind == "rope":  # heads are 4 wide, base 10,000
        expected = [(math.cos(d) + math.cos(d / 100)) / 2 for d in range(T)]
        np.testing.assert_allclose(encoding.similarity, expected, atol=1e-12)
    elif kind == "sinusoidal":
        assert encoding.values[3, 5] == pytest.approx(sinusoid(3, 5, 16))
        # sin a sin b + cos a cos b = cos(a - b): a function of the distance alone
        expected = [np.mean([math.cos(d / 10_000 ** (i / 8)) for i in range(8)]) for d in range(T)]
        np.testing.assert_allclose(encoding.similarity, expected, atol=1e-12)
    else:
        rows = model.wpe.weight.numpy()
        cosines = [rows[t] @ rows[t + 2] / np.linalg.norm(rows[t]) / np.linalg.norm(rows[t + 2]) for t in range(T - 2)]
        assert encoding.similarity[2] == pytest.approx(np.mean(cosines))


@pytest.mark.parametrize("kind", ["sinusoidal", "rope"])
def test_a_long_context_window_is_compared_in_part(kind: str) -> None:
    encoding = position_encoding(random_model(variant("gpt2", position=kind, block_size=3000)))
    assert len(encoding.values) == 3000
    assert len(encoding.similarity) == MOST_DISTANCES
