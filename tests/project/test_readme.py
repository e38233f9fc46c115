"""The commands of the README and of docs/data.md work: blocks marked `ci` are run, in one folder with `book.txt`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.project.blocks import BlockFailedError, NothingReplacedError, ci_blocks, run_blocks


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


def test_comments_replace_words_and_add_commands() -> None:
    page = """\
```sh ci
gptcli train a.txt --max-time 1h
```
<!-- test: --max-time 1h => --max-steps 2 -->
<!-- test
touch b.txt
-->

```sh ci
gptcli train b.txt --max-time 1h
```
"""
    expected = ["gptcli train a.txt --max-time 1h\n", "touch b.txt\n", "gptcli train b.txt --max-steps 2\n"]
    assert ci_blocks(page) == expected


def test_control_words_that_are_nowhere() -> None:
    with pytest.raises(NothingReplacedError, match="--max-time 2h"):
        ci_blocks("<!-- test: --max-time 2h => --max-steps 2 -->\n```sh ci\ngptcli train a.txt\n```\n")
