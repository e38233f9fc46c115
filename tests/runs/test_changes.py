"""Resuming with other data or settings: the message names what differs, and its hint works as given."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import gptcli
from gptcli.dataset import preparation
from gptcli.errors import UsageError
from tests.runs.small_runs import FLAGS

SHORT = FLAGS | {"train.max_steps": 2}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, corpus: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").write_text(corpus[:3000])
    gptcli.train("book.txt", preset="nano", settings=SHORT)
    return tmp_path


def refused(data: object, settings: dict[str, object] | None = None, **options: object) -> UsageError:
    with pytest.raises(UsageError) as caught:
        gptcli.plan(data, "runs/book", settings=SHORT | (settings or {}), **{"preset": "nano"} | options)
    return caught.value


def test_text_with_new_characters(folder: Path) -> None:
    text = (folder / "book.txt").read_text()
    (folder / "book.txt").write_text(text + "ξ…")
    error = refused("book.txt")
    assert "'book.txt' has changed" in error.message
    hint = error.hint.partition(";")[0]
    assert "`train.init_from = runs/book` `out = runs/book-2` `unknown = skip`" in hint
    settings = SHORT | {"train.init_from": "runs/book"}
    run = gptcli.train("book.txt", "runs/book-2", settings=settings, unknown="skip")
    assert run.end.step == 2


def test_text_without_new_characters(folder: Path) -> None:
    (folder / "book.txt").write_text((folder / "book.txt").read_text()[:-300])
    error = refused("book.txt")
    assert "`train.init_from = runs/book`" in error.hint
    assert "unknown" not in error.hint


@pytest.mark.parametrize("changed", [lambda text: f"{text}More.", str.swapcase])
def test_a_text_that_changed_is_refused_before_it_is_encoded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, changed: Callable[[str], str]
) -> None:
    stated = {"tokenizer.kind": "bpe", "tokenizer.vocab_size": 300}
    gptcli.train("book.txt", "runs/bpe", preset="nano", settings=SHORT | stated)
    (folder / "book.txt").write_text(changed((folder / "book.txt").read_text()))
    monkeypatch.setattr(preparation, "make_tokenizer", None)
    monkeypatch.setattr(preparation, "write_dataset", None)
    with pytest.raises(UsageError) as caught:
        gptcli.plan("book.txt", "runs/bpe", preset="nano", settings=SHORT | stated)
    assert "'book.txt' has changed" in caught.value.message
    assert "`train.init_from = runs/bpe` `out = runs/bpe-2`;" in caught.value.hint


def test_a_file_that_changed_may_hold_the_same_text(folder: Path) -> None:
    text = (folder / "book.txt").read_bytes()
    (folder / "packed.txt.gz").write_bytes(gzip.compress(text, mtime=1))
    gptcli.train("packed.txt.gz", "runs/packed", preset="nano", settings=SHORT)
    (folder / "packed.txt.gz").write_bytes(gzip.compress(text, mtime=2))
    gptcli.plan("packed.txt.gz", "runs/packed", preset="nano", settings=SHORT)


def test_a_run_without_its_dataset_is_refused_after_encoding(folder: Path) -> None:
    shutil.rmtree(folder / "data")
    (folder / "book.txt").write_text((folder / "book.txt").read_text()[:-300])
    assert "'book' has changed" in refused("book.txt").message


def test_the_same_text_split_in_another_way(folder: Path) -> None:
    error = refused("book.txt", {"data.val_fraction": 0.2})
    assert "`data.val_fraction`: unset → 0.2" in error.message
    assert "has changed" not in error.message
    stated: dict[str, object] = {"data.val_fraction": 0.2, "data.include": ["*.txt"], "data.encoding": "latin-1"}
    gptcli.train("book.txt", "runs/fifth", preset="nano", settings=SHORT | stated)
    assert gptcli.plan("book.txt", "runs/fifth", preset="nano", settings=SHORT).finished
    (folder / "book.txt").write_text((folder / "book.txt").read_text() + "More.")
    with pytest.raises(UsageError, match="has changed"):
        gptcli.plan("book.txt", "runs/fifth", preset="nano", settings=SHORT | stated)


def test_more_texts_than_before(folder: Path) -> None:
    (folder / "b.txt").write_text((folder / "book.txt").read_text()[300:])
    assert "on other texts: without 'b.txt'" in refused(["book.txt", "b.txt"]).message
    gptcli.train(["book.txt", "b.txt"], "runs/two", preset="nano", settings=SHORT)
    with pytest.raises(UsageError) as caught:
        gptcli.plan("book.txt", "runs/two", preset="nano", settings=SHORT)
    assert "on other texts: with 'b.txt'" in caught.value.message
    assert "Give the same texts" in caught.value.hint


def test_another_text(folder: Path) -> None:
    (folder / "other.txt").write_text((folder / "book.txt").read_text()[300:])
    assert "trained on 'book', not on 'other'" in refused("other.txt").message


def test_a_text_of_the_same_name_in_another_folder(folder: Path) -> None:
    (folder / "other").mkdir()
    (folder / "other/book.txt").write_text((folder / "book.txt").read_text()[300:])
    with pytest.raises(UsageError) as caught:
        gptcli.plan("other/book.txt", settings=SHORT, preset="nano")
    assert "another text of the same name" in caught.value.message
    assert caught.value.hint.endswith("to start over, use `out = runs/book-2`.")
    for _ in range(2):  # the second time it resumes
        assert gptcli.train("other/book.txt", "runs/book-2", settings=SHORT, preset="nano").path == Path("runs/book-2")
    assert "same name" not in refused("other/book.txt").message, "the run was named"


def test_another_tokenizer(folder: Path) -> None:
    error = refused("book.txt", {"tokenizer.kind": "bpe"})
    assert "another tokenizer" in error.message
    assert "has changed" not in error.message
    assert "Leave `tokenizer.kind` out" in error.hint


def test_a_tokenizer_need_not_be_stated_again(folder: Path) -> None:
    stated = {"tokenizer.kind": "bpe", "tokenizer.vocab_size": 300}
    gptcli.train("book.txt", "runs/bpe", preset="nano", settings=SHORT | stated)
    assert gptcli.plan("book.txt", "runs/bpe", preset="nano", settings=SHORT).begin == 2
    assert gptcli.plan("book.txt", "runs/bpe", preset="nano", settings=SHORT | stated).begin == 2
    with pytest.raises(UsageError):
        gptcli.plan("book.txt", "runs/bpe", preset="nano", settings=SHORT | {"tokenizer.vocab_size": 310})


def test_settings_that_were_stated_stand_for_those_that_follow() -> None:
    error = refused("book.txt", preset="gpt2")
    assert "(`preset`: nano → gpt2; and " in error.message
    assert "settings that follow)" in error.message
    error = refused("book.txt", {"train.batch_size": 2, "model.n_embd": 96, "train.init_from": "book"})
    for part in ("`train.batch_size`: ", " → 2", "`model.n_embd`: ", " → 96", "`train.init_from`: unset → book"):
        assert part in error.message
