"""Time and memory to read a long document of each format. Prints the table of docs/data.md.

    python -m benchmarks.documents TEXT

The documents hold lines of a text in random order. Each is read in a process of its own: processor seconds, and the
peak memory above that of a document of one line.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from benchmarks.measure import peak_memory
from gptcli.dataset.readers import read_documents
from gptcli.dataset.sources import Source
from tests.dataset.formats import made


def document(suffix: str, lines: list[str]) -> bytes:
    """A document with these lines. Pages, chapters and messages have 100 of them."""
    hundreds = [lines[start : start + 100] for start in range(0, len(lines), 100)]
    match suffix:
        case ".docx":
            return made.docx("".join(f"<w:p><w:r><w:t>{line}</w:t></w:r></w:p>" for line in lines))
        case ".odt":
            return made.odt("".join(f"<text:p>{line}</text:p>" for line in lines))
        case ".epub":
            chapters = ["".join(f"<p>{line}</p>" for line in hundred) for hundred in hundreds]
            return made.epub({f"{number}.xhtml": made.chapter(text) for number, text in enumerate(chapters)})
        case ".html":
            return ("<meta charset=utf-8>" + "".join(f"<p>{line}</p>\n" for line in lines)).encode()
        case ".pdf":
            return made.pdf(["\n".join(hundred) for hundred in hundreds])
        case ".mbox":
            return made.mbox(*(made.message("Subject", "\n".join(hundred) + "\n") for hundred in hundreds))
        case ".txt":
            return "".join(f"31.12.23, 21:15 - {'AB'[len(line) % 2]}: {line}\n" for line in lines).encode()
        case _:
            author = {"id": "1" * 18, "name": "anna", "avatarUrl": "https://cdn.discordapp.com/" + "x" * 80}
            return made.discord(*({"content": line, "author": author, "attachments": []} for line in lines))


SUFFIXES = (".docx", ".odt", ".epub", ".html", ".pdf", ".mbox", ".txt", ".json")


def read(path: Path) -> tuple[int, float, int]:
    """Characters, processor seconds, and peak memory of this process in bytes."""
    start = time.process_time()
    documents = read_documents(Source(path, path.name, path.name), lambda _: None)
    characters = sum(len(piece) for document in documents for piece in document)
    return characters, time.process_time() - start, peak_memory()


def read_elsewhere(path: Path) -> tuple[int, float, int]:
    command = [sys.executable, "-m", "benchmarks.documents", "--read", str(path)]
    characters, seconds, memory = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return characters, seconds, memory


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("text", nargs="?", type=Path, help="a text to take lines from")
    parser.add_argument("--lines", type=int, default=500_000)
    parser.add_argument("--read", type=Path)
    options = parser.parse_args()
    if options.read:
        sys.stdout.write(json.dumps(read(options.read)))
        return
    random, removed = Random(1), str.maketrans("", "", "<>&()\\")
    choices = options.text.read_text(encoding="utf-8").translate(removed).split("\n")
    lines = random.choices(choices, k=options.lines)
    with tempfile.TemporaryDirectory() as folder:
        for suffix in SUFFIXES:
            path = Path(folder, f"document{suffix}")
            path.write_bytes(document(suffix, ["one line"] * 8))
            least = read_elsewhere(path)[2]
            path.write_bytes(document(suffix, lines))
            characters, seconds, memory = read_elsewhere(path)
            sizes = f"{path.stat().st_size / 1e6:.0f} MB | {characters / 1e6:.0f} MB"
            sys.stdout.write(f"| `{suffix}` | {sizes} | {seconds:.1f} | {(memory - least) / 1e6:.0f} MB |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
