"""Files on the Hub as text: from a stand-in for the Hub, then from the cache, at the same commit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from gptcli.dataset.preparing import tokenize
from gptcli.dataset.previewing import preview
from gptcli.errors import CorpusError, UsageError
from tests.interop.download_server import COMMIT, Repository, download_server

FILES = {
    "README.md": "# A dataset card\n",
    ".gitattributes": "*.parquet filter=lfs\n",
    "data/en/a.jsonl": '{"text": "The first row of the first file."}\n',
    "data/en/b.jsonl": '{"text": "The first row of the second file."}\n',
    "data/de/a.jsonl": '{"text": "Die erste Zeile."}\n',
    "data/top.jsonl": '{"text": "A row at the top."}\n',
    "notes/about.txt": "A text about the data.\n",
    "notes/picture.png": "no text",
    "node_modules/x.txt": "not wanted\n",
}
LARGE = "rows.parquet"
ALL = {"data/de/a.jsonl", "data/en/a.jsonl", "data/en/b.jsonl", "data/top.jsonl", "notes/about.txt"}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    folder = tmp_path / "repository"
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    with download_server(folder) as repository:
        monkeypatch.setattr(constants, "ENDPOINT", repository.url)
        template = repository.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        yield repository


def names_of(address: str, **settings: object) -> set[str]:
    """The paths in the repository of the files that an address gives."""
    made = tokenize(
        address, "data/made", settings={f"data.{key}": value for key, value in settings.items()}, force=True
    )
    return {source.name.removeprefix("hf://datasets/owner/name/") for source in made.dataset.sources}


@pytest.mark.parametrize(
    ("address", "names"),
    [
        ("hf://datasets/owner/name", ALL),
        ("hf://datasets/owner/name/", ALL),
        ("hf://datasets/owner/name@main", ALL),
        ("hf://datasets/owner/name@v1/data", {name for name in ALL if name.startswith("data/")}),
        ("hf://datasets/owner/name/**/*.jsonl", {name for name in ALL if name.endswith(".jsonl")}),
        ("hf://datasets/owner/name/data/**/*.jsonl", {name for name in ALL if name.startswith("data/")}),
        ("hf://datasets/owner/name/data/*.jsonl", {"data/top.jsonl"}),
        ("hf://datasets/owner/name/data/*/a.jsonl", {"data/de/a.jsonl", "data/en/a.jsonl"}),
        ("hf://datasets/owner/name/data/en/[ab].jsonl", {"data/en/a.jsonl", "data/en/b.jsonl"}),
        ("hf://datasets/owner/name/notes/about.txt", {"notes/about.txt"}),
        ("hf://datasets/owner/name/README.md", {"README.md"}),
    ],
)
def test_what_an_address_gives(hub: Repository, address: str, names: set[str]) -> None:
    assert names_of(address) == names
    assert set(hub.downloaded) == names, "nothing else is downloaded"


def test_a_folder_obeys_include_and_exclude(hub: Repository) -> None:
    assert names_of("hf://datasets/owner/name", include=["*.jsonl"], exclude=["de"]) == {
        "data/en/a.jsonl", "data/en/b.jsonl", "data/top.jsonl",
    }  # fmt: skip
    assert names_of("hf://datasets/owner/name", include=["about.*"]) == {"notes/about.txt"}


def test_what_a_folder_does_not_give_is_listed(hub: Repository) -> None:
    skipped = {one.name: one.reason for one in preview("hf://datasets/owner/name").skipped}
    assert skipped == {
        "README.md": "dataset card", ".gitattributes": "hidden", "notes/picture.png": ".png",
        "node_modules/x.txt": "vendored",
    }  # fmt: skip


def test_the_second_time_needs_no_network(hub: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    stages: list[tuple[str, int, int]] = []
    first = preview("hf://datasets/owner/name@main/data", on_progress=lambda *event: stages.append(event))
    size = sum(len(content) for name, content in FILES.items() if name.startswith("data/"))
    assert ("downloading owner/name", size, size) in stages
    assert COMMIT[:8] in first.notes[0]
    (hub.folder / "data/new.jsonl").write_text('{"text": "It came later."}\n')
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    again = preview("hf://datasets/owner/name@main/data")
    assert (again.beginnings, again.documents) == (first.beginnings, 4)
    assert "from the cache" in again.notes[0]


def test_the_hashes_of_the_hub_are_checked(hub: Repository, tmp_path: Path) -> None:
    """Those of git for small files, and sha256 for those in LFS."""
    pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": ["A row in LFS.", "Another."]}), hub.folder / LARGE)
    for name in (LARGE, "notes/about.txt"):
        address = f"hf://datasets/owner/name/{name}"
        before = preview(address)
        cached = next((tmp_path / "hf").rglob(f"snapshots/*/{name}"))
        cached.resolve().write_bytes(bytes(cached.stat().st_size))
        assert preview(address).beginnings == before.beginnings
        assert hub.downloaded.count(name) == 2
    original = (hub.folder / LARGE).read_bytes()
    next((tmp_path / "hf").rglob(f"snapshots/*/{LARGE}")).resolve().write_bytes(bytes(len(original)))
    (hub.folder / LARGE).write_bytes(bytes(len(original)))
    with pytest.raises(CorpusError, match="damaged on the way"):
        preview(f"hf://datasets/owner/name/{LARGE}")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("hf://datasets/owner/other", "'hf://datasets/owner/other' does not exist or is private"),
        ("hf://datasets/owner/gated/*.jsonl", "must be granted by its owner"),
        ("hf://datasets/owner/name@v7/data", "no revision 'v7'"),
        ("hf://datasets/owner/name/missing.txt", "no file at"),
        ("hf://datasets/owner/name/missing/*.txt", "'hf://datasets/owner/name/missing/*.txt'"),
        ("hf://datasets/owner/name/data/*.txt", "no file at"),
        ("hf://datasets/owner/name/data/../README.md", "not an address"),
    ],
)
def test_failures(hub: Repository, address: str, words: str) -> None:
    with pytest.raises((CorpusError, UsageError)) as caught:
        preview(address)
    assert words in caught.value.message
    assert caught.value.hint
    assert hub.downloaded == []


def test_a_revision_that_is_missing_can_be_left_out(hub: Repository) -> None:
    with pytest.raises(CorpusError) as caught:
        preview("hf://datasets/owner/name@v7/data")
    assert "hf://datasets/owner/name/data" in caught.value.hint


@pytest.mark.parametrize(("offline", "words"), [(True, "HF_HUB_OFFLINE is set"), (False, "the Hub cannot be reached")])
def test_without_a_network(hub: Repository, monkeypatch: pytest.MonkeyPatch, offline: bool, words: str) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    with pytest.raises(CorpusError, match=words):
        preview("hf://datasets/owner/name/data")


def test_a_commit_is_read_as_it_is(hub: Repository) -> None:
    preview(f"hf://datasets/owner/name@{COMMIT}/notes")
    assert hub.revisions == [], "the commit is known"


def test_a_model_is_no_text(hub: Repository) -> None:
    with pytest.raises(UsageError, match="a model, not of text"):
        preview("hf://owner/name")


def test_a_manifest_names_the_files(hub: Repository) -> None:
    made = tokenize("hf://datasets/owner/name@v1/data/en", "data/made")
    manifest = json.loads((made.dataset.path / "dataset.json").read_text())
    assert [source["name"] for source in manifest["sources"]] == [
        "hf://datasets/owner/name/data/en/a.jsonl",
        "hf://datasets/owner/name/data/en/b.jsonl",
    ]
