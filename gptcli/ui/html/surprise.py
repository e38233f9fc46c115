"""The tokens of texts by surprise as one HTML file, without scripts and without other files."""

from __future__ import annotations

import math
from html import escape
from pathlib import Path

from gptcli.generation.logprobs import TokenLogprob
from gptcli.generation.surprise import Place, Surprise, TextSurprise
from gptcli.ui.html.page import escaped, page
from gptcli.ui.surprise import level, level_names, visible
from gptcli.ui.tokens import shown

TOKEN_BYTES = 1_900_000
"""Size of all tokens of a page: with the rest of it less than 2 MB, which a browser opens at once."""


def surprise_page(surprise: Surprise, run: Path) -> str:
    """The page: figures, a legend, and for each text its most surprising places and its shaded tokens."""
    names = ", ".join(text.score.name for text in surprise.texts[:3]) + (", …" if len(surprise.texts) > 3 else "")
    title = f"What surprises {run} in {names}"
    budget, sections = TOKEN_BYTES, []
    for text in surprise.texts:
        tokens, count = _tokens(text, budget)
        budget -= len(tokens.encode())
        sections.append(_section(text, tokens, count))
    body = (
        f"<h1>{escaped(title)}</h1>\n{legend()}"
        '<p class="note">Point at a token for its bits and the tokens that the model found likeliest.</p>\n'
        f"{''.join(sections)}"
    )
    return page(title, body)


def legend() -> str:
    """The colors of tokens, and the surprise that they stand for."""
    names = "".join(f'<li><span class="s{place}">{name}</span></li>' for place, name in enumerate(level_names()))
    return f'<ul class="legend"><li>Bits per token:</li>{names}</ul>\n'


def _section(text: TextSurprise, tokens: str, count: int) -> str:
    score = text.score
    figures = (
        f"{score.tokens:,} tokens · {score.loss:.4f} nats per token · perplexity {score.perplexity:.2f} · "
        f"{score.bits_per_byte:.4f} bits per byte"
    )
    cut = f'<p class="note">The first {count:,} of {len(text):,} tokens.</p>\n' if count < len(text) else ""
    return (
        f"<h2>{escaped(score.name)}</h2>\n<p>{figures}</p>\n<h3>Most surprising places</h3>\n"
        '<div class="table"><table>\n<tr><th class="n">line</th><th class="n">bits</th><th>place</th>'
        f"<th>expected</th></tr>\n{''.join(map(_place, text.places()))}</table></div>\n"
        f'<h3>Text</h3>\n{cut}<div class="text">{tokens}</div>\n'
    )


def _place(place: Place) -> str:
    before, after = escaped(place.before), escaped(place.after)
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
