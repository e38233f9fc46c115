"""Commands in Markdown pages, and how tests run them.

A block fenced as ```` ```sh ci ```` is run, as a newcomer would type it. Two kinds of HTML comments, which readers of a
page do not see, change what a test runs:

    <!-- test: --max-time 10m => --max-steps 20 -->    run the commands below with other words, since they take too long
    <!-- test
    cp -r /somewhere/else here
    -->                                                run this as well, in its place
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

PART = re.compile(
    r"^```sh ci\n(?P<block>.*?)^```$"
    r"|^<!-- test\n(?P<unseen>.*?)^-->$"
    r"|^<!-- test: (?P<words>.+?) => (?P<others>.*?) -->$",
    re.MULTILINE | re.DOTALL,
)


class BlockFailedError(Exception):
    """A block ended with another code than 0."""


class NothingReplacedError(Exception):
    """Words that a comment replaces are in no block below it."""


def ci_blocks(markdown: str) -> list[str]:
    """The commands of every block marked `ci`, in order, as a test runs them. Raises NothingReplacedError."""
    blocks = []
    replaced: dict[str, str] = {}
    unused: set[str] = set()
    for part in PART.finditer(markdown):
        if words := part["words"]:
            replaced[words] = part["others"]
            unused.add(words)
            continue
        block = part["unseen"] or part["block"]
        unused -= {words for words in unused if words in block}
        for words, others in replaced.items():
            block = block.replace(words, others)
        blocks.append(block)
    if unused:
        raise NothingReplacedError(f"no block has: {', '.join(sorted(unused))}")
    return blocks


def run_blocks(blocks: list[str], folder: Path) -> str:
    """Run the blocks in `folder`; what they printed on standard output. Raises BlockFailedError.

    Each block is a shell of its own, which stops at the first command that fails. `gptcli` and `torchrun` are on the
    path.
    """
    programs = folder / ".bin"
    programs.mkdir()
    for name, module in (("gptcli", "gptcli"), ("torchrun", "torch.distributed.run")):
        command = programs / name
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n', encoding="utf-8")
        command.chmod(0o755)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / ".cache")}
    printed = []
    for block in blocks:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        if done.returncode:
            raise BlockFailedError(f"this block failed:\n{block}\nwith:\n{done.stdout}{done.stderr}")
        printed.append(done.stdout)
    return "".join(printed)
