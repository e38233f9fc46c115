"""Encoding in several processes gives the same ids, whatever happens to the processes, and leaves none behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from gptcli.dataset.preparing import tokenize
from gptcli.errors import TokenizerError
from gptcli.tokenizer import processes
from gptcli.tokenizer.bytelevel import ByteLevelTokenizer
from gptcli.tokenizer.processes import encoding
from tests.tokenizer.text_samples import LESSON

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
TEXTS = [f"{LESSON * (1 + number % 3)} {number} new{number}word don't" for number in range(40)]


@pytest.fixture(autouse=True)
def always_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "cores", lambda: 4)
    monkeypatch.setattr(processes, "BYTES_EACH", 1)
    monkeypatch.setattr(processes, "BATCH_CHARACTERS", 1000)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, bpe: ByteLevelTokenizer) -> list[list[int]]:
    """The ids as this process gives them, which then gives none any more."""
    ids = [encoded.tolist() for encoded in bpe.encode_texts(TEXTS)]
    monkeypatch.setattr(bpe, "encode_texts", None)
    return ids


def test_the_ids_are_those_of_one_process(bpe: ByteLevelTokenizer, alone: list[list[int]]) -> None:
    with encoding(bpe, 100) as encode:
        assert [ids.tolist() for ids in encode(TEXTS)] == alone
        assert [ids.tolist() for ids in encode(TEXTS[:3])] == alone[:3]


def test_a_process_that_is_killed_costs_nothing_but_time(
    bpe: ByteLevelTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, ask = list(bpe.encode_texts(TEXTS)), processes._Process.encode
    asked = 0

    def kill_the_third(self: processes._Process, texts: list[str]) -> list[np.ndarray]:
        nonlocal asked
        asked += 1
        if asked == 3:
            self._process.kill()
        return ask(self, texts)

    monkeypatch.setattr(processes._Process, "encode", kill_the_third)
    monkeypatch.setattr(bpe, "encode_texts", None)  # the others do it, not we
    with encoding(bpe, 100) as encode:
        assert all(np.array_equal(ids, one) for ids, one in zip(encode(TEXTS), whole, strict=True))
    assert asked > 3


def test_what_a_python_prints_at_its_start_is_no_answer(
    bpe: ByteLevelTokenizer, alone: list[list[int]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('hello' * 1000)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    with encoding(bpe, 100) as encode:
        assert [ids.tolist() for ids in encode(TEXTS)] == alone


@pytest.mark.parametrize("python", ["/no/such/python", "/bin/false"])
def test_without_processes_this_one_encodes(
    bpe: ByteLevelTokenizer, monkeypatch: pytest.MonkeyPatch, python: str
) -> None:
    monkeypatch.setattr(sys, "executable", python)
    with encoding(bpe, 100) as encode:
        assert [ids.tolist() for ids in encode(TEXTS)] == [bpe.encode(text) for text in TEXTS]


def test_what_cannot_be_encoded_is_named() -> None:
    library = tokenizers.Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = ByteLevelTokenizer(json.loads(library.to_str()))
    with pytest.raises(TokenizerError, match="'é'"), encoding(tokenizer, 100) as encode:
        list(encode(["ab", "abé"]))


def test_a_dataset_is_the_same_file_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text(LESSON * (number + 1), encoding="utf-8", newline="")
    shapes = []
    for name in ("several", "one"):
        tokenize(tmp_path, tmp_path / name, tokenizer="bpe", vocab_size=300)
        files = sorted((tmp_path / name).iterdir())
        shapes.append({file.name: file.read_bytes() for file in files})
        monkeypatch.setattr(processes, "cores", lambda: 1)
    several, one = shapes
    assert several.keys() == one.keys()
    assert [name for name in one if several[name] != one[name]] == ["dataset.json"]  # it has the folder's name


@needs_proc
def test_leaving_in_the_middle_ends_the_processes(bpe: ByteLevelTokenizer) -> None:
    def endless() -> Iterator[str]:
        while True:
            yield from TEXTS

    others = children(os.getpid())  # of other tests
    with encoding(bpe, 100) as encode:
        assert len(list(islice(encode(endless()), 5))) == 5
        started = [child for child in children(os.getpid()) if child not in others]
        assert len(started) == 3
    assert not any(map(is_running, started))


@needs_proc
def test_processes_end_with_a_program_that_was_killed() -> None:
    code = (
        "import time; from gptcli.tokenizer import processes; from gptcli.tokenizer.bpe import train_bpe\n"
        "processes.cores, processes.BYTES_EACH = lambda: 4, 1\n"
        "with processes.encoding(train_bpe(['the cat '], 260), 100) as encode:\n"
        "    print(sum(map(len, encode(['the cat'] * 9))), flush=True); time.sleep(600)\n"
    )
    program = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert program.stdout
    assert int(program.stdout.readline()) > 0
    started = children(program.pid)
    assert len(started) == 3
    program.kill()
    program.communicate()
    deadline = time.monotonic() + 60
    while any(is_running(pid) for pid in started):
        assert time.monotonic() < deadline, "a process outlived the program"
        time.sleep(0.05)


def children(parent: int) -> list[int]:
    """Processes that `parent` started and that have not ended."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        fields = stat_of(int(entry.name))
        if fields and int(fields[1]) == parent and fields[0] != "Z":
            found.append(int(entry.name))
    return found


def is_running(pid: int) -> bool:
    fields = stat_of(pid)
    return bool(fields) and fields[0] != "Z"


def stat_of(pid: int) -> list[str]:
    """State, parent and what follows in /proc; nothing if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
