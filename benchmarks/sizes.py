"""Time and memory of `gptcli tokenize` for text of 1 GB and more, and of the commands that read its result.

The text is generated, with another seed for each block, so that it never repeats: English-like (words by Zipf's law,
one in a hundred seen nowhere else), code-like (names, numbers, indentation), Chinese without spaces, and DNA without
line ends. The cores are often shared with other programs, so processor time and memory are what counts. Memory is the
sum of the peaks of all processes that a command starts.

    python -m benchmarks.sizes FOLDER english|code|chinese|dna ... [--gigabytes N] [--tokenizer bpe|char] [--readers]

`--readers` also runs `inspect` and `eval` on the text. FOLDER needs three times the size of a text; what is written
there is deleted.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.measure import RESULTS, held_by, save
from benchmarks.page import FIGURES, gather

BLOCK_ITEMS = 1 << 20
MEGABYTE, GIGABYTE = 10**6, 10**9
Figures = dict[str, float]
EVALUATED_BYTES = (MEGABYTE, 4 * MEGABYTE)
_LETTERS = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
_HAN, _COMMA = 0x4E00 + np.arange(6000, dtype="<u4"), ord("，")


@cache
def _quantiles(kinds: int) -> np.ndarray:
    """Numbers below `kinds`, number n about in proportion to 1 / (n + 3)."""
    weights = np.cumsum(1 / (np.arange(kinds) + 3.0))
    return np.searchsorted(weights, (np.arange(1 << 20) + 0.5) / (1 << 20) * weights[-1])


def _zipf(rng: np.random.Generator, kinds: int, count: int) -> np.ndarray:
    """`count` numbers below `kinds` by Zipf's law."""
    table = _quantiles(kinds)
    return table[rng.integers(0, table.size, count)]


@cache
def _vocabulary(count: int = 200_000) -> np.ndarray:
    """Words that look like a language: frequent ones are short."""
    rng = np.random.default_rng(0)
    lengths = np.minimum(2 + np.log2(np.arange(count) + 1) / 2 + rng.integers(0, 4, count), 16).astype(int)
    words = ["".join(_LETTERS[np.minimum(rng.geometric(0.13, length), 26) - 1]) for length in lengths]
    return np.array(words, dtype=object)


def english(rng: np.random.Generator) -> str:
    words = _vocabulary()
    chosen = words[_zipf(rng, words.size, BLOCK_ITEMS // 4)]
    new, ends = rng.integers(0, chosen.size, chosen.size // 100), rng.integers(0, chosen.size, chosen.size // 15)
    chosen[new] += chosen[new - 1]
    chosen[ends] += ".\n"
    return " ".join(chosen.tolist())


def code(rng: np.random.Generator) -> str:
    lines = BLOCK_ITEMS // 16
    names = _vocabulary()[_zipf(rng, 20_000, lines * 5)].reshape(-1, 5).tolist()
    depths, numbers = rng.integers(0, 5, lines).tolist(), rng.integers(0, 10**5, lines).tolist()
    return "".join(
        f"{'    ' * depth}{a}_{b} = {c}({d}.{e}, {number})\n"
        for (a, b, c, d, e), depth, number in zip(names, depths, numbers, strict=True)
    )


def chinese(rng: np.random.Generator) -> str:
    text = _HAN[_zipf(rng, len(_HAN), BLOCK_ITEMS)]
    text[rng.integers(0, text.size, text.size // 30)] = _COMMA
    return text.tobytes().decode("utf-32-le")


def dna(rng: np.random.Generator) -> str:
    return np.frombuffer(b"ACGT", np.uint8)[rng.integers(0, 4, BLOCK_ITEMS)].tobytes().decode()


TEXTS: dict[str, Callable[[np.random.Generator], str]] = {
    "english": english,
    "code": code,
    "chinese": chinese,
    "dna": dna,
}


def write_text(path: Path, kind: str, size: int) -> None:
    """Write text of about `size` bytes."""
    seed = 0
    with open(path, "wb") as file:
        while file.tell() < size:
            file.write(TEXTS[kind](np.random.default_rng(seed)).encode()[: size - file.tell() + 4])
            seed += 1
    _end_at_character(path)


def _end_at_character(path: Path) -> None:
    """Cut off the last character of a file, which may be incomplete."""
    with open(path, "rb+") as file:
        start = file.seek(-4, os.SEEK_END)
        file.truncate(start + max(place for place, byte in enumerate(file.read()) if byte & 0xC0 != 0x80))


def measured(*arguments: str) -> Figures:
    """Seconds, processor seconds, and the peak memory of all processes of a `gptcli` command."""
    start = time.perf_counter()
    command = subprocess.Popen([sys.executable, "-m", "gptcli", *arguments], stdout=subprocess.DEVNULL)
    memory: dict[int, int] = {}
    while True:
        done, status, usage = os.wait4(command.pid, os.WNOHANG)
        if done:
            break
        for process in (command.pid, *_descendants(command.pid)):
            memory[process] = max(memory.get(process, 0), held_by(process))
        time.sleep(0.02)
    assert status == 0, f"gptcli {' '.join(arguments)} failed"
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_memory": sum(memory.values()),
    }


def _descendants(process: int) -> Iterator[int]:
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return
    for child in map(int, children):
        yield child
        yield from _descendants(child)


def measure(kind: str, tokenizer: str, size: int, folder: Path, *, readers: bool) -> Iterator[tuple[str, Figures]]:
    """The figures of tokenizing a text, of beginning to train on it, and of other commands on it."""
    text, data, run = folder / "text.txt", folder / "data", folder / "run"
    write_text(text, kind, size)
    yield "tokenize", measured("tokenize", str(text), "-o", str(data), "--tokenizer", tokenizer, "-q")
    arguments = ("--preset", "nano", "--max-steps", "1", "--set", "train.eval_tokens=1024", "-q")
    yield "train", measured("train", str(data), "-o", str(run), *arguments)
    yield "inspect dataset", measured("inspect", str(data))
    if not readers:
        return
    for count in EVALUATED_BYTES:
        part = folder / "part.txt"
        with open(text, "rb") as whole:
            part.write_bytes(whole.read(count))
        _end_at_character(part)
        yield f"eval {count // MEGABYTE} MB", measured("eval", str(run), str(part), "-q")
    yield "inspect text", measured("inspect", str(data / "tokenizer.json"), str(text))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("kinds", nargs="+", choices=list(TEXTS))
    parser.add_argument("--gigabytes", type=float, default=1)
    parser.add_argument("--tokenizer", choices=["bpe", "char"], default="bpe")
    parser.add_argument("--readers", action="store_true")
    options = parser.parse_args()
    size = round(options.gigabytes * GIGABYTE)
    for kind in options.kinds:
        folder = options.folder / f"{kind}-{options.tokenizer}-{size}"
        folder.mkdir(parents=True)
        try:
            for name, figures in measure(kind, options.tokenizer, size, folder, readers=options.readers):
                rows = gather(RESULTS, FIGURES).get("sizes", {}).get("rows", {})  # those of other texts stay
                rows.setdefault(f"{kind} {options.tokenizer} {options.gigabytes:g}", {})[name] = figures
                save("sizes", {"megabyte": MEGABYTE, "rows": rows})
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
