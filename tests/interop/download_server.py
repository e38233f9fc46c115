"""A local stand-in for the Hugging Face Hub that serves downloads."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Repository:
    """The repository `owner/name`, a model and a dataset, with the files of a folder, and the requests for it."""

    url: str
    folder: Path
    downloaded: list[str] = field(default_factory=list)
    revisions: list[str] = field(default_factory=list)


def _entry(name: str, data: bytes) -> dict[str, Any]:
    oid = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    lfs = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
    return {"type": "file", "path": name, "size": len(data), "oid": oid} | (
        {"lfs": lfs} if name.endswith(".parquet") else {}
    )


@contextmanager
def download_server(folder: Path) -> Iterator[Repository]:
    """Serve `owner/name` with the revisions `main` and `v1`, `owner/gated`, and nothing else. Parquet is in LFS."""
    repository = Repository("", folder)

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._resolve(body=False)

        def do_GET(self) -> None:
            kind, _, asked = self.path.removeprefix("/api/").partition("/")
            if self.path.startswith("/api/") and kind in ("models", "datasets") and asked.startswith("owner/name"):
                self._api(asked)
            elif self.path.startswith("/api/"):
                gated = asked.startswith("owner/gated")
                code = "GatedRepo" if gated else "RepoNotFound"
                self._answer(403 if gated else 404, b"{}", {"X-Error-Code": code})
            else:
                self._resolve(body=True)

        def _api(self, asked: str) -> None:
            path, _, query = asked.removeprefix("owner/name").partition("?")
            rest = unquote(path).strip("/").split("/")
            revision = rest[1] if len(rest) > 1 else "main"
            if revision not in ("main", "v1", COMMIT):
                self._answer(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
                return
            if rest[0] != "tree":
                repository.revisions.append(revision)
                self._answer(200, json.dumps(self._info()).encode())
                return
            entries = self._tree("/".join(rest[2:]), is_recursive="recursive=true" in query.lower())
            if entries:
                self._answer(200, json.dumps(entries).encode())
            else:
                self._answer(404, b"{}", {"X-Error-Code": "EntryNotFound"})

        def _tree(self, below: str, *, is_recursive: bool) -> list[dict[str, Any]]:
            start = f"{below}/" if below else ""
            files = {name: data for name, data in self._files().items() if name.startswith(start)}
            folders = {
                str(folder)
                for name in files
                for folder in [*PurePosixPath(name).parents][:-1]
                if str(folder).startswith(start)
            }
            entries = [_entry(name, data) for name, data in files.items()]
            entries += [{"type": "directory", "path": folder, "oid": "0" * 40} for folder in sorted(folders)]
            depth = start.count("/")
            return [entry for entry in entries if is_recursive or entry["path"].count("/") == depth]

        def _info(self) -> dict[str, Any]:
            siblings = [{"rfilename": name} for name in self._files()]
            return {"id": "owner/name", "modelId": "owner/name", "sha": COMMIT, "siblings": siblings, "tags": []}

        def _files(self) -> dict[str, bytes]:
            paths = sorted(path for path in folder.rglob("*") if path.is_file())
            return {str(path.relative_to(folder)): path.read_bytes() for path in paths}

        def _resolve(self, *, body: bool) -> None:
            name = self.path.partition(f"/resolve/{COMMIT}/")[2]
            data = self._files().get(name)
            if data is None:
                self._answer(404, b"", {"X-Error-Code": "EntryNotFound"})
                return
            if body:
                repository.downloaded.append(name)
            etag = f'"{hashlib.sha1(data).hexdigest()}"'
            self._answer(200, data, {"ETag": etag, "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}, body=body)

        def _answer(
            self, status: int, data: bytes, headers: dict[str, str] | None = None, *, body: bool = True
        ) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if body:
                self.wfile.write(data)

        def log_message(self, *_arguments: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    repository.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield repository
    finally:
        server.shutdown()
        server.server_close()
