"""A local stand-in for the Hugging Face Hub that records uploads."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Hub:
    """The requests of clients."""

    url: str = ""
    token: str = "hf_test"
    """The only token that may write."""
    created: list[dict[str, Any]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    commits: int = 0


@contextmanager
def hub_server() -> Iterator[Hub]:
    """Serve on a free port of the loopback interface."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Authorization") != f"Bearer {hub.token}":
                self._answer(401, {"error": "Invalid username or password."})
            elif self.path == "/api/repos/create":
                hub.created.append(json.loads(body))
                self._answer(200, {"url": f"{hub.url}/me/book"})
            elif self.path.endswith("/preupload/main"):
                # Everything travels inside the commit, as small text files do on the real Hub.
                files = [{**file, "uploadMode": "regular", "shouldIgnore": False} for file in json.loads(body)["files"]]
                self._answer(200, {"files": files})
            elif self.path.endswith("/commit/main"):
                self._commit(body)
            else:
                self._answer(200, {"errors": [], "warnings": []})  # its check of the card

        def _commit(self, body: bytes) -> None:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    hub.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            hub.commits += 1
            self._answer(200, {"commitUrl": f"{hub.url}/me/book/commit/1", "commitOid": "1" * 40})

        def _answer(self, status: int, content: dict[str, Any]) -> None:
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_arguments: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
