"""The commands of the tutorials work: each page in a folder of its own, with fewer steps where the page says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.project.blocks import ci_blocks, run_blocks

TUTORIALS = ROOT / "docs/tutorials"
PRINTED = {
    "novel": "report.html",
    "chats": "Ben: Where did I leave the umbrella?",
    "code": "Most surprising places",
    "fine-tuning": "runs/tuned, windows of 64 tokens",
    "gpu-night": "Memory on cuda, training in bfloat16",
    "cluster": "runs/web",
}
"""A part of what the commands of each tutorial print."""


def test_every_tutorial_is_run() -> None:
    assert {page.stem for page in TUTORIALS.glob("*.md")} == set(PRINTED)


@pytest.mark.parametrize("name", PRINTED)
def test_the_tutorial_works(name: str, tmp_path: Path) -> None:
    blocks = ci_blocks((TUTORIALS / f"{name}.md").read_text(encoding="utf-8"))
    assert PRINTED[name] in run_blocks(blocks, tmp_path)
