"""The tokens of texts by surprise as one HTML file, without scripts and without other files."""

from __future__ import annotations

import math
from html import escape
from pathlib import Path

from gptcli.errors import StorageError, UsageError
from gptcli.generation.logprobs import TokenLogprob
from gptcli.generation.surprise import Place, Surprise, TextSurprise
from gptcli.paths import output_path
from gptcli.storage import disk_errors, write_file
from gptcli.ui.console import one_line
from gptcli.ui.surprise import level, level_names, visible
from gptcli.ui.tokens import shown

TOKEN_BYTES = 1_900_000
"""Size of all tokens of a page: with the rest of it less than 2 MB, which a browser opens at once."""
_MARK = '<meta name="generator" content="gptcli">'
_HEAD_BYTES = 1000
_STYLE = """\
:root { color-scheme: light dark; --s1: #fff1c4; --s2: #ffd27a; --s3: #ff9a52; --s4: #c62828; --dim: #666; }
@media (prefers-color-scheme: dark) { :root { --s1: #3d3518; --s2: #65500f; --s3: #96480b; --dim: #999; } }
body { font: 1rem/1.6 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
h1, h2, h3 { line-height: 1.2; overflow-wrap: anywhere; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; font-family: ui-monospace, monospace; }
.s1 { background: var(--s1); } .s2 { background: var(--s2); } .s3 { background: var(--s3); }
.s4 { background: var(--s4); color: #fff; }
.legend span { padding: 0 .4em; white-space: nowrap; }
.table { overflow-x: auto; } table { border-collapse: collapse; }
td, th { padding: .1em .8em .1em 0; text-align: left; vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
.note { color: var(--dim); }
"""


def page_path(given: str) -> Path:
    """The path of a page to write. Raises UsageError where that would replace a file that is no such page."""
    path = output_path(given)
    if not path.parent.is_dir():
        raise UsageError(f"`html` is '{path}', and there is no folder '{path.parent}'.", "Make the folder first.")
    if path.is_dir():
        raise UsageError(f"`html` is '{path}', a folder.", "Name a file in it.")
    if path.exists():
        with disk_errors(path, "Reading", "`html`"), open(path, "rb") as file:
            is_page = _MARK.encode() in file.read(_HEAD_BYTES)
        if not is_page:
            raise UsageError(f"`html` is '{path}', a file that gptcli did not make.", "Choose another name.")
    return path


def write_page(path: Path, surprise: Surprise, run: Path) -> None:
    """Write the page, or replace an earlier one. Raises StorageError."""
    try:
        write_file(path, page(surprise, run).encode())
    except StorageError as error:
        error.hint = error.hint.replace("`out`", "`html`")
        raise


def page(surprise: Surprise, run: Path) -> str:
    """The page: figures, a legend, and for each text its most surprising places and its shaded tokens."""
    names = ", ".join(text.score.name for text in surprise.texts[:3]) + (", …" if len(surprise.texts) > 3 else "")
    title = escape(one_line(f"What surprises {run} in {names}"))
    legend = " ".join(f'<span class="s{place}">{name}</span>' for place, name in enumerate(level_names()))
    budget, sections = TOKEN_BYTES, []
    for text in surprise.texts:
        tokens, count = _tokens(text, budget)
        budget -= len(tokens.encode())
        sections.append(_section(text, tokens, count))
    return (
        f'<!doctype html>\n<html lang="">\n<head>\n<meta charset="utf-8">\n{_MARK}\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>\n{_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        f'<p class="legend">Bits per token: {legend}</p>\n'
        '<p class="note">Point at a token for its bits and the tokens that the model found likeliest.</p>\n'
        f"{''.join(sections)}</body>\n</html>\n"
    )


def _section(text: TextSurprise, tokens: str, count: int) -> str:
    score = text.score
    figures = (
        f"{score.tokens:,} tokens · {score.loss:.4f} nats per token · perplexity {score.perplexity:.2f} · "
        f"{score.bits_per_byte:.4f} bits per byte"
    )
    cut = f'<p class="note">The first {count:,} of {len(text):,} tokens.</p>\n' if count < len(text) else ""
    return (
        f"<h2>{escape(one_line(score.name))}</h2>\n<p>{figures}</p>\n<h3>Most surprising places</h3>\n"
        '<div class="table"><table>\n<tr><th class="n">line</th><th class="n">bits</th><th>place</th>'
        f"<th>expected</th></tr>\n{''.join(map(_place, text.places()))}</table></div>\n"
        f'<h3>Text</h3>\n{cut}<div class="text">{tokens}</div>\n'
    )


def _place(place: Place) -> str:
    before, after = escape(one_line(place.before)), escape(one_line(place.after))
    token, expected = escape(shown(place.token)), escape(shown(place.token.alternatives[0]))
    return (
        f'<tr><td class="n">{place.line:,}</td><td class="n">{place.token.bits:.2f}</td><td class="text">{before}'
        f'<b class="s{level(place.token)}">{token}</b>{after}</td><td class="text">{expected}</td></tr>\n'
    )


def _tokens(text: TextSurprise, budget: int) -> tuple[str, int]:
    """The tokens of a text, as many as fit into `budget` bytes, and their number."""
    parts: list[str] = []
    for token in text:
        part = _token(token)
        budget -= len(part.encode())
        if budget < 0:
            break
        parts.append(part)
    return "".join(parts), len(parts)


def _token(token: TokenLogprob) -> str:
    if math.isnan(token.logprob):
        return escape(visible(token))
    likeliest = (f"{shown(one)} {100 * one.probability:.1f} %" for one in token.alternatives)
    lines = (f"{token.bits:.2f} bits, {100 * token.probability:.1f} %", *likeliest)
    title = "&#10;".join(map(escape, lines))
    return f'<span class="s{level(token)}" title="{title}">{escape(visible(token))}</span>'
