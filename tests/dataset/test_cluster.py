"""Encoding on a Ray cluster: the same files as without one, also when a worker is lost; errors before anything is read.

Ray is no part of the development tools (240 MB, and tens of seconds to start): with it, `pip install -e '.[ray]'`, all
of these tests run.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from gptcli.dataset.preparing import tokenize
from gptcli.errors import ClusterError, MissingPackageError, UsageError
from gptcli.tokenizer import processes
from gptcli.tokenizer.bpe import train_bpe
from gptcli.tokenizer.bytelevel import Tokenizer
from tests.tokenizer.text_samples import LESSON


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    lines = "".join(f"{LESSON} {number} new{number}word don't\n" for number in range(3000))
    path.write_text(lines, encoding="utf-8", newline="")
    return path


def workers() -> Iterator[int]:
    """The workers of Ray that this process has started and that encode."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            if folder.joinpath("cmdline").read_bytes().startswith(b"ray::_encode_batch") and is_ours(int(folder.name)):
                yield int(folder.name)


def is_ours(process: int) -> bool:
    while process > 1:
        if process == os.getpid():
            return True
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
@pytest.mark.filterwarnings("default")
def test_the_files_are_the_same_although_a_worker_is_killed(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    (tmp_path / "tokenizer.json").write_text(train_bpe([LESSON], 300).to_json(), encoding="utf-8")
    monkeypatch.setattr(processes, "_BATCH_CHARACTERS", 50_000)
    encoded_here, ours = [], Tokenizer.encode_texts

    def here(self: Tokenizer, texts: Iterable[str]) -> Iterator[np.ndarray]:
        encoded_here.append(texts)
        return ours(self, texts)

    killed: list[int] = []

    def kill_one(stage: str, done: int, total: int) -> None:
        if stage == "encoding" and done > total / 3 and not killed:
            for process in workers():
                os.kill(process, signal.SIGKILL)
                killed.append(process)
                return

    handler = signal.getsignal(signal.SIGTERM)
    tokenize(text, tmp_path / "alone", tokenizer=tmp_path / "tokenizer.json")
    monkeypatch.setattr(Tokenizer, "encode_texts", here)
    tokenize(text, tmp_path / "cluster", tokenizer=tmp_path / "tokenizer.json", ray="local", on_progress=kill_one)
    assert killed
    assert not encoded_here, "Ray encodes a batch again whose worker was lost"
    assert signal.getsignal(signal.SIGTERM) is handler
    shards = sorted(file.name for file in (tmp_path / "alone").glob("*.npy"))
    assert shards == sorted(file.name for file in (tmp_path / "cluster").glob("*.npy"))
    for name in [*shards, "tokenizer.json"]:
        assert (tmp_path / "cluster" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
    manifests = [(tmp_path / name / "dataset.json").read_text(encoding="utf-8") for name in ("alone", "cluster")]
    assert manifests[1].replace('"cluster"', '"alone"') == manifests[0]


def test_an_address_without_a_cluster(text: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]  # closed again when the command asks
    with pytest.raises(ClusterError, match=f"127.0.0.1:{port}") as caught:
        tokenize(text, tmp_path / "out", ray=f"127.0.0.1:{port}")
    assert "ray start --head" in caught.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]


@pytest.mark.parametrize("address", ["cluster", "10.0.0.1", "http://10.0.0.1:80", "a:b"])
def test_an_address_of_another_form(text: Path, tmp_path: Path, address: str) -> None:
    with pytest.raises(UsageError, match="`ray`"):
        tokenize(text, tmp_path / "out", ray=address)


def test_without_ray(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackageError, match="`ray = local`") as caught:
        tokenize(text, tmp_path / "out", ray="local")
    assert "gptcli[ray]" in caught.value.hint
