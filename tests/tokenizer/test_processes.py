"""Encoding in several processes gives the same ids, whatever happens to the processes, and leaves none behind."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from gptcli.dataset.preparing import tokenize
from gptcli.errors import TokenizerError
from gptcli.tokenizer import processes
from gptcli.tokenizer.bytelevel import Tokenizer
from gptcli.tokenizer.processes import encoding
from tests.tokenizer.text_samples import LESSON

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
TEXTS = [f"{LESSON * (1 + number % 3)} {number} new{number}word don't" for number in range(40)]


@pytest.fixture(autouse=True)
def always_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "cores", lambda: 4)
    monkeypatch.setattr(processes, "BYTES_EACH", 1)
    monkeypatch.setattr(processes, "_BATCH_CHARACTERS", 2 * len(LESSON))


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, bpe: Tokenizer) -> list[list[int]]:
    """The ids that this process gives, which can give none afterwards."""
    ids = [encoded.tolist() for encoded in bpe.encode_texts(TEXTS)]
    monkeypatch.setattr(bpe, "encode_texts", None)
    return ids


def test_the_ids_are_those_of_one_process(bpe: Tokenizer, alone: list[list[int]]) -> None:
    with encoding(bpe, 100) as encode:
        assert [ids.tolist() for ids in encode(TEXTS)] == alone
        assert [ids.tolist() for ids in encode(TEXTS[:3])] == alone[:3]


def test_a_killed_process_costs_nothing_but_time(bpe: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, ours = [ids.tolist() for ids in bpe.encode_texts(TEXTS)], bpe.encode_texts
    encoded_here = []

    def here(texts: Iterable[str]) -> Iterator[np.ndarray]:
        encoded_here.append(texts)
        return ours(texts)

    monkeypatch.setattr(bpe, "encode_texts", here)
    with encoding(bpe, 100) as encode:
        results = encode(TEXTS)
        got = [next(results).tolist()]
        for child in multiprocessing.active_children():
            child.kill()
        got += [ids.tolist() for ids in results]
        assert got == expected
        assert [ids.tolist() for ids in encode(TEXTS[:9])] == expected[:9], "also when the pool is broken"
    assert encoded_here


def test_a_process_without_memory_costs_nothing_but_time(bpe: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    failed: Future[list[np.ndarray]] = Future()
    failed.set_exception(MemoryError())
    monkeypatch.setattr(ProcessPoolExecutor, "submit", lambda *_: failed)
    with encoding(bpe, 100) as encode:
        assert [ids.tolist() for ids in encode(TEXTS)] == [bpe.encode(text) for text in TEXTS]


def test_output_of_a_new_process_is_no_answer(
    bpe: Tokenizer, alone: list[list[int]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A sitecustomize that prints, as some systems have."""
    (tmp_path / "sitecustomize.py").write_text("print('hello' * 1000)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with encoding(bpe, 100) as encode:
        assert [ids.tolist() for ids in encode(TEXTS)] == alone


@pytest.mark.parametrize("name", ["__init__", "submit"])
def test_without_processes_this_one_encodes(bpe: Tokenizer, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Where the system has no semaphores, or starts no more processes."""

    def refused(*_: object) -> None:
        raise OSError("no more")

    monkeypatch.setattr(ProcessPoolExecutor, name, refused)
    with encoding(bpe, 100) as encode:
        assert [ids.tolist() for ids in encode(TEXTS)] == [bpe.encode(text) for text in TEXTS]


SCRIPT = """
print("imported", flush=True)
import multiprocessing, os, sys, time
from gptcli.tokenizer import processes
from gptcli.tokenizer.bpe import train_bpe

processes.cores, processes.BYTES_EACH = lambda: 4, 1
before = dict(os.environ)
with processes.encoding(train_bpe(["the cat "], 260), 100) as encode:
    texts = ("the cat" for _ in iter(int, 1)) if "endless" in sys.argv else ["the cat"] * 99
    for total, _ in enumerate(encode(texts), 1):
        if total == 99:
            print(*[child.pid for child in multiprocessing.active_children()], flush=True)
assert os.environ == before
print(total, flush=True)
"""
"""A script without a main guard."""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "socket.py").write_text("raise SystemExit('a file of the working directory was imported')")
    path = tmp_path / "scripts" / "script.py"
    path.parent.mkdir()
    path.write_text(SCRIPT)
    return path


def test_a_script_without_a_main_guard_runs_once(script: Path) -> None:
    """multiprocessing would import it in each process; nor are files of the working directory imported."""
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=script.parents[1])
    first, pids, total = result.stdout.splitlines()
    assert (first, total) == ("imported", "99")
    assert 1 <= len(pids.split()) <= 3
    assert result.stderr == ""


def start(script: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """Start the endless script in a process group of its own, and wait until its processes are at work."""
    command = [sys.executable, script, "endless"]
    program = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=script.parents[1],
        start_new_session=True,
    )
    assert program.stdout
    assert program.stdout.readline() == "imported\n"
    return program, list(map(int, program.stdout.readline().split()))


@needs_proc
def test_processes_end_with_a_program_that_was_killed(script: Path) -> None:
    program, pids = start(script)
    program.kill()
    program.communicate(timeout=60)
    deadline = time.monotonic() + 60
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < deadline, "a process outlived the program"
        time.sleep(0.05)


@needs_proc
def test_ctrl_c_is_quick_and_quiet(script: Path) -> None:
    """The terminal sends it to the whole process group; only the program itself reacts."""
    program, pids = start(script)
    os.killpg(program.pid, signal.SIGINT)
    began = time.monotonic()
    _, errors = program.communicate(timeout=60)
    assert time.monotonic() - began < 10
    assert not any(map(is_running, pids))
    assert errors.count("Traceback") == 1, "that of the script"
    assert errors.splitlines()[-1] == "KeyboardInterrupt"
    assert program.returncode == -signal.SIGINT


def test_what_cannot_be_encoded_is_named() -> None:
    library = tokenizers.Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = Tokenizer(json.loads(library.to_str()))
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


def test_leaving_in_the_middle_ends_the_processes(bpe: Tokenizer) -> None:
    def endless() -> Iterator[str]:
        while True:
            yield from TEXTS

    with encoding(bpe, 100) as encode:
        assert len(list(islice(encode(endless()), 99))) == 99
        started = multiprocessing.active_children()
        assert 1 <= len(started) <= 3
    assert not any(child.is_alive() for child in started)


def is_running(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
