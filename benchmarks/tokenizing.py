"""The time of `gptcli tokenize`, compared with other encoders and another trainer of vocabularies.

gptcli's figure is the whole command, from the start of the process: reading, hashing, encoding, writing, and flushing
to the disk. The others only encode text that is in memory, with as many threads as there are cores. The text is given,
or the sources and documents of this Python: its library and packages, every file once, in random order.

    python -m benchmarks.tokenizing [TEXT]
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import held_by, save
from gptcli.dataset.folder import open_dataset
from gptcli.machine import cores
from gptcli.tokenizer.bpe import train_bpe
from gptcli.tokenizer.corpus import recut
from gptcli.tokenizer.document import bytes_of_entry
from gptcli.tokenizer.tokenizer import Tokenizer

CORPUS_BYTES = 120_000_000
SUFFIXES = (".py", ".pyi", ".md", ".rst", ".txt", ".h", ".html", ".json", ".js")
TIMES = 8
"""Repetitions of the text in the long one."""
VOCAB_SIZE = 8192
ROUNDS = 3
GPT2_PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
"""In the form that tiktoken uses."""


def write_corpus(path: Path) -> None:
    """Write text that is on this machine, up to `CORPUS_BYTES`."""
    folders = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    files = sorted({file for folder in folders for file in Path(folder).rglob("*") if file.suffix in SUFFIXES})
    random.Random(0).shuffle(files)
    seen: set[bytes] = set()
    left = CORPUS_BYTES
    with open(path, "wb") as corpus:
        for file in files:
            content = file.read_bytes() if file.is_file() else b""
            digest = hashlib.md5(content).digest()
            if digest in seen or b"\0" in content or not is_utf8(content):
                continue
            seen.add(digest)
            left -= corpus.write(content)
            if left <= 0:
                return


def is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def whole_command(*arguments: str) -> dict[str, float]:
    """Seconds, seconds of all cores, and peak memory of a `gptcli` command."""
    start = time.perf_counter()
    command = subprocess.Popen([sys.executable, "-m", "gptcli", *arguments, "-q"], stdout=subprocess.DEVNULL)
    memory = 0
    while True:
        done, status, usage = os.wait4(command.pid, os.WNOHANG)
        if done:
            break
        memory = max(memory, held_by(command.pid))
        time.sleep(0.005)
    assert status == 0, "the command failed"
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "cpu_seconds": usage.ru_utime + usage.ru_stime, "peak_memory": memory}


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def measure_training(text: str) -> tuple[Tokenizer, dict[str, Any]]:
    """Learning a vocabulary: both trainers get the same pieces, and must learn the same vocabulary."""
    import tokenizers
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.trainers import BpeTrainer

    def theirs() -> tokenizers.Tokenizer:
        library = tokenizers.Tokenizer(tokenizers.models.BPE())
        library.pre_tokenizer = ByteLevel(add_prefix_space=False)
        alphabet = sorted(ByteLevel.alphabet())
        trainer = BpeTrainer(
            vocab_size=VOCAB_SIZE - 1,
            min_frequency=2,
            initial_alphabet=alphabet,
            special_tokens=[],
            show_progress=False,
        )
        library.train_from_iterator(recut(pieces_of(text)), trainer)
        return library

    library_seconds, library = timed(theirs)
    seconds, tokenizer = timed(lambda: train_bpe(pieces_of(text), VOCAB_SIZE))
    same = json.loads(library.to_str())["model"]["merges"] == json.loads(tokenizer.to_json())["model"]["merges"]
    assert same, "the vocabularies differ"
    return tokenizer, {
        "seconds": {"gptcli": seconds, "tokenizers": library_seconds},
        "ratio": seconds / library_seconds,
    }


def measure_bpe(corpus: Path, text: str, tokenizer: Tokenizer, folder: Path) -> dict[str, Any]:
    """Encoding with the whole command, with tiktoken and with tokenizers, in turn."""
    import tiktoken
    import tokenizers

    file = folder / "tokenizer.json"
    file.write_text(tokenizer.to_json(), encoding="utf-8")
    vocab = json.loads(tokenizer.to_json())["model"]["vocab"]
    ranks = {bytes_of_entry(entry): token for entry, token in vocab.items() if token != tokenizer.end_of_text}
    encoding = tiktoken.Encoding("ours", pat_str=GPT2_PATTERN, mergeable_ranks=ranks, special_tokens={})
    library = tokenizers.Tokenizer.from_str(tokenizer.to_json())
    library.encode_special_tokens = True
    batch = list(recut(pieces_of(text), 1 << 20))
    out = folder / "bpe"
    commands, batches = [], []
    for _ in range(ROUNDS):
        commands.append(whole_command("tokenize", str(corpus), "-o", str(out), "--tokenizer", str(file), "--force"))
        batches.append(timed(lambda: encoding.encode_ordinary_batch(batch, num_threads=cores()))[0])
    small = list(recut(pieces_of(text)))
    library_seconds, encoded = timed(lambda: library.encode_batch_fast(small, add_special_tokens=False))
    assert_same_ids(out, encoded)
    seconds = {
        "gptcli": statistics.median(command["seconds"] for command in commands),
        "tiktoken": statistics.median(batches),
        "tokenizers": library_seconds,
    }
    return {
        "seconds": seconds,
        "rate": {name: corpus.stat().st_size / value for name, value in seconds.items()},
        "times_tiktoken": seconds["tiktoken"] / seconds["gptcli"],
        "peak_memory": max(command["peak_memory"] for command in commands),
    }


def assert_same_ids(out: Path, encoded: list[Any]) -> None:
    """Check the written ids against the library's; the cut between the splits may change a few tokens."""
    dataset = open_dataset(out)
    train, place = dataset.train.stream, 0
    for piece in encoded:
        if place + len(piece.ids) > len(train) - 8:
            return
        written = train.windows(np.array([place]), len(piece.ids))[0]
        assert np.array_equal(written, piece.ids), "the ids differ"
        place += len(piece.ids)


def measure_characters(corpus: Path, folder: Path) -> dict[str, Any]:
    """Characters: the text, and a long one, of whose time the start of the process is a small part."""
    long = folder / "long.txt"
    with open(long, "wb") as file:
        for _ in range(TIMES):
            file.write(corpus.read_bytes())
    rows = {}
    for name, text in (("once", corpus), ("long", long)):
        arguments = ("tokenize", str(text), "-o", str(folder / "char"), "--tokenizer", "char", "--force")
        commands = [whole_command(*arguments) for _ in range(ROUNDS)]
        cpu_seconds = statistics.median(command["cpu_seconds"] for command in commands)
        rows[name] = {
            "bytes": text.stat().st_size,
            "seconds": statistics.median(command["seconds"] for command in commands),
            "cpu_seconds": cpu_seconds,
            "rate_per_core": text.stat().st_size / cpu_seconds,
            "peak_memory": max(command["peak_memory"] for command in commands),
        }
    return rows


def pieces_of(text: str) -> Iterator[str]:
    return (text[start : start + (1 << 20)] for start in range(0, len(text), 1 << 20))


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        corpus = Path(sys.argv[1]) if len(sys.argv) > 1 else folder / "corpus.txt"
        if len(sys.argv) == 1:
            write_corpus(corpus)
        characters = measure_characters(corpus, folder)
        text = corpus.read_bytes().decode().removeprefix("\ufeff")
        tokenizer, training = measure_training(text)
        rows = {
            "bpe": measure_bpe(corpus, text, tokenizer, folder),
            "characters": characters,
            "training": training,
        }
        save(
            "tokenizing",
            {"bytes": corpus.stat().st_size, "megabyte": 1_000_000, "vocab_size": VOCAB_SIZE, "rows": rows},
        )


if __name__ == "__main__":
    main()
