"""The documentation builds as a site without a warning, such as for a link to nothing or a page that is not listed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import gptcli
import gptcli.errors
from gptcli.runs.events import Event
from tests.conftest import ROOT

DOCS = ROOT / "docs"
LOADED = re.compile(
    r"""(?:src|srcset|data)=["']?(https?:)?//|<link[^>]+href=["']?(https?:)?//|(?:url\(|@import )["']?(https?:)?//"""
)
"""What makes a browser load something from another host. Links to elsewhere are fine."""


def build(sources: Path, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run Sphinx as `make site` does."""
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", *options, str(sources), str(out)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=False)


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    done = build(DOCS, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    pages = {
        page.relative_to(tmp_path).as_posix(): page.read_text(encoding="utf-8") for page in tmp_path.rglob("*.html")
    }
    assert {"index.html", "tutorials/novel.html", "config.html"} <= set(pages)
    assert 'href="../data.html"' in pages["tutorials/novel.html"]
    styles = [style.read_text(encoding="utf-8") for style in tmp_path.rglob("*.css")]
    assert [LOADED.search(text) for text in [*pages.values(), *styles] if LOADED.search(text)] == []
    named = set(re.findall(r'id="(gptcli\.[\w.]+)"', pages["api.html"]))
    errors = {f"gptcli.errors.{kind.__name__}" for kind in vars(gptcli.errors).values() if isinstance(kind, type)}
    events = {f"gptcli.runs.events.{kind.__name__}" for kind in get_args(Event)}
    assert {f"gptcli.{name}" for name in gptcli.__all__} | errors | events <= named


def test_control_what_a_page_loads() -> None:
    loads = [
        '<script src="https://a.b/c.js">',
        "<img src='//a.b/c.png'>",
        '<link rel="x" href="http://a.b">',
        "url(https://a.b)",
    ]
    assert all(LOADED.search(text) for text in [*loads, '@import "https://a.b"'])
    assert not LOADED.search('<a href="https://a.b"> <script src="_static/c.js"> url(data:image/svg+xml,http://a.b)')


def small_site(folder: Path, text: str = "") -> subprocess.CompletedProcess[str]:
    """A site of two pages with the project's own settings; `text` is added to the first."""
    sources = folder / "docs"
    shutil.copytree(DOCS / "site", sources / "site", dirs_exist_ok=True)
    shutil.copy(DOCS / "conf.py", sources)
    (folder / "OUTSIDE.md").write_text("# Outside\n", encoding="utf-8")
    index = "# Index\n\n## Group\n\n- [One](one.md)\n- [Two](two.md)\n\n[Outside](../OUTSIDE.md#outside)\n"
    (sources / "index.md").write_text(index, encoding="utf-8")
    (sources / "one.md").write_text(f"# One\n\n[a part](two.md#its-part)\n\n{text}", encoding="utf-8")
    (sources / "two.md").write_text("# Two\n\n## Its part\n", encoding="utf-8")
    return build(sources, folder / "site")


def test_lists_of_the_front_page_are_the_navigation(tmp_path: Path) -> None:
    done = small_site(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    page = (tmp_path / "site/two.html").read_text(encoding="utf-8")
    assert re.search(r'caption-text">Group<.*href="one\.html">One<', page, re.DOTALL)
    assert list((tmp_path / "site/_downloads").rglob("OUTSIDE.md"))


def test_control_what_is_broken_is_named(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/unlisted.md").write_text("# Unlisted\n", encoding="utf-8")
    links = ["nowhere.md", "two.md#no-such-part", "../NOTHING.md"]
    done = small_site(tmp_path, "".join(f"[here]({link})\n" for link in links) + "![a picture](nothing.png)\n")
    assert done.returncode == 1
    for name in ("nowhere", "no-such-part", "NOTHING.md", "nothing.png", "unlisted.md"):
        assert name in done.stderr
