"""Corpora by name: found, fetched from their stated source and nowhere else, and hidden by files of their names."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from gptcli.dataset import corpora
from gptcli.dataset.corpora import CORPORA, is_corpus
from gptcli.dataset.preparing import tokenize
from gptcli.dataset.previewing import preview
from gptcli.dataset.remote.addresses import HubPlace, hub_place
from gptcli.dataset.remote.fetched import Fetched, RemoteFile
from gptcli.errors import CorpusError
from gptcli.generation.prompt import read_prompt
from tests.dataset.remote.web_server import Page, web_server

TEXT = "A line of a play, and another one.\n" * 30


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def test_the_sources_are_pinned() -> None:
    for name, corpus in CORPORA.items():
        assert name == corpus.name
        assert corpus.licence
        if corpus.bytes is None:
            assert "://" not in corpus.source
        elif corpus.sha256:
            assert corpus.source.startswith("https://")
        else:
            place = hub_place(corpus.source)
            assert isinstance(place, HubPlace)
            assert len(place.revision or "") == 40, "a commit"


def test_a_corpus_is_downloaded_from_its_source_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    with web_server() as web:
        web.pages["/input.txt"] = Page(TEXT.encode())
        sha256 = hashlib.sha256(TEXT.encode()).hexdigest()
        corpus = replace(CORPORA["shakespeare"], source=f"{web.url}/input.txt", sha256=sha256)
        monkeypatch.setitem(corpora.CORPORA, "shakespeare", corpus)
        made = tokenize("shakespeare", "data/x").dataset
        assert [source.name for source in made.sources] == [f"{web.url}/input.txt"]
        notes = preview("shakespeare").notes
        assert "public domain" in notes[0]
        assert "from the cache" in notes[1]
        assert len(web.requests) == 1
        web.pages["/input.txt"] = Page(b"another text")
        monkeypatch.setitem(corpora.CORPORA, "shakespeare", replace(corpus, source=f"{web.url}/input.txt?2"))
        with pytest.raises(CorpusError, match="not the text that it was"):
            preview("shakespeare")


@pytest.mark.parametrize("name", ["tinystories", "fineweb-edu"])
def test_a_corpus_on_the_hub(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fetched(address: str, *_rest: object) -> Fetched:
        asked.append(address)
        (tmp_path / "a.txt").write_text(TEXT)
        return Fetched((RemoteFile(tmp_path / "a.txt", "a"),))

    monkeypatch.setattr(corpora, "fetch_hub", fetched)
    monkeypatch.setattr(corpora, "find_spec", lambda _name: object())
    assert CORPORA[name].licence in preview(name).notes[0]
    assert asked == [CORPORA[name].source]
    monkeypatch.setattr(corpora, "find_spec", lambda _name: None)
    with pytest.raises(CorpusError) as caught:
        preview(name)
    assert "gptcli[data]" in caught.value.hint
    assert len(asked) == 1, "nothing is downloaded that cannot be read"


def test_a_file_or_folder_of_that_name_wins(tmp_path: Path) -> None:
    (tmp_path / "shakespeare").write_text(TEXT)
    (tmp_path / "tinystories").mkdir()
    (tmp_path / "tinystories" / "a.txt").write_text(TEXT)
    assert not is_corpus("shakespeare")
    for name in ("shakespeare", "tinystories"):
        seen = preview(name)
        assert seen.characters == len(TEXT)
        assert f"'{name}'" in seen.notes[0]


def test_a_name_that_is_almost_one() -> None:
    with pytest.raises(CorpusError) as caught:
        preview("shakespear")
    assert "'shakespeare'" in caught.value.hint
    assert not is_corpus("./shakespeare")


def test_a_prompt_comes_from_files_alone() -> None:
    with pytest.raises(CorpusError, match="no file 'shakespeare'"):
        read_prompt("shakespeare")
