"""Parts of a whole as one bar with a legend."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gptcli.errors import size
from gptcli.report.model import Memory, Parameters
from gptcli.ui.html.page import escaped
from gptcli.ui.tables import share

_COLORS = 8


def parameter_bar(parameters: Parameters) -> str:
    """Parameters by part of the model."""
    groups = {one.name: one.count for one in parameters.subtotals if one.count}
    return _bar("Parameters by part", groups, lambda count: f"{count:,}")


def memory_bar(memory: Memory) -> str:
    """Peak memory of training by purpose."""
    how = f"on {memory.device} in {memory.dtype}, {memory.training_sequences:,} sequences at once"
    purposes = {name: count for name, count in vars(memory.training).items() if count}
    return _bar(f"Peak memory of training {how}", purposes, size)


def _bar(title: str, parts: Mapping[str, int], in_words: Callable[[int], str]) -> str:
    whole = sum(parts.values())
    rows = [(name, in_words(count), share(count / whole)) for name, count in parts.items()]
    spans = "".join(
        f'<span class="f{place % _COLORS}" style="flex:{count}" title="{escaped(f"{name}: {words}, {part}")}"></span>'
        for place, (count, (name, words, part)) in enumerate(zip(parts.values(), rows, strict=True))
    )
    legend = "".join(
        f'<li><i class="swatch box f{place % _COLORS}"></i>{escaped(name)} {words} ({part})</li>'
        for place, (name, words, part) in enumerate(rows)
    )
    label = escaped(f"{title}: {', '.join(f'{name} {words}' for name, words, _ in rows)}")
    return (
        f"<h3>{escaped(title)}: {escaped(in_words(whole))}</h3>\n"
        f'<div class="bar" role="img" aria-label="{label}">{spans}</div>\n<ul class="legend">{legend}</ul>\n'
    )
