"""Texts at web addresses: downloaded once, in the right format, and read like files from then on."""

from __future__ import annotations

import gzip
import json
import threading
from pathlib import Path

import pytest

from gptcli.config import DataConfig, TokenizerConfig
from gptcli.dataset.preparing import find_or_prepare, tokenize
from gptcli.dataset.previewing import preview
from gptcli.dataset.remote.web import fetch_web
from gptcli.errors import CorpusError, GptcliError, UsageError
from tests.dataset.remote.web_server import Page, Web

TEXT = "A line of text, and another one.\n" * 40
ROWS = "".join(json.dumps({"text": f"Row {number} has some text."}) + "\n" for number in range(30))
HTML = "<!DOCTYPE html>\n<html><head><title>Log in</title></head><body><p>Please log in.</p></body></html>"


def silent(_stage: str, _done: int, _total: int) -> None:
    """No progress is shown."""


def refused(address: str) -> GptcliError:
    with pytest.raises(GptcliError) as caught:
        preview(address)
    return caught.value


def test_the_second_time_needs_no_network(web: Web, cache: Path) -> None:
    web.pages["/a.txt"] = Page(TEXT.encode(), "text/plain")
    address = f"{web.url}/a.txt"
    stages: list[tuple[str, int, int]] = []
    first = preview(address, on_progress=lambda *event: stages.append(event))
    assert ("downloading a.txt", len(TEXT), len(TEXT)) in stages
    assert first.characters == len(TEXT)
    assert "was downloaded" in first.notes[0]
    del web.pages["/a.txt"]
    again = preview(address)
    assert (again.beginnings, len(web.requests)) == (first.beginnings, 1)
    assert "from the cache" in again.notes[0]
    [folder] = cache.iterdir()
    assert str(folder) in again.notes[0]
    assert sorted(path.name for path in folder.iterdir()) == ["a.txt", "download.json", "partial.json"]


@pytest.mark.parametrize("damage", [b"other", b"X" * len(TEXT), None])
def test_a_damaged_copy_is_downloaded_again(web: Web, cache: Path, damage: bytes | None) -> None:
    web.pages["/a.txt"] = Page(TEXT.encode())
    preview(f"{web.url}/a.txt")
    [copy] = cache.glob("*/a.txt")
    copy.unlink()
    if damage:
        copy.write_bytes(damage)
    again = preview(f"{web.url}/a.txt")
    assert again.characters == len(TEXT)
    assert "damaged" in again.notes[0]


def test_an_empty_file_is_empty_each_time(web: Web, cache: Path) -> None:
    web.pages["/a.txt"] = Page(b"")
    for _ in range(2):
        assert "is empty" in refused(f"{web.url}/a.txt").message
        next(cache.glob("*/a.txt")).unlink()


@pytest.mark.parametrize("record", [b"", b"{}", b'{"format": 2}', b"[1, 2"])
def test_a_damaged_record_is_downloaded_again(web: Web, cache: Path, record: bytes) -> None:
    web.pages["/a.txt"] = Page(TEXT.encode())
    preview(f"{web.url}/a.txt")
    next(cache.glob("*/download.json")).write_bytes(record)
    preview(f"{web.url}/a.txt")
    assert len(web.requests) == 2


def test_a_record_names_no_file_elsewhere(web: Web, cache: Path, tmp_path: Path) -> None:
    web.pages["/a.txt"] = Page(TEXT.encode())
    preview(f"{web.url}/a.txt")
    (tmp_path / "elsewhere.txt").write_text(TEXT)
    record = next(cache.glob("*/download.json"))
    record.write_text(record.read_text().replace('"a.txt"', '"../../../../elsewhere.txt"'))
    assert "leads elsewhere" in preview(f"{web.url}/a.txt").notes[0]
    assert len(web.requests) == 2


FORMATS: dict[str, tuple[Page, str]] = {
    "/rows.jsonl": (Page(ROWS.encode()), "jsonl"),
    "/rows.jsonl.gz": (Page(gzip.compress(ROWS.encode())), "jsonl"),
    "/rows.jsonl?download=true": (Page(ROWS.encode()), "jsonl"),
    "/export": (Page(b"n,text\n1,one of them\n2,two of them\n", "text/csv; charset=utf-8"), "csv"),
    "/sniffed": (Page(ROWS.encode()), "jsonl"),
    "/get.php": (Page(ROWS.encode(), "text/plain"), "jsonl"),
    "/packed-rows": (Page(gzip.compress(ROWS.encode())), "jsonl"),
    "/packed": (Page(gzip.compress(TEXT.encode())), "text"),
    "/coded.txt": (Page(gzip.compress(TEXT.encode()), headers={"Content-Encoding": "gzip"}), "text"),
    "/coded.txt.gz": (Page(gzip.compress(TEXT.encode()), headers={"Content-Encoding": "gzip"}), "text"),
    "/page": (Page(HTML.encode(), "text/html"), "html"),
    "/page.html": (Page(HTML.encode(), "text/html"), "html"),
    "/about-html.txt": (Page(HTML.encode(), "text/plain"), "text"),
    "/plain": (Page(TEXT.encode(), "text/plain"), "text"),
    "/script.py": (Page(b"print('hello')\n" * 9), "text"),
}


@pytest.mark.parametrize("path", FORMATS)
def test_the_format_is_known_by_address_type_or_content(web: Web, path: str) -> None:
    page, kind = FORMATS[path]
    web.pages[path.partition("?")[0]] = page
    assert preview(f"{web.url}{path}").files == {kind: 1}


def test_the_last_address_of_redirects_names_the_format(web: Web) -> None:
    web.pages["/latest"] = Page(goes_to="/files/rows.jsonl")
    web.pages["/files/rows.jsonl"] = Page(ROWS.encode(), "text/plain")
    assert preview(f"{web.url}/latest").files == {"jsonl": 1}


@pytest.mark.parametrize("path", ["/rows.parquet", "/rows.jsonl", "/a.txt", "/a.txt.gz"])
def test_a_page_in_the_place_of_a_file(web: Web, cache: Path, path: str) -> None:
    web.pages[path] = Page(f"\n{HTML}".encode(), "text/html")
    error = refused(f"{web.url}{path}")
    assert isinstance(error, CorpusError)
    assert "web page in the place" in error.message
    assert "login" in error.hint
    web.pages[path] = Page(TEXT.encode(), "text/html")
    if path == "/a.txt":
        assert preview(f"{web.url}{path}").characters == len(TEXT), "the page was not kept"


def test_another_compression_than_ours(web: Web) -> None:
    web.pages["/a.txt"] = Page(TEXT.encode(), headers={"Content-Encoding": "br"})
    assert "'br'" in refused(f"{web.url}/a.txt").message


def test_a_stated_hash(web: Web) -> None:
    web.pages["/a.txt"] = Page(TEXT.encode())
    with pytest.raises(CorpusError, match="is not the text that it was"):
        fetch_web(f"{web.url}/a.txt", silent, "0" * 64)
    assert preview(f"{web.url}/a.txt").characters == len(TEXT)
    assert len(web.requests) == 2, "the wrong text was not kept"


def test_two_at_once_download_once(web: Web) -> None:
    """The lock is on an open folder, so that it keeps threads apart as it does processes."""
    web.pages["/a.txt"] = Page(TEXT.encode(), stalls_after=[10])
    waiting, results = threading.Event(), list[Path]()

    def fetch(on_progress: object = silent) -> None:
        results.append(fetch_web(f"{web.url}/a.txt", on_progress).files[0].path)  # type: ignore[arg-type]

    def first_progress(stage: str, done: int, _total: int) -> None:
        if stage.startswith("downloading") and done == 10 and not second.is_alive() and not waiting.is_set():
            second.start()
            assert waiting.wait(60)
            web.pages["/a.txt"].stalls_after.clear()
            raise ConnectionAbortedError

    def second_progress(stage: str, _done: int, _total: int) -> None:
        if stage == "waiting for another process":
            waiting.set()

    second = threading.Thread(target=fetch, args=(second_progress,))
    with pytest.raises(GptcliError):
        fetch(first_progress)
    second.join(60)
    assert [path.read_text() for path in results] == [TEXT]
    assert web.ranges() == ["", "bytes=10-"], "the second one continued what the first one had begun"


def test_a_dataset_of_an_address(web: Web, tmp_path: Path) -> None:
    """Names in the manifest have neither password nor query; the key is the same from the cache."""
    web.pages["/books/a.txt"] = Page(TEXT.encode())
    address = f"{web.url.replace('//', '//me:word@')}/books/a.txt?token=secret"

    def prepare() -> tuple[Path, bool]:
        made = find_or_prepare([address], [tmp_path / "data"], TokenizerConfig(), DataConfig())
        return made.dataset.path, made.reused

    path, reused = prepare()
    assert not reused
    assert path.name.startswith("a-")
    manifest = json.loads((path / "dataset.json").read_text())
    assert [source["name"] for source in manifest["sources"]] == [f"{web.url}/books/a.txt"]
    web.pages.clear()
    assert prepare() == (path, True)
    without_password = address.replace("me:word@", "")
    assert preview(without_password).characters == len(TEXT), "a password is no part of the place in the cache"


def test_addresses_among_files_and_twice(web: Web, tmp_path: Path) -> None:
    web.pages["/a.txt"] = Page(TEXT.encode())
    (tmp_path / "b.txt").write_text("Another text.\n" * 30)
    made = tokenize([f"{web.url}/a.txt", "b.txt"], "data/both")
    assert [source.name for source in made.dataset.sources] == [f"{web.url}/a.txt", "b.txt"]
    with pytest.raises(CorpusError, match="named twice"):
        preview([f"{web.url}/a.txt", f"{web.url}/a.txt"])


@pytest.mark.parametrize("address", ["ftp://example.com/a.txt", "file:///etc/hostname", "s3://bucket/a.txt"])
def test_other_schemes_are_refused(address: str) -> None:
    error = refused(address)
    assert isinstance(error, UsageError)
    assert address in error.message


def test_an_address_that_is_too_long_for_a_file_name(web: Web) -> None:
    web.pages["/a.txt"] = Page(TEXT.encode())
    assert tokenize(f"{web.url}/a.txt?signature={'x' * 5000}", "data/a").dataset.documents == 1
