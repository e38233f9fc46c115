"""The page of `gptcli report`: a run from top to bottom, or several runs over each other."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from gptcli.config.values import flatten
from gptcli.errors import duration, size
from gptcli.model.loss import perplexity
from gptcli.report.review import Inside, Review, RunReview
from gptcli.report.run import RunReport, different_texts, different_tokens
from gptcli.ui.console import wording
from gptcli.ui.html import inside, samples
from gptcli.ui.html.bars import memory_bar, parameter_bar
from gptcli.ui.html.chart import swatch
from gptcli.ui.html.curves import curves, run_names
from gptcli.ui.html.page import escaped, page, table
from gptcli.ui.tables import abbreviated, operations

SHORT_FROM = 1_000_000
"""Counts from here on have three digits and a prefix."""
_PER_BYTE = "<p>These runs have different tokens, so their validation losses are compared in bits per byte.</p>\n"
_OTHER_TEXTS = (
    '<p class="warning">These runs were validated on different texts: their losses do not tell which model is better.'
    "</p>\n"
)
Section = tuple[str, str]
"""Heading and markup."""


def report_page(review: Review) -> str:
    """The page of a review."""
    names = run_names(review.runs)
    title = ", ".join(names)
    if len(review.runs) == 1:
        head, sections = _head(review.runs[0]), _sections(review.runs[0])
    else:
        head = f'<p class="note">{len(names)} runs side by side.</p>\n'
        sections = _comparison(review, names)
    links = "".join(f'<li><a href="#{_anchor(name)}">{escaped(name)}</a></li>' for name, _ in sections)
    body = "".join(_section(*section) for section in sections)
    return page(
        f"{title} – gptcli",
        f'<a class="skip" href="#main">Skip to the content</a>\n<header><h1>{escaped(title)}</h1>\n{head}'
        f'<nav aria-label="Sections"><ul>{links}</ul></nav></header>\n<main id="main">\n{body}</main>\n',
        scripted=True,
    )


def _section(name: str, content: str) -> str:
    anchor = _anchor(name)
    return f'<section aria-labelledby="{anchor}">\n<h2 id="{anchor}">{escaped(name)}</h2>\n{content}</section>\n'


def _anchor(name: str) -> str:
    return name.lower().replace(" ", "-").replace(",", "")


def _head(review: RunReview) -> str:
    run, history = review.run, review.history
    summary, speeds = run.summary, sorted(one.tokens_per_second or 0 for one in history.steps)
    state = f"finished: {wording.get()(run.why_finished)}" if summary.state == "finished" else summary.state
    total = run.model.parameters.total
    model = run.config["model"]
    shape = f"{model['n_layer']} layers of {model['n_head']} heads, {model['n_embd']:,} wide"
    tiles: list[tuple[str, str, str]] = []
    if summary.best_val_loss is not None:
        best = f"nats per token, at step {summary.best_step:,}; perplexity {perplexity(summary.best_val_loss):,.2f}"
        if summary.best_bits_per_byte is not None:
            best += f"; {summary.best_bits_per_byte:.3f} bits per byte"
        tiles.append(("Best validation loss", f"{summary.best_val_loss:.4f}", best))
    of = f"of {summary.max_steps:,}" if summary.max_steps else ""
    tiles += [
        ("Parameters", _short(total), shape),
        ("Steps", f"{summary.step or 0:,}", of),
        ("Tokens", _short(run.tokens), f"{run.tokens / total:,.1f} per parameter"),
        ("Training time", duration(run.seconds), ""),
    ]
    if speeds:
        tiles.append(("Speed", _short(round(speeds[len(speeds) // 2])), "tokens per second, the median"))
    boxes = "".join(
        f"<div><dt>{name}</dt><dd>{value}<small>{escaped(more)}</small></dd></div>" for name, value, more in tiles
    )
    notes = "".join(f'<p class="warning">{escaped(note)}</p>\n' for note in review.notes)
    return (
        f'<p class="note">Preset {escaped(summary.preset)} on {escaped(run.data)} · {escaped(state)}</p>\n{notes}'
        f'<dl class="tiles">{boxes}</dl>\n'
    )


def _sections(review: RunReview) -> list[Section]:
    parts = [("Curves", curves([review]))]
    if review.history.samples:
        parts.append(("Samples over time", samples.over_time(review.history)))
    parts += _inside(review.inside) if review.inside else []
    return [
        *parts,
        ("Size", parameter_bar(review.run.model.parameters) + memory_bar(review.run.model.memory)),
        ("Recipe", _recipe(review.run)),
        ("Repeat this run", _commands(review.run)),
    ]


def _inside(found: Inside) -> list[Section]:
    count = len(found.attention.tokens)
    return [
        (
            "Samples by surprise",
            "<p>Two texts that the best weights generated for this page. Colors show the surprise of each token; "
            "point at it, or use the arrow keys, for the five tokens that were likeliest in its place. A training with "
            "<code>--sample-every 100</code> keeps samples over time too.</p>\n" + samples.by_surprise(found.samples),
        ),
        (
            "Attention",
            f"<p>How much each token takes from those before it, in {found.attention.layers} layers (rows) of "
            f"{found.attention.heads} heads. Each name is a layer, a head, and what it mostly looks at, a mean over "
            f"{count:,} tokens.</p>\n" + inside.attention(found.attention),
        ),
        (
            "Logit lens",
            "<p>The next token that the model would predict if it ended after the embedding or after a block, with its "
            "probability in %. Underlined: the token that comes next.</p>\n" + inside.lens(found.lens),
        ),
        ("Neighbors in the embedding", inside.neighbors(found.neighbors)),
        (
            "Norms by layer",
            "<p>The size of the residual stream after each block for the same text, and the norm of its gradient: "
            "where gradients vanish, the right curve falls towards the first block.</p>\n" + inside.norms(found.norms),
        ),
        ("Positions", inside.positions(found.positions)),
    ]


def _recipe(run: RunReport) -> str:
    sections = []
    for name, values in run.config.items():
        if isinstance(values, dict):
            rows = [(escaped(key), _value(value)) for key, value in flatten(values).items() if value not in (None, [])]
            sections.append(f"<div><h3>{escaped(name)}</h3>{table(('setting', 'value'), rows)}</div>")
    data = f"<p>Data: <strong>{escaped(run.data)}</strong>, fingerprint {escaped(run.data_fingerprint[:16])}…</p>\n"
    return f'{data}<div class="columns">{"".join(sections)}</div>\n'


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return escaped(", ".join(map(str, value)))
    return escaped(f"{value:g}" if isinstance(value, float) else value)


def _commands(run: RunReport) -> str:
    path = shlex.quote(run.path)
    lines = [
        f"gptcli train -c {path}/gptcli.toml DATA -o {shlex.quote(run.path + '-again')}",
        f"gptcli sample {path}",
        f"gptcli inspect {path}",
        f"gptcli report {path}",
    ]
    commands = "\n".join(map(escaped, lines))
    return (
        f"<p>The first command repeats the training; in place of DATA give the text or dataset "
        f"<strong>{escaped(run.data)}</strong>. On a CPU with as many threads and the same torch, the weights are "
        f"equal to the last bit.</p>\n<pre><code>{commands}</code></pre>\n"
    )


def _comparison(review: Review, names: Sequence[str]) -> list[Section]:
    rows = [
        (
            swatch(place) + escaped(name),
            escaped(one.run.summary.state),
            "–" if one.run.summary.best_val_loss is None else f"{one.run.summary.best_val_loss:.4f}",
            "–" if one.run.summary.best_bits_per_byte is None else f"{one.run.summary.best_bits_per_byte:.4f}",
            "–" if one.run.summary.best_step is None else f"{one.run.summary.best_step:,}",
            f"{one.run.summary.step or 0:,}",
            _short(one.run.tokens),
            f"{one.run.model.parameters.total:,}",
            "–" if one.run.summary.flops is None else operations(one.run.summary.flops),
            duration(one.run.seconds),
            size(one.run.summary.bytes),
        )
        for place, (name, one) in enumerate(zip(names, review.runs, strict=True))
    ]
    results = "best loss", "bits per byte", "at step", "steps", "tokens", "parameters", "FLOPs", "time", "size"
    settings = [(escaped(one.key), *(_cell(value) for value in one.values)) for one in review.differences]
    texts = "".join(
        f"<h3>{escaped(name)}</h3>\n{samples.last(one.history)}" for name, one in zip(names, review.runs, strict=True)
    )
    notes = "".join(f'<p class="warning">{escaped(note)}</p>\n' for one in review.runs for note in one.notes)
    notes += _OTHER_TEXTS if different_texts([one.run for one in review.runs]) else ""
    different = table(("setting", *map(escaped, names)), settings) if settings else "<p>None.</p>\n"
    return [
        ("Runs", notes + table(("run", "state", *results), rows, range(2, 11))),
        (
            "Curves",
            (_PER_BYTE if different_tokens([one.run.config for one in review.runs]) else "") + curves(review.runs),
        ),
        ("Settings that differ", different),
        ("Last samples", texts),
    ]


def _cell(value: Any) -> str:
    return "–" if value is None else _value(value)


def _short(count: int) -> str:
    """89,328 → 89,328; 125,000,000 → 125 M."""
    return f"{count:,}" if count < SHORT_FROM else abbreviated(count)
