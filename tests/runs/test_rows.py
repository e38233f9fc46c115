"""Training on rows and with settings that say how text is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import gptcli
from gptcli.errors import UsageError
from tests.runs.small_runs import FLAGS
from tests.tokenizer.text_samples import LESSON

SHORT = FLAGS | {"train.max_steps": 4, "train.eval_every": 2, "train.save_every": 2}


def test_a_run_resumes_with_the_settings_by_which_it_read_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = tmp_path / "texts"
    texts.mkdir()
    rows = [{"title": f"Title {number}", "body": LESSON, "summary": "short"} for number in range(20)]
    (texts / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (texts / "old.txt").write_text("never read", encoding="utf-8")
    stated: dict[str, Any] = {"data.text_field": "body", "data.include": ["*.jsonl"], "data.val_fraction": 0.2}
    first = gptcli.train("texts", "runs/a", preset="nano", family="gpt2", settings=SHORT | stated)
    assert first.end.step == 4
    same: dict[str, Any] = {"preset": "nano", "family": "gpt2"}
    more = SHORT | {"train.max_steps": 6}
    resumed = gptcli.train("texts", "runs/a", settings=more, **same)
    assert resumed.end.step == 6, "nothing about the text was stated again"
    config = gptcli.plan("texts", "runs/a", settings=more, **same).config
    assert (config.data.text_field, config.data.include, config.data.val_fraction) == ("body", ("*.jsonl",), 0.2)
    with pytest.raises(UsageError, match="body → title"):
        gptcli.plan("texts", "runs/a", settings=more | {"data.text_field": "title"}, **same)


def test_a_run_of_an_earlier_version_reads_what_it_read_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its config names the patterns that were the default."""
    monkeypatch.chdir(tmp_path)
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "a.txt").write_text(LESSON * 4, encoding="utf-8")
    (texts / "later.rst").write_text(LESSON, encoding="utf-8")
    then = {"data.include": ["*.txt", "*.md"]}
    gptcli.train("texts", "runs/a", preset="nano", family="gpt2", settings=SHORT | then)
    assert 'include = ["*.txt", "*.md"]' in (tmp_path / "runs/a/gptcli.toml").read_text(encoding="utf-8")
    more = SHORT | {"train.max_steps": 6}
    assert gptcli.train("texts", "runs/a", preset="nano", family="gpt2", settings=more).end.step == 6
