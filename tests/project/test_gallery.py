"""docs/gallery.md: its pictures exist, are small, and are those that `docs/generate_gallery.py` takes."""

from __future__ import annotations

import re

from tests.conftest import ROOT

PICTURE_BYTES = 300_000


def test_pictures_are_there_and_small() -> None:
    page = (ROOT / "docs/gallery.md").read_text(encoding="utf-8")
    named = re.findall(r"^!\[(.+)\]\((pictures/[\w-]+\.png)\)$", page, re.MULTILINE)
    assert len(named) >= 8
    for words, path in named:
        assert len(words) > 20, "words for people who do not see it"
        assert 10_000 < (ROOT / "docs" / path).stat().st_size < PICTURE_BYTES, path


def test_no_picture_is_left_over() -> None:
    used = "".join((ROOT / page).read_text(encoding="utf-8") for page in ("docs/gallery.md", "README.md"))
    script = (ROOT / "docs/generate_gallery.py").read_text(encoding="utf-8")
    for path in (ROOT / "docs/pictures").iterdir():
        assert f"pictures/{path.name})" in used
        assert f'"{path.stem}"' in script
