"""The curves of one run, or of several over each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gptcli.report.history import History, LoggedEvaluation, LoggedStep
from gptcli.report.review import RunReview
from gptcli.report.run import different_tokens
from gptcli.ui.html.chart import Chart, Line, Mark, Point
from gptcli.ui.lens import layer_names

COLORS = 8
"""Lines of a chart at most: the colors of `page.css`."""
_FIGURES: dict[str, tuple[str, Callable[[LoggedStep], float | None], bool, bool]] = {
    "Learning rate": ("per update", lambda step: step.lr, False, True),
    "Speed": ("tokens per second", lambda step: step.tokens_per_second, False, True),
    "Gradient norm": ("before clipping", lambda step: step.grad_norm, True, False),
}
"""Unit, value, and whether the axis is logarithmic or begins at 0."""


def curves(runs: Sequence[RunReview]) -> str:
    """The charts: losses, learning rate, speed and gradient norm."""
    charts = [*(_one_run(runs[0]) if len(runs) == 1 else _several(runs))]
    return f'<div class="charts">\n{"".join(chart.markup() for chart in charts)}</div>\n'


def _one_run(run: RunReview) -> Iterator[Chart]:
    history = run.history
    training = [(step.step, step.loss) for step in history.steps if step.loss is not None]
    validation = [(one.step, one.loss) for one in history.evaluations]
    lines = [Line("training", training, 0, thin=True), Line("validation", validation, 1)]
    best = [Mark(place, f"best {place[1]:.4f}", 1) for place in _best(run)]
    yield Chart("Loss", "nats per token", "step", lines, log=True, best=best, resumes=history.resumes)
    for title, (unit, value, log, from_zero) in _FIGURES.items():
        lines = [Line(title.lower(), _points(run, value, 1), 0)]
        yield Chart(title, unit, "step", lines, log=log, from_zero=from_zero, resumes=history.resumes)
    yield from _layers(history)


def _layers(history: History) -> Iterator[Chart]:
    """Norms by layer, where the run logged them: a line for each layer, or for some of many."""
    for title, unit, name in (
        ("Activations by layer", "root mean square", "activations"),
        ("Gradients by layer", "norm", "gradients"),
    ):
        found = [(step.step, getattr(step, name)) for step in history.steps if getattr(step, name)]
        count = len(found[0][1]) if found else 0
        shown = sorted({round(place * (count - 1) / (COLORS - 1)) for place in range(COLORS)}) if count else []
        names = layer_names(count)
        lines = [
            Line(names[layer], [(step, row[layer]) for step, row in found], color) for color, layer in enumerate(shown)
        ]
        some = f"; {len(shown)} of {count} shown" if len(shown) < count else ""
        yield Chart(title, unit + some, "step", lines, log=True, resumes=history.resumes)


def _several(runs: Sequence[RunReview]) -> Iterator[Chart]:
    """Charts over steps, or over tokens where a step is not the same in all runs."""
    sizes = [tokens_per_step(run) for run in runs]
    alike = len(set(sizes)) == 1
    unit, scales = ("step", [1] * len(runs)) if alike else ("tokens", sizes)
    own = list(zip(runs, scales, run_names(runs), strict=True))
    loss = _bits_per_byte if different_tokens([run.run.config for run in runs]) else _nats_per_token
    loss_unit = "nats per token" if loss is _nats_per_token else "bits per byte"
    validation, best = [], []
    for number, (run, scale, name) in enumerate(own):
        points = [(one.step * scale, found) for one in run.history.evaluations if (found := loss(one)) is not None]
        validation.append(Line(name, points, number))
        best += [Mark(point, "", number) for point in sorted(points, key=lambda point: point[1])[:1]]
    yield Chart("Validation loss", loss_unit, unit, validation, log=True, best=best)
    figures = {"Training loss": ("nats per token", lambda step: step.loss, True, False)} | _FIGURES
    for title, (value_unit, value, log, from_zero) in figures.items():
        lines = [
            Line(name, _points(run, value, scale), number, thin=True) for number, (run, scale, name) in enumerate(own)
        ]
        yield Chart(title, value_unit, unit, lines, log=log, from_zero=from_zero)


def _points(run: RunReview, value: Callable[[LoggedStep], float | None], scale: int) -> list[Point]:
    found = ((step.step * scale, value(step)) for step in run.history.steps)
    return [(x, y) for x, y in found if y is not None]


def _best(run: RunReview) -> list[tuple[int, float]]:
    """The evaluation with the lowest loss, if there is one."""
    return sorted(((one.step, one.loss) for one in run.history.evaluations), key=lambda place: place[1])[:1]


def _nats_per_token(evaluation: LoggedEvaluation) -> float | None:
    return evaluation.loss


def _bits_per_byte(evaluation: LoggedEvaluation) -> float | None:
    return evaluation.bits_per_byte


def tokens_per_step(run: RunReview) -> int:
    """Tokens of an update."""
    config = run.run.config
    return int(config["train"]["batch_size"] * config["model"]["block_size"])


def run_names(runs: Sequence[RunReview]) -> list[str]:
    """The names of runs; their paths where two have the same name."""
    names = [run.run.name for run in runs]
    return names if len(set(names)) == len(names) else [run.run.path for run in runs]
