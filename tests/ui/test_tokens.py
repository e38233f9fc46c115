"""Tokens for people: candidates, texts by surprise, columns; on a terminal, without colors, as JSON and as a page."""

from __future__ import annotations

import html.parser
import json
import math
import re
from pathlib import Path

import pytest

from gptcli.generation.logprobs import Candidate, TokenLogprob
from gptcli.ui.html import surprise as surprise_page
from gptcli.ui.surprise import level, visible
from gptcli.ui.tokens import in_text, shown
from tests.conftest import CommandLine
from tests.generation.conftest import Sample, model_folder
from tests.ui.test_terminal import acting, on_terminal


def token(content: bytes, bits: float = 1.0) -> TokenLogprob:
    return TokenLogprob(5, content.decode(errors="replace"), content, -math.log(2) * bits, ())


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b" the", "␣the"),
        (b"\n\t", r"\n\t"),
        (b"a\\n", r"a\\n"),
        ("é中".encode(), "é中"),
        (b"\xc3", r"\xc3"),
        (b"a\xe4\xb8", r"a\xe4\xb8"),
        (b"\x1b[31m", r"\x1b[31m"),
        ("\u202e".encode(), r"\u202e"),
        (b"", "<id 5>"),
    ],
)
def test_a_token_on_one_line(content: bytes, expected: str) -> None:
    assert shown(token(content)) == expected


def test_special_tokens_have_names() -> None:
    assert shown(Candidate(5, "<|endoftext|>", b"", 0.0)) == "<|endoftext|>"


def test_a_token_in_running_text() -> None:
    assert in_text(token(b" a\n\xc3")) == " a\n\\xc3"
    assert visible(token(b"\n", bits=0.5)) == "\n"
    assert visible(token(b"\r", bits=2)) == ""
    assert visible(token(b".\r\n", bits=0.5)) == ".\n"
    assert visible(token(b"a\rb", bits=0.5)) == "a\\x0db"
    assert visible(token(b"\x1b\n", bits=2)) == "\\x1b↵\n"


def test_levels() -> None:
    assert [level(token(b"a", bits)) for bits in (0.0, 0.99, 1.01, 5.0, 9.9, 10.1)] == [0, 0, 1, 2, 3, 4]
    assert level(token(b"a", math.nan)) == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts")
    model_folder(path / "model")
    (path / "a.txt").write_text("abc é\nfed cab\n" * 30, encoding="utf-8")
    return path


def test_candidates_fit_the_width_and_mark_the_generated_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    answer = Sample([folder / "model"])("-p", "abc", "-n", "4", "--seed", "1", "--top", "9", "-t", "0")
    assert max(map(len, answer.out.splitlines())) <= 60
    marked = re.findall(r"\*(\S+) +[\d.]+", answer.out)
    (recorded,) = Sample([folder / "model"])(
        *("-p", "abc", "-n", "4", "--seed", "1", "--logprobs", "9", "-t", "0", "--json")
    ).objects
    chosen = [token_["text"].replace(" ", "␣").replace("\n", "\\n") for token_ in recorded["logprobs"]]  # type: ignore[attr-defined]
    assert marked == chosen
    assert "before temperature and filters" in answer.out


def test_candidates_that_are_not_the_generated_one(folder: Path) -> None:
    """With one candidate a step, a hot sample mostly generates others, which then stand alone in the first column."""
    answer = Sample([folder / "model"])("-n", "30", "--seed", "1", "--top", "1", "-t", "3", "--num-samples", "2")
    assert answer.out.count("Sample 1: most likely") == answer.out.count("Sample 2: most likely") == 1
    rows = [line for line in answer.out.splitlines() if re.match(r" ?\d+  ", line)]
    assert len(rows) == 60
    assert 0 < sum("*" in row for row in rows) < 60


def surprise_of(cli: CommandLine, folder: Path, *more: str | Path) -> str:
    result = cli("eval", folder / "model", folder / "a.txt", "--tokens", *more)
    assert result.code == 0, result.stderr
    return result.stdout


def test_on_a_pipe_each_token_has_a_row(folder: Path, cli: CommandLine) -> None:
    rows = [line.split() for line in surprise_of(cli, folder).splitlines()]
    values = json.loads(surprise_of(cli, folder, "--json"))
    (text,) = values["texts"]
    assert len(text["logprobs"]) == text["tokens"] == 420
    assert rows[0] == ["–", "a"]
    assert text["logprobs"][0]["bits"] is None
    assert [row[0] for row in rows[1:420]] == [f"{one['bits']:.2f}" for one in text["logprobs"][1:]]
    assert [row[1] for row in rows[:7]] == ["a", "b", "c", "␣", "é", r"\n", "f"]
    assert -math.fsum(one["logprob"] for one in text["logprobs"][1:]) / text["scored"] == text["loss"]
    assert list(text["logprobs"][1]) == ["id", "text", "bytes", "logprob", "alternatives", "bits"]
    assert text["logprobs"][4]["bytes"] == list("é".encode())
    assert len(text["logprobs"][1]["alternatives"]) == 5
    assert len(text["places"]) == 10
    assert text["places"][0]["bits"] == max(one["bits"] for one in text["logprobs"][1:])


def test_a_terminal_gets_colors_unless_they_are_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    arguments = ("eval", folder / "model", folder / "a.txt", "--tokens")
    shaded, _ = on_terminal(*arguments, cwd=folder)
    assert "\x1b[" in shaded
    assert "Bits per token" in shaded
    bare, _ = on_terminal(*arguments, "--no-color", cwd=folder)
    assert "Bits per token" not in bare
    assert re.search(r"^ +\d\.\d\d  ␣$", bare, re.MULTILINE)


class _Page(html.parser.HTMLParser):
    """The text of the tokens of a page, its titles, tags and addresses."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self.titles, self.tags, self._inside = "", list[str](), list[str](), False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        values = dict(attrs)
        self._inside = self._inside or (tag == "div" and values.get("class") == "text")
        self.titles += [values["title"] or ""] if "title" in values else []

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "div"

    def handle_data(self, data: str) -> None:
        self.text += data if self._inside else ""


@pytest.fixture(scope="module")
def awkward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose tokens are markup, and a text of them."""
    path = tmp_path_factory.mktemp("awkward")
    model_folder(path / "model", alphabet="<>&\"'/script\x1b\u202e é\n")
    (path / "a.txt").write_text("<script>&\"'</script>\x1b\u202e é\n" * 4, encoding="utf-8")
    return path


def test_the_page(awkward: Path, cli: CommandLine) -> None:
    target = awkward / "page.html"
    result = cli("eval", awkward / "model", awkward / "a.txt", "--html", target)
    assert result.code == 0, result.stderr
    source = target.read_text(encoding="utf-8")
    page = _Page(source)
    assert not re.search(r">[<&]</span>", source), "a browser would forgive a single one"
    assert source.count(">&lt;</span>") == 2 * 4 - 1
    assert page.text.replace("↵", "") == "<script>&\"'</script>\\x1b\\u202e é\n" * 4
    assert set(page.tags) <= {
        *("html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p", "div", "span", "b"),
        *("table", "thead", "tbody", "tr", "th", "td", "ul", "li"),
    }
    assert len(page.titles) == 4 * len("<script>&\"'</script>\x1b\u202e é\n") - 1, "all but the first"
    assert all(re.fullmatch(r"[\d.]+ bits, [\d.]+ %(\n\S+ [\d.]+ %){5}", title) for title in page.titles)
    assert not acting("".join(page.titles))
    assert "://" not in source
    assert cli("eval", awkward / "model", awkward / "a.txt", "--html", target).code == 0, "a page is replaced"


def test_a_page_of_a_long_text_is_cut_and_says_so(folder: Path, cli: CommandLine, tmp_path: Path) -> None:
    long = tmp_path / "long.txt"
    long.write_text("abc é\nfed cab\n" * 1300, encoding="utf-8")
    assert cli("eval", folder / "model", long, "--html", "page.html").code == 0
    content = (tmp_path / "page.html").read_bytes()
    assert surprise_page.TOKEN_BYTES * 0.99 < len(content) < 2_000_000
    shown_tokens = content.count(b"<span class") - 5  # those of the legend
    assert f"The first {shown_tokens + 1:,} of 18,200 tokens" in content.decode()


def test_pages_replace_nothing_else(folder: Path, cli: CommandLine, tmp_path: Path) -> None:
    precious = tmp_path / "a.txt"
    precious.write_text("abc", encoding="utf-8")
    for name in ("a.txt", "nowhere/page.html", str(tmp_path)):
        result = cli("eval", folder / "model", folder / "a.txt", "--html", name)
        assert (result.code, result.stdout) == (2, ""), name
        assert "--html" in result.stderr
    assert precious.read_text(encoding="utf-8") == "abc"


def test_temperatures_stand_side_by_side_on_a_wide_terminal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("sample", folder / "model", "-p", "abc", "-n", "60", "--seed", "1", "-t", "0.2", "-t", "1.5", "-q")
    monkeypatch.setenv("COLUMNS", "120")
    wide, _ = on_terminal(*arguments, cwd=folder)
    (heads,) = (line for line in wide.splitlines() if "temperature" in line)
    assert "temperature 0.2" in heads
    assert "temperature 1.5" in heads
    for columns, temperatures in (("90", ()), ("120", ("-t", "3", "-t", "4"))):
        monkeypatch.setenv("COLUMNS", columns)
        narrow, _ = on_terminal(*arguments, *temperatures, cwd=folder)
        assert all(line.count("temperature") <= 1 for line in narrow.splitlines())
