"""A local web server that can do to a download what servers on the web do: break off, stall, lie, redirect, be busy."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Page:
    """A file on the server, and what happens to the requests for it, one after another."""

    body: bytes = b""
    media_type: str = "application/octet-stream"
    headers: dict[str, str] = field(default_factory=lambda: {"ETag": '"first"'})
    takes_ranges: bool = True
    refusals: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """Statuses with headers, answered to the first requests instead of the file."""
    breaks_after: list[int] = field(default_factory=list)
    """Bytes that the next answers send before the connection is closed."""
    stalls_after: list[int] = field(default_factory=list)
    """Bytes that the next answers send before they wait."""
    trickles: list[float] = field(default_factory=list)
    """Seconds between the single bytes of the next answers."""
    announced: int | None = None
    """The length that the server states; None is the right one, -1 none at all."""
    goes_to: str = ""
    """The address that every request is redirected to."""


@dataclass
class Request:
    path: str
    headers: Mapping[str, str]


@dataclass
class Web:
    url: str
    pages: dict[str, Page] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)

    def ranges(self) -> list[str]:
        """The `Range` of each request, "" without one."""
        return [request.headers.get("Range", "") for request in self.requests]


@contextmanager
def web_server() -> Iterator[Web]:
    """Serve `Web.pages` by their paths; everything else is missing."""
    web, ended = Web(""), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            web.requests.append(Request(self.path, dict(self.headers)))
            page = web.pages.get(self.path.partition("?")[0])
            if page is None:
                self._answer(404, {}, b"nothing here")
            elif page.refusals:
                status, headers = page.refusals.pop(0)
                self._answer(status, headers, b"not now")
            elif page.goes_to:
                self._answer(302, {"Location": page.goes_to}, b"")
            else:
                self._send(page)

        def _send(self, page: Page) -> None:
            begin = self._begin(page)
            if begin > len(page.body) or (begin == len(page.body) and page.body):
                self._answer(416, {"Content-Range": f"bytes */{len(page.body)}"}, b"")
                return
            body = page.body[begin:]
            self.send_response(206 if begin else 200)
            for name, value in (page.headers | {"Content-Type": page.media_type}).items():
                self.send_header(name, value)
            if begin:
                self.send_header("Content-Range", f"bytes {begin}-{len(page.body) - 1}/{len(page.body)}")
            if page.announced != -1:
                length = len(page.body) if page.announced is None else page.announced
                self.send_header("Content-Length", str(length - begin))
            self.end_headers()
            self._write(page, body)

        def _begin(self, page: Page) -> int:
            """The first byte that is asked for, if the file is still what the client knows."""
            stated = self.headers.get("Range", "").removeprefix("bytes=").removesuffix("-")
            if not stated or not page.takes_ranges:
                return 0
            known = (page.headers.get("ETag"), page.headers.get("Last-Modified"))
            return int(stated) if self.headers.get("If-Range") in known else 0

        def _write(self, page: Page, body: bytes) -> None:
            self.close_connection = True
            if page.breaks_after:
                self.wfile.write(body[: page.breaks_after.pop(0)])
            elif page.stalls_after:
                self.wfile.write(body[: page.stalls_after.pop(0)])
                self.wfile.flush()
                ended.wait(60)
            elif page.trickles:
                pause = page.trickles.pop(0)
                for byte in body:
                    self.wfile.write(bytes([byte]))
                    if ended.wait(pause):
                        return
            else:
                self.wfile.write(body)

        def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: Any) -> None:
            """Log nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_arguments: Any) -> None:
            """A client that closes its connection is no error."""

    server = Server(("127.0.0.1", 0), Handler)
    web.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield web
    finally:
        ended.set()
        server.shutdown()
        server.server_close()
