"""The page of `gptcli report`, read as markup. test_pages_in_browser.py looks at it in a browser."""

from __future__ import annotations

import base64
import html.parser
import json
import re
import webbrowser
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import gptcli
from gptcli.cli.app import app
from gptcli.generation.attention import AttentionMaps
from gptcli.report.history import LoggedSample
from gptcli.report.review import Review
from gptcli.ui.html import inside, samples
from gptcli.ui.html.axes import label, linear, logarithmic
from gptcli.ui.html.chart import MOST_POINTS, Chart, Line
from gptcli.ui.html.curves import curves
from gptcli.ui.html.page import PAGE_BYTES
from gptcli.ui.html.report import report_page
from tests.conftest import Result
from tests.report.awkward_run import MARKUP, STEADY, awkward_run
from tests.runs import small_runs


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return awkward_run(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def review(run: Path) -> Review:
    return gptcli.review(run, text=MARKUP)


class Markup(html.parser.HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] not in ("script", "style"):
            self.text += data

    def values(self, name: str) -> list[str]:
        return [value or "" for _, attributes in self.elements for key, value in attributes.items() if key == name]


def test_the_page_holds_what_the_review_has(review: Review) -> None:
    page = report_page(review)
    found = Markup(page)
    best = review.runs[0].run.summary.best_val_loss
    for text in (f"{best:.4f}", "a <b> & c", "resumed", "learned", "n_embd", "Head 0.0"):
        assert text in found.text, text
    titles = [name for name, _ in found.elements]
    assert titles.count("h1") == 1
    assert len(page.encode()) < PAGE_BYTES
    assert "gptcli train -c" in found.text


def test_nothing_of_a_run_becomes_markup(review: Review) -> None:
    page = report_page(review)
    found = Markup(page)
    assert MARKUP in found.text
    assert "window.bad" not in "".join(re.findall(r"<script>(.*?)</script>", page, re.DOTALL))
    assert all("<" not in text for text in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page))
    scripts = [attributes for name, attributes in found.elements if name == "script"]
    assert [one for one in scripts if one.get("type") != "application/json"] == [{}], "one script of our own"
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_nothing_is_loaded_from_elsewhere(review: Review) -> None:
    page = report_page(review)
    found = Markup(page)
    assert not {name for name, _ in found.elements} & {"img", "link", "iframe", "object", "embed", "base", "form"}
    assert [*found.values("src"), *found.values("srcset"), *found.values("action")] == []
    assert all(address.startswith("#") for address in found.values("href"))
    assert "://" not in page
    assert "url(" not in page
    [policy] = [attributes["content"] for _, attributes in found.elements if "http-equiv" in attributes]
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_links_have_targets_and_pictures_have_names(review: Review) -> None:
    found = Markup(report_page(review))
    ids = found.values("id")
    assert len(ids) == len(set(ids))
    assert {address.removeprefix("#") for address in found.values("href")} <= set(ids)
    pictures = [attributes for _, attributes in found.elements if attributes.get("role") == "img"]
    assert len(pictures) >= 8
    assert all(attributes.get("aria-label") for attributes in pictures)


def data_of(page: str, name: str) -> Any:
    found = re.search(rf'id="{name}">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_tokens_have_their_likeliest_alternatives(review: Review) -> None:
    look = review.runs[0].inside
    assert look is not None
    values = data_of(report_page(review), "sample-0")
    tokens = look.samples[0].logprobs
    assert [one["bits"] for one in values] == pytest.approx([token.bits for token in tokens], abs=0.001)
    assert [len(one["top"]) for one in values] == [5] * len(tokens)


def test_attention_of_the_page(review: Review) -> None:
    look = review.runs[0].inside
    assert look is not None
    values = data_of(report_page(review), "attention-data")
    T = len(values["tokens"])
    assert (T, values["windows"]) == (16, [16])
    for place, head in enumerate(values["heads"]):
        p = np.frombuffer(base64.b64decode(head["p"]), np.uint8).reshape(T, T) / 255
        np.testing.assert_allclose(p, look.attention.probabilities[0, place], atol=0.002)
        steps = np.frombuffer(base64.b64decode(head["s"]), np.uint8).reshape(T, T) / 255
        scores = head["lo"] + steps * (head["hi"] - head["lo"])
        np.testing.assert_allclose(scores, look.attention.scores[0, place], atol=0.01 * (head["hi"] - head["lo"]))


def test_many_heads_get_smaller_maps(review: Review) -> None:
    look = review.runs[0].inside
    assert look is not None
    T = 16
    flat = np.tril(np.ones((T, T))) / np.arange(1, T + 1)[:, None]
    deep = np.broadcast_to(flat, (48, 40, T, T))
    maps = AttentionMaps(look.attention.tokens, deep, np.broadcast_to(flat > 0, (48, T, T)), deep)
    section = inside.attention(maps)
    assert len(section.encode()) < PAGE_BYTES / 2
    assert len(data_of(section, "attention-data")["tokens"]) == 10


def test_a_run_without_samples_and_without_weights(tmp_path: Path) -> None:
    path = tmp_path / "run"
    small_runs.run(small_runs.small_dataset(tmp_path / "text", "the cat sat on the mat\n" * 200), path, STEADY)
    (path / "metrics.jsonl").write_text("", encoding="utf-8")
    [one] = gptcli.review(path).runs
    page = report_page(Review((replace(one, inside=None),), ()))
    assert "Samples over time" not in page
    assert 'id="attention-data"' not in page


def test_several_runs(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    dataset = small_runs.small_dataset(tmp_path / "text", "the cat sat on the mat\n" * 200)
    small_runs.run(dataset, other, STEADY | {"train.batch_size": 8, "train.micro_batch_size": 8})
    page = report_page(gptcli.review(run, other))
    found = Markup(page)
    assert "train.batch_size" in found.text
    charts = [json.loads(text) for text in re.findall(r'<script type="application/json">(.*?)</script>', page)]
    assert all(chart["names"] == ["a <b> & c", "other"] for chart in charts)
    assert charts[0]["unit"] == "tokens", "a step is not the same in both"
    assert [points[-1][0] for points in charts[0]["xs"]] == [20 * 4 * 16, 20 * 8 * 16]
    assert "in bits per byte" in found.text, "they have different characters"
    alike = report_page(gptcli.review(run, run))
    assert '"unit":"step"' in alike
    assert "in bits per byte" not in alike
    assert MARKUP not in alike


@pytest.mark.parametrize(
    ("changed", "differ"),
    [
        ({}, False),
        ({"data": "other"}, False),  # the same text under another name
        ({"data_fingerprint": "0" * 64}, True),
        ({"data_fingerprint": "0" * 64, "vocab_size": 500}, False),  # perhaps the same text with other tokens
        ({"data_fingerprint": "0" * 64, "vocab_size": 500, "data": "other"}, True),
    ],
)
def test_runs_on_different_texts(run: Path, changed: dict[str, Any], differ: bool) -> None:
    both = gptcli.review(run, run)
    report, values = both.runs[1].run, dict(changed)
    config = report.config | {"model": report.config["model"] | {"vocab_size": values.pop("vocab_size", 9)}}
    one = replace(both.runs[0], run=replace(report, config=config | {"model": config["model"] | {"vocab_size": 9}}))
    other = replace(both.runs[1], run=replace(report, config=config, **values))
    assert ("different texts" in report_page(replace(both, runs=(one, other)))) == differ


def test_layers_are_curves_where_they_are_logged(review: Review) -> None:
    [one] = review.runs
    assert "by layer" not in curves([one])
    rows = tuple(float(layer + 1) for layer in range(25))
    steps = tuple(replace(step, activations=rows, gradients=rows) for step in one.history.steps)
    markup = curves([replace(one, history=replace(one.history, steps=steps))])
    charts = re.findall(r'json">(\{"names":\["embedding.*?)</script>', markup)
    assert len(charts) == 2
    assert "8 of 25 shown" in markup
    names = json.loads(charts[0])["names"]
    assert names == ["embedding", "block 2", "block 6", "block 9", "block 13", "block 16", "block 20", "block 23"]


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 1000, (0, 200, 400, 600, 800, 1000)),
        (0, 0.01, (0, 0.002, 0.004, 0.006, 0.008, 0.01)),
        (-0.03, 1, (-0.2, 0, 0.2, 0.4, 0.6, 0.8, 1)),
        (5, 5, (5, 6, 7, 8, 9, 10)),
        (0, 0, (0, 0.2, 0.4, 0.6, 0.8, 1)),
    ],
)
def test_linear_ticks(low: float, high: float, ticks: tuple[float, ...]) -> None:
    scale = linear(low, high, 0, 100)
    assert scale.ticks == pytest.approx(ticks)
    assert (scale.place(scale.low), scale.place(scale.high)) == (0, 100)
    assert scale.low <= low <= high <= scale.high


@pytest.mark.parametrize(("low", "high"), [(1.6, 4.8), (1e-3, 2e5), (2.31, 2.33), (0.5, 1.7), (1.5985, 10.8), (3, 3)])
def test_logarithmic_ticks(low: float, high: float) -> None:
    scale = logarithmic(low, high, 0, 100)
    assert 2 <= len(scale.ticks) <= 8
    assert all(scale.low <= tick <= scale.high for tick in scale.ticks)
    assert all(len(label(tick)) <= 7 for tick in scale.ticks)
    assert 0 <= scale.place(low) <= scale.place(high) <= 100
    if high > low:
        middle = (low * high) ** 0.5
        assert scale.place(middle) == pytest.approx((scale.place(low) + scale.place(high)) / 2)


def test_tick_labels() -> None:
    assert [label(tick) for tick in (0, 0.004, 1.25, 2000, 1e-5, 2.5e6)] == [
        "0",
        "0.004",
        "1.25",
        "2,000",
        "1e-05",
        "2.5 M",
    ]


def test_long_curves_are_averaged_and_show_their_range() -> None:
    points = [(float(x), 1.0 + x % 2) for x in range(10 * MOST_POINTS)]
    markup = Chart("Loss", "nats", "step", [Line("training", points, 0)]).markup()
    [values] = [json.loads(text) for text in re.findall(r'<script type="application/json">(.*?)</script>', markup)]
    assert len(values["xs"][0]) == MOST_POINTS
    assert {y for _, y in values["xs"][0]} == {1.5}
    assert 'class="band' in markup
    short = Chart("Loss", "nats", "step", [Line("training", points[:100], 0)]).markup()
    assert 'class="band' not in short


def test_ticks_of_counts_are_whole_numbers() -> None:
    markup = Chart(
        "Similarity", "cosine", "distance in tokens", [Line("similarity", [(0, 1.0), (15, 0.5)], 0)]
    ).markup()
    ticks = re.findall(r'text-anchor="middle">([^<]+)<', markup)
    assert ticks == ["0", "5", "10", "15"]


def test_a_chart_without_points_is_left_out() -> None:
    assert Chart("Loss", "nats", "step", [Line("training", [], 0)]).markup() == ""


def test_windows_line_ends_of_samples_are_line_ends(review: Review) -> None:
    text = "one\r\ntwo\rthree"
    history = replace(review.runs[0].history, samples=(LoggedSample(1, text),))
    assert "one\ntwo\\x0dthree" in samples.over_time(history)


def test_chosen_samples() -> None:
    all_of_them = [LoggedSample(step, "") for step in range(50)]
    chosen = [sample.step for sample in samples.chosen(all_of_them)]
    assert (chosen[0], chosen[-1], len(chosen)) == (0, 49, 9)
    for count in range(10, 51):
        steps = [sample.step for sample in samples.chosen(all_of_them[:count])]
        assert steps == sorted(set(steps))
        assert (steps[0], steps[-1], len(steps)) == (0, count - 1, 9), count
    assert samples.chosen(all_of_them[:4]) == all_of_them[:4]


def report(folder: Path, *arguments: str | Path) -> Result:
    """The command in this process, in `folder`."""
    with chdir(folder):
        done = CliRunner().invoke(app, ["report", *map(str, arguments)])
    return Result(done.exit_code, done.stdout, done.stderr)


def test_the_command(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    result = report(tmp_path, run)
    assert (result.code, result.stdout) == (0, "report.html\n"), result.stderr
    assert report(tmp_path, run, run, "-o", "two.html").code == 0
    assert opened == []
    assert report(tmp_path, run, "--open").code == 0, "an earlier page is replaced"
    assert opened == [(tmp_path / "report.html").as_uri()]


def test_refusals_of_the_command(run: Path, tmp_path: Path) -> None:
    (tmp_path / "precious.html").write_text("mine", encoding="utf-8")
    for arguments, named in [
        ((run, "-o", "precious.html"), "--out"),
        ((run, "-o", "nowhere/page.html"), "--out"),
        ((tmp_path,), "run folder"),
        ((run, run, "--text", "ab"), "--text"),
        ((), "runs/"),
    ]:
        result = report(tmp_path, *arguments)
        assert (result.code, result.stdout) == (2, ""), arguments
        assert named in result.stderr
    assert (tmp_path / "precious.html").read_text(encoding="utf-8") == "mine"
