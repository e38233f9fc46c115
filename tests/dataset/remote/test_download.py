"""Downloading from a server that breaks off, stalls, lies, is busy, redirects or has nothing."""

from __future__ import annotations

import functools
import os
import shutil
import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import httpx2
import pytest

from gptcli.dataset.remote import download as module
from gptcli.dataset.remote.cache import require_room
from gptcli.dataset.remote.download import PAUSES, Downloaded, download
from gptcli.errors import CorpusError, GptcliError, StorageError
from tests.dataset.remote.web_server import Page, Web

BODY = b"".join(b"line %d\n" % number for number in range(50_000))
Progress = list[tuple[str, int, int]]


def fetched(web: Web, folder: Path, path: str = "/a.txt", progress: Progress | None = None) -> Downloaded:
    folder.mkdir(exist_ok=True)
    seen = [] if progress is None else progress
    return download(web.url + path, folder, lambda *event: seen.append(event), "downloading")


def refused(web: Web, folder: Path, path: str = "/a.txt") -> GptcliError:
    with pytest.raises(CorpusError) as caught:
        fetched(web, folder, path)
    return caught.value


def test_a_whole_file_with_its_progress(web: Web, tmp_path: Path) -> None:
    web.pages["/a.txt"] = Page(BODY, "text/plain; charset=utf-8")
    progress: Progress = []
    whole = fetched(web, tmp_path / "a", progress=progress)
    assert whole.path.read_bytes() == BODY
    assert (whole.head.total, whole.head.media_type, whole.head.coding) == (len(BODY), "text/plain", "")
    assert progress[0] == ("downloading", 0, len(BODY))
    assert progress[-1] == ("downloading", len(BODY), len(BODY))
    assert web.requests[0].headers["Accept-Encoding"] == "identity"
    assert web.requests[0].headers["User-Agent"].startswith("gptcli/")


@pytest.mark.parametrize(
    "headers", [{"ETag": '"first"'}, {"ETag": 'W/"weak"', "Last-Modified": "Sun, 01 Nov 2026 10:00:00 GMT"}]
)
def test_a_download_that_breaks_off_is_resumed(
    web: Web, tmp_path: Path, headers: dict[str, str], pauses: list[float]
) -> None:
    web.pages["/a.txt"] = Page(BODY, headers=headers, breaks_after=[1_000, 50_000])
    assert fetched(web, tmp_path / "a").path.read_bytes() == BODY
    assert web.ranges() == ["", "bytes=1000-", "bytes=51000-"]
    validators = {request.headers["If-Range"] for request in web.requests[1:]}
    assert validators == {headers.get("Last-Modified", '"first"')}
    assert pauses == [*PAUSES[:2]]


def test_a_later_process_resumes_what_an_earlier_one_left(web: Web, tmp_path: Path) -> None:
    web.pages["/a.txt"] = Page(BODY, breaks_after=[70_000] + [0] * len(PAUSES))
    assert "the same command again" in refused(web, tmp_path / "a").hint
    progress: Progress = []
    assert fetched(web, tmp_path / "a", progress=progress).path.read_bytes() == BODY
    assert progress[0][1:] == (70_000, len(BODY))
    assert web.ranges()[-1] == "bytes=70000-"


def test_a_process_that_ended_before_the_file_got_its_name_asks_for_nothing(web: Web, tmp_path: Path) -> None:
    web.pages["/a.txt"] = Page(BODY)
    fetched(web, tmp_path / "a")
    assert fetched(web, tmp_path / "a").path.read_bytes() == BODY
    assert len(web.requests) == 1


def test_a_file_that_changed_meanwhile_is_downloaded_from_its_beginning(web: Web, tmp_path: Path) -> None:
    web.pages["/a.txt"] = Page(BODY, breaks_after=[1_000] + [0] * len(PAUSES))
    refused(web, tmp_path / "a")
    web.pages["/a.txt"] = Page(BODY.upper(), headers={"ETag": '"second"'})
    assert fetched(web, tmp_path / "a").path.read_bytes() == BODY.upper()


def test_a_server_that_resumes_another_file_is_noticed(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some servers ignore `If-Range`."""
    web.pages["/a.txt"] = page = Page(BODY, breaks_after=[1_000] + [0] * len(PAUSES))
    refused(web, tmp_path / "a")
    other = httpx2.Headers({"ETag": '"second"', "Content-Range": f"bytes 1000-{len(BODY) - 1}/{len(BODY)}"})
    real = httpx2.Client.send
    monkeypatch.setattr(httpx2.Client, "send", functools.partialmethod(_altered, real, other))
    page.body, page.headers = BODY.upper(), {"ETag": '"first"'}
    assert fetched(web, tmp_path / "a").path.read_bytes() == BODY.upper()
    assert web.ranges()[-2:] == ["bytes=1000-", ""]


def _altered(client: httpx2.Client, real: object, headers: httpx2.Headers, *given: object, **options: object) -> object:
    response = real(client, *given, **options)  # type: ignore[operator]
    if response.status_code == 206:
        response.headers = headers
    return response


@pytest.mark.parametrize("page", [Page(BODY, takes_ranges=False), Page(BODY, headers={})])
def test_without_ranges_or_a_validator_a_download_starts_over(web: Web, tmp_path: Path, page: Page) -> None:
    web.pages["/a.txt"] = page
    page.breaks_after[:] = [1_000]
    assert fetched(web, tmp_path / "a").path.read_bytes() == BODY


def test_attempts_end_also_where_each_brings_the_same_bytes(web: Web, tmp_path: Path, pauses: list[float]) -> None:
    large = BODY * 10
    web.pages["/a.txt"] = Page(large, takes_ranges=False, breaks_after=[len(large) - 1] * 100)
    message = refused(web, tmp_path / "a").message
    assert "/a.txt" in message
    assert len(web.requests) == len(PAUSES) + 1
    assert pauses == [*PAUSES]


def test_attempts_that_make_progress_do_not_count(
    web: Web, tmp_path: Path, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PROGRESS", 1_000)
    web.pages["/a.txt"] = Page(BODY, breaks_after=[1_000] * 20)
    assert fetched(web, tmp_path / "a").path.read_bytes() == BODY
    assert pauses == [PAUSES[0]] * 20


def test_a_server_that_sends_a_byte_now_and_then(
    web: Web, tmp_path: Path, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STALL_SECONDS", 0.5)
    web.pages["/a.txt"] = page = Page(BODY, trickles=[0.02] * 100)
    message = refused(web, tmp_path / "a").message
    assert "came in 0.5 seconds" in message
    assert len(web.requests) == len(PAUSES) + 1
    assert web.ranges()[-1] not in ("", "bytes=0-"), "each attempt continues"
    page.trickles[:] = [0.02]
    assert fetched(web, tmp_path / "a").path.read_bytes() == BODY


def test_a_small_file_may_come_slowly(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STALL_SECONDS", 0.5)
    monkeypatch.setattr(module, "SLOWEST", 3)
    web.pages["/a.txt"] = Page(b"a" * 30, trickles=[0.05] * 100)
    assert fetched(web, tmp_path / "a").path.read_bytes() == b"a" * 30
    assert len(web.requests) == 1


def test_a_server_that_announces_too_much(web: Web, tmp_path: Path) -> None:
    web.pages["/a.txt"] = Page(BODY, announced=len(BODY) + 5)
    message = refused(web, tmp_path / "a").message
    assert "broke off" in message or f"announced {len(BODY) + 5} bytes, and now has {len(BODY)}" in message


def test_a_server_that_announces_too_little_gives_what_it_announced(web: Web, tmp_path: Path) -> None:
    """Whatever follows on the connection is no part of the file."""
    web.pages["/a.txt"] = Page(BODY, announced=100)
    assert fetched(web, tmp_path / "a").path.read_bytes() == BODY[:100]


def test_a_server_that_announces_nothing(web: Web, tmp_path: Path) -> None:
    web.pages["/a.txt"] = Page(BODY, announced=-1)
    progress: Progress = []
    assert fetched(web, tmp_path / "a", progress=progress).path.read_bytes() == BODY
    assert progress[-1][1:] == (len(BODY), 0)


def test_a_server_that_stalls(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STALL_SECONDS", 0.5)
    web.pages["/a.txt"] = Page(BODY, stalls_after=[1_000])
    assert fetched(web, tmp_path / "a").path.read_bytes() == BODY
    assert "bytes=1000-" in web.ranges()
    web.pages["/b.txt"] = Page(BODY, stalls_after=[0] * (len(PAUSES) + 1))
    assert "no data came for 0.5 seconds" in refused(web, tmp_path / "b", "/b.txt").message


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_obeyed(web: Web, tmp_path: Path, status: int, pauses: list[float]) -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    refusals = [
        (status, {"Retry-After": "7"}),
        (status, {}),
        (status, {"Retry-After": soon}),
        (status, {"Retry-After": "?"}),
    ]
    web.pages["/a.txt"] = Page(BODY, refusals=refusals)
    assert fetched(web, tmp_path / "a").path.read_bytes() == BODY
    assert pauses[:2] == [7.0, PAUSES[1]]
    assert PAUSES[2] < pauses[2] <= 90.0
    assert pauses[3] == PAUSES[3]


def test_a_server_that_stays_busy(web: Web, tmp_path: Path, pauses: list[float]) -> None:
    web.pages["/a.txt"] = Page(BODY, refusals=[(503, {})] * 100)
    assert "503" in refused(web, tmp_path / "a").message
    assert pauses == [*PAUSES]
    web.pages["/a.txt"].refusals[:] = [(429, {"Retry-After": "3600"})]
    assert "3,600 seconds" in refused(web, tmp_path / "a").message
    assert pauses == [*PAUSES], "nobody waits for an hour"


@pytest.mark.parametrize(
    ("status", "words"),
    [(404, "There is nothing at"), (410, "nothing"), (403, "everybody"), (401, "everybody"), (418, "418")],
)
def test_refusals_are_final(web: Web, tmp_path: Path, status: int, words: str, pauses: list[float]) -> None:
    web.pages["/a.txt"] = Page(BODY, refusals=[(status, {})])
    error = refused(web, tmp_path / "a")
    assert words in error.message
    assert f"{web.url}/a.txt" in error.message
    assert error.hint
    assert (len(web.requests), pauses) == (1, [])


def test_redirects(web: Web, tmp_path: Path) -> None:
    web.pages["/a.txt"] = Page(goes_to="/other/b.jsonl?key=secret")
    web.pages["/other/b.jsonl"] = Page(BODY, breaks_after=[1_000])
    whole = fetched(web, tmp_path / "a")
    assert whole.path.read_bytes() == BODY
    assert whole.head.url == f"{web.url}/other/b.jsonl"
    assert web.ranges() == ["", "", "bytes=1000-", "bytes=1000-"]
    web.pages["/a.txt"] = Page(goes_to="/a.txt")
    assert "more than 5" in refused(web, tmp_path / "b").message
    web.pages["/a.txt"] = Page(goes_to="ftp://example.invalid/a.txt")
    assert "neither https:// nor http://" in refused(web, tmp_path / "b").message


def test_no_redirect_leads_out_of_encryption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(str(request.url))
        return httpx2.Response(302, headers={"Location": "http://example.invalid/a.txt"})

    transport = httpx2.MockTransport(answer)
    monkeypatch.setattr(httpx2, "Client", functools.partial(httpx2.Client, transport=transport))
    with pytest.raises(CorpusError, match="from https:// to http://"):
        download("https://example.invalid/a.txt", tmp_path, lambda *_: None, "downloading")
    assert asked == ["https://example.invalid/a.txt"]


def test_servers_that_cannot_be_reached(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        assert (
            f"'127.0.0.1:{port}' cannot be reached" in refused(Web(f"http://127.0.0.1:{port}"), tmp_path / "a").message
        )
    secure = Web(web.url.replace("http://", "https://"))
    assert "no secure connection" in refused(secure, tmp_path / "b").message

    def unknown(*_arguments: object, **_options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert "'example.invalid' cannot be found" in refused(Web("http://me:word@example.invalid"), tmp_path / "c").message


def test_a_connection_that_fails_after_a_beginning_is_tried_again(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    web.pages["/a.txt"] = Page(BODY, breaks_after=[1_000])
    failures = []

    def sleep(seconds: float) -> None:
        """The network is gone after the first part, and comes back later."""
        pauses.append(seconds)
        failures.append(monkeypatch.setattr(socket, "create_connection", unreachable if len(pauses) < 3 else real))

    def unreachable(*_arguments: object, **_options: object) -> None:
        raise OSError(101, "Network is unreachable")

    real = socket.create_connection
    monkeypatch.setattr(module, "sleep", sleep)
    assert fetched(web, tmp_path / "a").path.read_bytes() == BODY
    assert len(failures) == 3


def test_a_password_is_sent_and_never_shown(web: Web, tmp_path: Path) -> None:
    web.pages["/a.txt"] = Page(BODY, refusals=[(403, {})])
    secret = Web(web.url.replace("http://", "http://me:word@"))
    error = refused(secret, tmp_path / "a", "/a.txt?token=abc")
    assert web.requests[0].headers["Authorization"].startswith("Basic ")
    assert not {"word", "abc"} & set(error.message.replace("'", "/").replace("?", "/").split("/"))
    fetched(secret, tmp_path / "a", "/a.txt?token=abc")
    stored = b"".join(path.read_bytes() for path in (tmp_path / "a").iterdir())
    assert b"word" not in stored
    assert b"abc" not in stored


def test_a_disk_without_room(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    web.pages["/a.txt"] = Page(BODY)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=1_000))
    with pytest.raises(StorageError, match=r"1 kB|1,000 B") as caught:
        fetched(web, tmp_path / "a")
    assert "XDG_CACHE_HOME" in caught.value.hint
    require_room(tmp_path / "not" / "there" / "yet", 1_000)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written(web: Web, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0o500)
    web.pages["/a.txt"] = Page(BODY)
    with pytest.raises(StorageError) as caught:
        fetched(web, tmp_path / "a")
    assert "XDG_CACHE_HOME" in caught.value.hint
