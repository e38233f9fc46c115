"""The commands of the README and of docs/data.md work: the blocks marked `ci` are run, as a newcomer would type them.

A block is fenced as ```` ```sh ci ````. All blocks share one folder, in which `book.txt` lies, and `gptcli` is on the
path. Each is a shell of its own, which stops at the first command that fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

BLOCK = re.compile(r"^```sh ci\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def ci_blocks(markdown: str) -> list[str]:
    """The commands of every block marked `ci`, in order."""
    return BLOCK.findall(markdown)


class BlockFailedError(Exception):
    """A block ended with another code than 0."""


def run_blocks(blocks: list[str], folder: Path) -> str:
    """Run the blocks in `folder`; what they printed on standard output. Raises BlockFailedError."""
    programs = folder / ".bin"
    programs.mkdir()
    command = programs / "gptcli"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gptcli "$@"\n', encoding="utf-8")
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


def test_the_readme_works(tmp_path: Path, corpus: str) -> None:
    blocks = ci_blocks((ROOT / "README.md").read_text(encoding="utf-8"))
    assert blocks, "the README has no block marked ci"
    (tmp_path / "book.txt").write_text(corpus, encoding="utf-8")
    run_blocks(blocks, tmp_path)


def test_the_page_about_data_works(tmp_path: Path) -> None:
    blocks = ci_blocks((ROOT / "docs/data.md").read_text(encoding="utf-8"))
    assert len(blocks) >= 5
    printed = run_blocks(blocks, tmp_path)
    assert all(text in printed for text in ("The second row.", "The first summary.", "user: Hello", "It’s naïve."))


SAMPLE = """\
# A document

```sh ci
echo first > made.txt
gptcli --version
```

```sh
exit 1  # not marked
```

```python ci
not a shell
```

```sh ci
cat made.txt
```
"""


def test_blocks_are_found_in_order() -> None:
    assert ci_blocks(SAMPLE) == ["echo first > made.txt\ngptcli --version\n", "cat made.txt\n"]


def test_blocks_share_a_folder_and_have_the_command(tmp_path: Path) -> None:
    printed = run_blocks(ci_blocks(SAMPLE), tmp_path)
    assert re.fullmatch(r"gptcli [\d.]+\nfirst\n", printed)


@pytest.mark.parametrize("bad", ["false\ntrue\n", "false | true\n", "echo $unset_name\n", "gptcli no-such-command\n"])
def test_control_a_failing_block_fails(bad: str, tmp_path: Path) -> None:
    with pytest.raises(BlockFailedError, match="this block failed"):
        run_blocks(["true\n", bad, "true\n"], tmp_path)
