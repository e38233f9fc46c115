"""The pages in a real Chromium: they load nothing, no script of theirs fails, and they work with pointer and keys."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

import gptcli
from gptcli.ui.html.page import page
from gptcli.ui.html.report import report_page
from gptcli.ui.html.surprise import surprise_page
from tests.report.awkward_run import MARKUP, TEXT, awkward_run
from tests.ui.browser import Page, find_browser, running_browser

BROWSER = find_browser()
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium here; `make test-browser` installs one")
WINDOWS = [(width, dark) for width in (400, 1400) for dark in (False, True)]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each kind of page, of a run whose text is markup."""
    folder = tmp_path_factory.mktemp("pages")
    run = awkward_run(folder)
    model = gptcli.load(run, device="cpu")
    (folder / "a.txt").write_text(TEXT[:400], encoding="utf-8")
    contents = {
        "report": report_page(gptcli.review(run, text=MARKUP)),
        "several": report_page(gptcli.review(run, awkward_run(folder / "other", "other"))),
        "surprise": surprise_page(model.surprise(folder / "a.txt"), run),
    }
    for name, content in contents.items():
        (folder / f"{name}.html").write_text(content, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in contents}


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    assert BROWSER is not None
    with running_browser(BROWSER, tmp_path_factory.mktemp("browser")) as browser:
        yield browser.new_page()


@pytest.mark.parametrize("name", ["report", "several", "surprise"])
@pytest.mark.parametrize(("width", "dark"), WINDOWS)
def test_pages_load_nothing_and_fit(name: str, width: int, dark: bool, pages: dict[str, Path], tab: Page) -> None:
    tab.open(pages[name], width=width, dark=dark)
    assert tab.errors() == []
    assert tab.requests() == []
    assert tab.run("document.documentElement.scrollWidth") == width, "nothing is wider than the window"
    assert tab.run("window.bad") is None
    assert tab.run("document.querySelectorAll('main script:not([type]), .text script').length") == 0
    brightness = tab.run(
        "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number).reduce((a, b) => a + b)"
    )
    assert (brightness < 3 * 64) is dark


def test_control_a_page_that_asks_for_something_is_noticed(tmp_path: Path, tab: Page) -> None:
    (tmp_path / "bad.html").write_text(
        page("bad", '<img src="picture.png"><script>nothing()</script>'), encoding="utf-8"
    )
    tab.open(tmp_path / "bad.html")
    assert any("nothing is not defined" in error for error in tab.errors())
    assert any("Content Security Policy" in error for error in tab.errors()), "the policy of pages forbids it"
    (tmp_path / "worse.html").write_text('<img src="picture.png">', encoding="utf-8")
    tab.open(tmp_path / "worse.html")
    assert [address.rpartition("/")[2] for address in tab.requests()] == ["picture.png"]


def test_texts_stay_text(pages: dict[str, Path], tab: Page) -> None:
    tab.open(pages["report"])
    shown = tab.run("document.querySelector('#attention-text').textContent")
    assert shown == MARKUP[:16], "as many characters as fit into the context window"
    assert MARKUP in tab.run("[...document.querySelectorAll('.card .text')].map((e) => e.textContent).join()")


def test_a_token_shows_the_five_likeliest(pages: dict[str, Path], tab: Page) -> None:
    tab.open(pages["report"])
    assert tab.run("document.querySelector('#tip').hidden") is True
    tab.point_at("[data-surprise] [data-token='3']")
    assert tab.run("document.querySelector('#tip').hidden") is False
    assert tab.run("document.querySelectorAll('#tip div').length") == 5
    assert "bits" in tab.run("document.querySelector('#tip').textContent")
    tab.point_at("h1")
    assert tab.run("document.querySelector('#tip').hidden") is True


def test_a_token_shows_where_it_looks(pages: dict[str, Path], tab: Page) -> None:
    tab.open(pages["report"])
    tab.point_at("#attention-text [data-token='5']")
    says = tab.run("document.querySelector('#attention-says').textContent")
    assert says.startswith("Token 6, ")
    assert "%" in says
    seen = tab.run(
        "[...document.querySelectorAll('#attention-text [data-token]')].map((e) => e.style.background !== '')"
    )
    assert not any(seen[6:]), "no later token"
    assert all(seen[:6])


def test_the_views_differ(pages: dict[str, Path], tab: Page) -> None:
    tab.open(pages["report"])
    picture = "document.querySelector('#map').toDataURL()"
    found = [tab.run(picture)]
    for view in ("s", "masked"):
        tab.run(f"document.querySelector('input[value={view}]').click()")
        found.append(tab.run(picture))
    tab.run("document.querySelectorAll('.heads button')[1].click()")
    found.append(tab.run(picture))
    assert len(set(found)) == 4
    assert tab.run("document.querySelector('#head-name').textContent") == "0.1"
    assert tab.run("document.querySelectorAll('.heads [aria-pressed=true]').length") == 1
    assert "0.1" in tab.run("document.querySelector('#map').getAttribute('aria-label')")


def test_keys_alone_are_enough(pages: dict[str, Path], tab: Page) -> None:
    tab.open(pages["report"])
    reached = []
    for _ in range(60):
        tab.key("Tab")
        reached.append(tab.run("document.activeElement.id || document.activeElement.tagName.toLowerCase()"))
        if reached[-1] == "attention-text":
            break
    assert reached[0] == "a", "the link that skips to the content"
    assert {"svg", "button", "input", "attention-text"} <= set(reached)
    tab.key("ArrowRight")
    tab.key("ArrowRight")
    assert tab.run("document.querySelector('#attention-says').textContent").startswith("Token 2, ")
    tab.run("document.querySelector('svg').focus()")
    tab.key("Home")
    assert tab.run("document.querySelector('.chart output').textContent").startswith("step 1: training ")
    tab.key("ArrowRight")
    assert tab.run("document.querySelector('.chart output').textContent").startswith("step 2: ")


def test_the_pointer_reads_values_off_a_chart(pages: dict[str, Path], tab: Page) -> None:
    tab.open(pages["report"])
    tab.point_at("figure.chart svg")
    shown = tab.run("document.querySelector('.chart output').textContent")
    assert re.fullmatch(r"step (9|10|11): training \d\.\d+ · validation \d\.\d+", shown)


def test_names_and_headings(pages: dict[str, Path], tab: Page) -> None:
    """What a screen reader meets: a title, headings in order, and a name for each picture and control."""
    tab.open(pages["report"])
    levels = tab.run("[...document.querySelectorAll('h1, h2, h3')].map((e) => Number(e.tagName[1]))")
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert tab.run("document.title") == "a <b> & c – gptcli"
    nodes = tab.send("Accessibility.getFullAXTree")["nodes"]
    for role in ("image", "button", "radio", "link", "heading"):
        named = [node.get("name", {}).get("value") for node in nodes if node.get("role", {}).get("value") == role]
        assert named, role
        assert all(named), role


def test_the_page_prints(pages: dict[str, Path], tab: Page) -> None:
    tab.open(pages["report"])
    content = base64.b64decode(tab.send("Page.printToPDF", printBackground=True)["data"])
    assert content.startswith(b"%PDF")
    assert content.count(b"/Type /Page\n") >= 3


def test_paper_is_white_also_where_the_screen_is_dark(pages: dict[str, Path], tab: Page) -> None:
    tab.open(pages["report"], dark=True)
    corner = "document.querySelector('.heads canvas').getContext('2d').getImageData(0, 15, 1, 1).data.join()"
    on_screen = tab.run(corner)
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    tab.send("Emulation.setEmulatedMedia", media="print", features=dark)
    assert tab.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.run(f"new Promise((done) => requestAnimationFrame(() => done({corner})))") != on_screen, "maps too"
