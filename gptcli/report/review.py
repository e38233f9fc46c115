"""A run, or several to compare, as `gptcli report` shows them: its log, its recipe, and what the model does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gptcli.checkpoints import names
from gptcli.checkpoints.finding import find_model
from gptcli.checkpoints.run_folder import is_run, newest_run
from gptcli.config.values import flatten
from gptcli.errors import ModelFolderError, UsageError
from gptcli.generation.attention import AttentionMaps
from gptcli.generation.lens import LogitLens, Neighbors
from gptcli.generation.loaded_model import LoadedModel, load
from gptcli.generation.norms import LayerNorms, layer_norms
from gptcli.generation.positions import PositionEncoding, position_encoding
from gptcli.generation.stream import Sample
from gptcli.report.history import History, read_history
from gptcli.report.model import Basis
from gptcli.report.run import RunReport, describe_run

SAMPLES, SAMPLE_TOKENS, ALTERNATIVES = 2, 160, 5
"""Texts that are generated for a review, their length, and the likeliest tokens that are kept at each step."""
NEIGHBOR_TOKENS = 6
"""Tokens of a text whose neighbors are looked up: the most frequent ones."""
SEED = 1
MOST_RUNS = 8


@dataclass(frozen=True)
class Inside:
    """A trained model at work: texts that it generates, and its inside while it reads one."""

    samples: tuple[Sample, ...]
    """Texts from an empty prompt, generated for this review with fixed seeds, with the likeliest tokens."""
    text: str
    """The text of `attention`, `lens` and `norms`: the one that was given, or the first sample."""
    attention: AttentionMaps
    lens: LogitLens
    neighbors: tuple[Neighbors, ...]
    """Of the most frequent tokens of the text."""
    norms: LayerNorms
    positions: PositionEncoding


@dataclass(frozen=True)
class RunReview:
    run: RunReport
    history: History
    inside: Inside | None
    """None where several runs are reviewed, and where there are no weights that can be used."""
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Setting:
    """A setting in which runs differ."""

    key: str
    values: tuple[Any, ...]
    """Its value in each run."""


@dataclass(frozen=True)
class Review:
    runs: tuple[RunReview, ...]
    differences: tuple[Setting, ...]
    """Settings that are not the same in all runs."""


def review(*runs: str | Path, text: str | None = None, quiet: bool = True) -> Review:
    """Read one run, or several to compare; default: the newest. Nothing in their folders changes.

    A run may be in training. For a single one the model is loaded on the CPU, generates two texts, and reads `text`
    (default: the first of these) for attention, logit lens and neighbors.

    Raises UsageError for what is no run, and GptcliError for a run that cannot be read.

    >>> review("runs/book").runs[0].history.evaluations[-1].loss  # doctest: +SKIP
    """
    paths = _run_folders(runs, quiet=quiet)
    if len(paths) > 1 and text is not None:
        raise UsageError("`text` goes with a single run.", "Leave it out, or name one run.")
    reviewed = tuple(_review(path, text, inside=len(paths) == 1) for path in paths)
    return Review(reviewed, _differences([one.run for one in reviewed]))


def _run_folders(runs: Sequence[str | Path], *, quiet: bool) -> list[Path]:
    newest = newest_run(names.RUNS_ROOT) if not runs else None
    paths = [find_model(run, quiet=quiet) for run in runs] or ([] if newest is None else [newest])
    if not paths:
        raise UsageError("There is no run under runs/ yet.", "Train one, or name a run folder.")
    if len(paths) > MOST_RUNS:
        raise UsageError(
            f"{len(paths):,} runs were given.", f"Give {MOST_RUNS} at most: more curves cannot be told apart."
        )
    for path in paths:
        if not is_run(path):
            raise UsageError(f"'{path}' is no run folder.", "Name the folder of a run, such as runs/book.")
    return paths


def _review(path: Path, text: str | None, *, inside: bool) -> RunReview:
    report = describe_run(path, Basis())
    notes = list(report.notes)
    found = None
    if inside:
        try:
            model = load(path, device="cpu", dtype="float32")
            found = look_inside(model, text)
            notes += model.notes
        except ModelFolderError as error:
            notes.append(f"The model cannot be shown: {error.message}")
    return RunReview(report, read_history(path), found, tuple(dict.fromkeys(notes)))


def look_inside(model: LoadedModel, text: str | None = None) -> Inside:
    """Two texts with fixed seeds, and the inside of a model while it reads a text (default: the first of these).

    Raises as `LoadedModel.attention` does.
    """
    samples = model.generate("", max_new_tokens=SAMPLE_TOKENS, num_samples=SAMPLES, seed=SEED, logprobs=ALTERNATIVES)
    used = text if text is not None else _long_enough([sample.text for sample in samples], model)
    attention = model.attention(used)
    frequent = [text for text, _ in Counter(token.text for token in attention.tokens).most_common()]
    return Inside(
        samples=tuple(samples),
        text=used,
        attention=attention,
        lens=model.lens(used),
        neighbors=tuple(_neighbors(model, frequent)),
        norms=layer_norms(model.model, [token.id for token in attention.tokens]),
        positions=position_encoding(model.model),
    )


def _long_enough(texts: Sequence[str], model: LoadedModel) -> str:
    """The first of these texts with two tokens; raises ModelFolderError if there is none."""
    for text in texts:
        if len(model.encode(text).ids) > 1:
            return text
    raise ModelFolderError("It generates texts of less than two tokens.", "Give a text with `text`.")


def _neighbors(model: LoadedModel, tokens: Sequence[str]) -> list[Neighbors]:
    """Neighbors of the first few of these tokens that are one token by themselves: no part of a character is."""
    whole = [token for token in tokens if token.strip() and "\N{REPLACEMENT CHARACTER}" not in token]
    single = [token for token in whole if len(model.encode(token).ids) == 1]
    return [model.neighbors(token) for token in single[:NEIGHBOR_TOKENS]]


def _differences(runs: Sequence[RunReport]) -> tuple[Setting, ...]:
    flat = [{"data": f"{run.data} ({run.data_fingerprint[:8]})"} | flatten(run.config) for run in runs]
    keys = ["data", *sorted({key for one in flat for key in one if key != "data"})]
    rows = (Setting(key, tuple(one.get(key) for one in flat)) for key in keys)
    return tuple(row for row in rows if any(value != row.values[0] for value in row.values))
