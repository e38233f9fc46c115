"""Generated texts: those of a run's log over time, and new ones whose tokens are colored by surprise."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from gptcli.generation.stream import Sample
from gptcli.report.history import History, LoggedSample
from gptcli.ui.console import on_terminal
from gptcli.ui.html.page import data, escaped
from gptcli.ui.html.surprise import legend
from gptcli.ui.surprise import level, visible
from gptcli.ui.tokens import shown

MOST_SAMPLES, MOST_CHARACTERS = 9, 400


def over_time(history: History) -> str:
    """Samples of the log, at most nine: the first, the last, and some between."""
    shown, count = chosen(history.samples), len(history.samples)
    note = f'<p class="note">{len(shown)} of {count:,} samples.</p>\n' if count > len(shown) else ""
    return f'{note}<div class="cards">\n{"".join(_card(one, history) for one in shown)}</div>\n'


def last(history: History) -> str:
    """The last sample of the log."""
    return (
        "".join(_card(one, history) for one in history.samples[-1:]) or '<p class="note">The log has no samples.</p>\n'
    )


def chosen(samples: Sequence[LoggedSample]) -> list[LoggedSample]:
    """At most `MOST_SAMPLES`, the first and the last among them; early ones lie closer, where more changes."""
    if len(samples) <= MOST_SAMPLES:
        return list(samples)
    wanted = (round((len(samples) - 1) * (number / (MOST_SAMPLES - 1)) ** 2) for number in range(MOST_SAMPLES))
    return [samples[max(number, place)] for number, place in enumerate(wanted)]


def _card(sample: LoggedSample, history: History) -> str:
    losses = [one.loss for one in history.evaluations if one.step <= sample.step]
    loss = f" · validation loss {losses[-1]:.3f}" if losses else ""
    cut = "…" if len(sample.text) > MOST_CHARACTERS else ""
    text = escape(on_terminal(sample.text[:MOST_CHARACTERS]).strip("\n"))
    return (
        f'<article class="card"><h3>Step {sample.step:,}<span>{loss}</span></h3><div class="text">{text}{cut}</div>'
        "</article>\n"
    )


def by_surprise(samples: Sequence[Sample]) -> str:
    """New samples with a color for each token, and for the script what else was likely there."""
    return legend() + "".join(_colored(sample) for sample in samples)


def _colored(sample: Sample) -> str:
    tokens = "".join(
        f'<span class="s{level(token)}" data-token="{place}">{escape(visible(token))}</span>'
        for place, token in enumerate(sample.logprobs)
    )
    values = [
        {
            "token": shown(token),
            "bits": round(token.bits, 3),
            "p": round(token.probability, 5),
            "top": [[shown(other), round(other.probability, 5)] for other in token.alternatives],
        }
        for token in sample.logprobs
    ]
    name = f"sample-{sample.index}"
    label = f"Sample {sample.index + 1}; the arrow keys go from token to token"
    return (
        f'<div class="card wide"><h3>Seed {sample.seed}</h3><div class="text" tabindex="0" role="group" '
        f'aria-label="{escaped(label)}" data-surprise="{name}">{tokens}</div></div>\n{data(values, name)}'
    )
