"""The bytes that readers report add up to the size of the file, packed or not: the progress bar ends with the file."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from gptcli.dataset.readers import read_documents
from gptcli.dataset.sources import Source
from tests.dataset.formats.test_recognizing import CONTENT

NAMES = {"whatsapp": "a.txt", "telegram": "a.json", "discord": "a.json", "text": "a.txt"}


@pytest.mark.parametrize("kind", CONTENT)
@pytest.mark.parametrize("packed", [False, True])
def test_reported_bytes(tmp_path: Path, kind: str, packed: bool) -> None:
    if kind in ("html", "pdf", "telegram", "discord"):
        pytest.importorskip({"html": "lxml", "pdf": "pypdf"}.get(kind, "ijson"))
    content = CONTENT[kind][0]
    if kind in ("html", "eml"):  # long, so that it is read in pieces
        letters = random.Random(1).choices("abcdefghij klmno\n", k=500_000)
        content += "".join(letters).encode()
    path = tmp_path / (NAMES.get(kind, f"a.{kind}") + (".gz" if packed else ""))
    path.write_bytes(gzip.compress(content) if packed else content)
    reported: list[int] = []
    for document in read_documents(Source(path, path.name, f"'{path}'"), reported.append):
        for _ in document:
            pass
    assert sum(reported) == path.stat().st_size
