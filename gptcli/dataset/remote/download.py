"""Downloading one file from the web: resumed where it broke off, checked against what its server said of it."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, NoReturn

from gptcli import storage
from gptcli.dataset.remote.addresses import shown
from gptcli.dataset.remote.cache import PLACE, Entry, read_entry, require_room, write_entry
from gptcli.dataset.sources import OnProgress
from gptcli.errors import CorpusError, counted, first_line

if TYPE_CHECKING:
    import httpx2

CONNECT_SECONDS = 20.0
STALL_SECONDS = 60.0
"""Time without a byte after which the connection is closed and a new one resumes."""
SLOWEST = 1 << 16
"""Bytes that must come in that time: a server that sends a byte now and then would hold a download for ever."""
PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds before each new attempt that follows one without progress."""
LONGEST_PAUSE = 120.0
"""A server that asks for a longer one is obeyed by giving up."""
PROGRESS = 1 << 20
"""An attempt that brings fewer bytes than this is one without progress."""
MAX_REDIRECTS = 5
TRY_AGAIN = (408, 429, 500, 502, 503, 504)
"""Statuses of servers that are busy or briefly out of order."""
AGAIN = "Run the same command again: it continues where the download stopped."

_PARTIAL, _HEAD = "partial", "partial.json"


class Head(Entry):
    """What a server said of a file, stored beside its beginning."""

    url: str
    """The last address of the redirects, without credentials and query."""
    total: int | None
    """Bytes of the whole file, where the server says it."""
    validator: str
    """The ETag or the date that shows whether the file is still the same; "" if the server gives none."""
    media_type: str
    coding: str
    """The compression that the server applies to every file, such as gzip; "" is none."""


@dataclass(frozen=True)
class Downloaded:
    """A whole file, still under its temporary name."""

    path: Path
    head: Head


class _TryAgain(Exception):  # noqa: N818 - not an error of the program
    """An attempt that failed in a way that may pass."""

    def __init__(self, reason: str, pause: float = 0.0) -> None:
        super().__init__(reason)
        self.pause = pause


def download(address: str, folder: Path, report: OnProgress, stage: str) -> Downloaded:
    """The file at a web address, stored in `folder`; what an earlier attempt left there is completed.

    Raises CorpusError for what no further attempt would change, and after five attempts in a row without progress.
    """
    one = _Download(address, folder, report, stage)
    failures, furthest = 0, one.size
    while True:
        try:
            with one.client() as client:
                return one.attempt(client)
        except _TryAgain as problem:
            if one.size >= furthest + PROGRESS:
                failures, furthest = 0, one.size
            if failures == len(PAUSES):
                raise CorpusError(f"'{shown(address)}' could not be downloaded: {problem}.", AGAIN) from None
            sleep(max(PAUSES[failures], problem.pause))
            failures += 1


class _Download:
    """The beginning of a file on the disk, and the requests for the rest."""

    def __init__(self, address: str, folder: Path, report: OnProgress, stage: str) -> None:
        self._address, self._report, self._stage = address, report, stage
        self._partial, self._head_file = folder / _PARTIAL, folder / _HEAD
        self._head = read_entry(self._head_file, Head)
        if not self._head or not self._partial.exists():
            self._drop()

    @property
    def size(self) -> int:
        """Bytes that are on the disk."""
        return self._partial.stat().st_size if self._partial.exists() else 0

    @contextmanager
    def client(self) -> Iterator[httpx2.Client]:
        """A client with time limits; errors of the connection become ours."""
        import httpx2

        limits = httpx2.Timeout(STALL_SECONDS, connect=CONNECT_SECONDS)
        begun = self.size
        try:
            with httpx2.Client(timeout=limits, follow_redirects=False, headers=_headers()) as client:
                yield client
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            if self.size == begun == 0:
                raise _unreachable(error, self._address) from None
            raise _TryAgain(f"the connection failed ({first_line(error)})") from None
        except httpx2.TimeoutException:
            raise _TryAgain(f"no data came for {STALL_SECONDS:g} seconds") from None
        except httpx2.UnsupportedProtocol:
            self._fail("it leads to an address that is neither https:// nor http://", "Check the address.")
        except httpx2.TransportError as error:
            raise _TryAgain(f"the connection broke off ({first_line(error)})") from None
        except httpx2.InvalidURL as error:
            self._fail(first_line(error), "Check the address.")

    def attempt(self, client: httpx2.Client) -> Downloaded:
        """One request for what is missing. Raises _TryAgain, and CorpusError where another attempt would not help."""
        if self._head and self._head.total == self.size:  # the process ended just before the file got its name
            return Downloaded(self._partial, self._head)
        if self._head and not self._head.validator:  # nothing would show that the rest belongs to this beginning
            self._drop()
        headers = {"Range": f"bytes={self.size}-", "If-Range": self._head.validator} if self._head else {}
        response = self._follow(client, client.build_request("GET", self._address, headers=headers))
        try:
            self._begin(response)
            assert self._head is not None, "the response has begun"
            self._receive(response, self._head)
        finally:
            response.close()
        return Downloaded(self._partial, self._head)

    def _follow(self, client: httpx2.Client, request: httpx2.Request) -> httpx2.Response:
        """The response at the end of the redirects."""
        response = client.send(request, stream=True)
        redirects = 0
        while response.next_request is not None:
            response.close()
            redirects += 1
            if redirects > MAX_REDIRECTS:
                self._fail(f"it leads through more than {MAX_REDIRECTS} other addresses", "Name the last one itself.")
            if response.url.scheme == "https" and response.next_request.url.scheme != "https":
                self._fail(
                    "it leads from https:// to http://, which is not secure", "Name another address of the text."
                )
            response = client.send(response.next_request, stream=True)
        return response

    def _begin(self, response: httpx2.Response) -> None:
        """Check the status, and prepare the file for the body of the response."""
        status = response.status_code
        if status == 206 and self._head:
            expected = (self.size, self._head.total)
            is_other = _validator(response) not in (self._head.validator, "")
            if is_other or _content_range(response) not in (expected, (self.size, None)):
                self._drop()
                raise _TryAgain("the server sent another part of the file than it was asked for")
        elif status == 200:
            self._drop()
            self._head = _head(response)
            with storage.disk_errors(self._partial, option=PLACE):
                self._partial.touch()
            write_entry(self._head_file, self._head)
        elif status == 416 and self._head:
            announced, whole = self._head.total, response.headers.get("Content-Range", "").partition("*/")[2]
            self._drop()
            raise _TryAgain(f"the server announced {announced} bytes, and now has {whole or 'fewer'}")
        else:
            self._refuse(response)
        if self._head and self._head.total is not None:
            require_room(self._partial.parent, self._head.total - self.size)

    def _receive(self, response: httpx2.Response, head: Head) -> None:
        """Add the body of the response to the file. Raises _TryAgain unless the file is then as long as announced."""
        size = self.size
        with storage.disk_errors(self._partial, option=PLACE), open(self._partial, "ab") as file:
            self._report(self._stage, size, head.total or 0)
            since, before = monotonic(), size
            for piece in response.iter_raw():
                file.write(piece)
                size += len(piece)
                self._report(self._stage, size, head.total or 0)
                if monotonic() - since >= STALL_SECONDS and size != head.total:
                    if size - before < SLOWEST:
                        raise _TryAgain(f"only {counted(size - before, 'byte')} came in {STALL_SECONDS:g} seconds")
                    since, before = monotonic(), size
        if head.total is not None and size != head.total:
            if size > head.total:
                self._drop()
            raise _TryAgain(f"the server announced {head.total:,} bytes and sent {size:,}")

    def _refuse(self, response: httpx2.Response) -> NoReturn:
        """Raise the error for a status without a file."""
        status = response.status_code
        if status in TRY_AGAIN:
            pause = _retry_after(response)
            if pause > LONGEST_PAUSE:
                self._fail(f"the server asks to wait for {pause:,.0f} seconds (status {status})", AGAIN)
            raise _TryAgain(f"the server is busy (status {status})", pause)
        if status in (401, 403, 407):
            hint = "Download it in a browser, where you can log in, and name the file."
            self._fail(f"its server does not let everybody read it (status {status})", hint)
        if status in (404, 410):
            raise CorpusError(f"There is nothing at '{shown(self._address)}' (status {status}).", "Check the address.")
        self._fail(f"its server answered with status {status}", "Check the address.")

    def _fail(self, reason: str, hint: str) -> NoReturn:
        raise CorpusError(f"'{shown(self._address)}' cannot be downloaded: {reason}.", hint)

    def _drop(self) -> None:
        """Forget what is on the disk."""
        self._head = None
        with storage.disk_errors(self._partial, option=PLACE):
            self._head_file.unlink(missing_ok=True)
            self._partial.unlink(missing_ok=True)


def _headers() -> dict[str, str]:
    from gptcli import __version__

    return {"User-Agent": f"gptcli/{__version__}", "Accept-Encoding": "identity"}


def _head(response: httpx2.Response) -> Head:
    headers = response.headers
    length = headers.get("Content-Length", "")
    return Head(
        url=shown(str(response.url)),
        total=int(length) if re.fullmatch("[0-9]{1,18}", length) else None,
        validator=_validator(response),
        media_type=headers.get("Content-Type", "").partition(";")[0].strip().lower(),
        coding=headers.get("Content-Encoding", "").strip().lower().replace("identity", ""),
    )


def _validator(response: httpx2.Response) -> str:
    """What `If-Range` may compare: a strong ETag, else the date of the last change."""
    tag = response.headers.get("ETag", "")
    return response.headers.get("Last-Modified", "") if not tag or tag.startswith("W/") else tag


def _content_range(response: httpx2.Response) -> tuple[int, int | None] | None:
    """The first byte and the size of the whole, as a partial response names them."""
    found = re.fullmatch(r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18}|\*)", response.headers.get("Content-Range", ""))
    return (int(found[1]), None if found[2] == "*" else int(found[2])) if found else None


def _retry_after(response: httpx2.Response) -> float:
    """Seconds that the server asks to wait, which it states as a number or as a date; 0 if it does not."""
    stated = response.headers.get("Retry-After", "").strip()
    if stated.isascii() and stated.isdecimal():
        return float(stated)
    try:
        then = parsedate_to_datetime(stated)
        return max(0.0, (then.replace(tzinfo=then.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return 0.0


def _unreachable(error: Exception, address: str) -> CorpusError:
    """The error for a server to which there is no connection."""
    host = re.sub(r"^\w+://", "", shown(address)).partition("/")[0]
    causes: list[BaseException] = [error]
    while cause := causes[-1].__cause__ or causes[-1].__context__:
        causes.append(cause)
    if any(isinstance(one, socket.gaierror) for one in causes):
        return CorpusError(f"The name of the server '{host}' cannot be found.", "Check the address and the network.")
    if any(isinstance(one, ssl.SSLError) for one in causes):
        message = f"There is no secure connection to the server '{host}': {first_line(error)}."
        return CorpusError(message, "Check the address, and the clock and the certificates of this machine.")
    reason = "it does not answer" if not str(error) or "timed out" in str(error) else first_line(error)
    return CorpusError(f"The server '{host}' cannot be reached: {reason}.", "Check the address and the network.")
