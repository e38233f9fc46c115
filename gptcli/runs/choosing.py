"""The choice of a model: the preset, dropout and number of updates with the lowest expected loss for a text and a time.

The speed of each preset is measured on this machine for a moment; the loss comes from the law of `expected.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from gptcli.config import RunConfig, with_train
from gptcli.dataset.folder import Dataset
from gptcli.dataset.mixture import Mixture
from gptcli.errors import OutOfMemoryError
from gptcli.model.cost import inner_parameters, parameter_count, training_flops
from gptcli.runs.decision import Chosen, NewRun, run_config
from gptcli.runs.expected import LAW
from gptcli.runs.fitting import SHAPE, fit_to_machine
from gptcli.runs.ngrams import characters_per_token, text_bits_per_byte
from gptcli.runs.pace import Pace, may_compile, measure_pace, seconds_of, steps_within
from gptcli.runs.request import BUDGET, Request
from gptcli.runs.rhythm import epoch_steps, tokens_per_step, with_rhythm
from gptcli.runs.team import ALONE_TEAM, Team

PRESETS = ("nano", "tiny", "mini", "small", "medium")
"""Presets to choose from, the smallest first."""
DROPOUTS = (0.0, 0.1, 0.2, 0.3)
DEFAULT_SECONDS = {"cpu": 165.0}
"""Training time on a device unless `train.max_time` is stated: three minutes with loading torch and this choice."""
DEFAULT_SECONDS_ELSEWHERE = 600.0
FEWEST_STEPS = 40
"""Updates that a model must be able to make in the time to be worth a measurement."""
STEPS_RATIO = 1.05
"""Ratio of neighboring numbers of updates that are compared."""


@dataclass(frozen=True)
class Candidate:
    """A model that could be trained."""

    preset: str
    parameters: int
    dropout: float
    steps: int
    passes: float
    seconds: float
    loss: float
    """Expected validation loss in nats per token."""
    bits_per_byte: float
    """The same in bits per byte."""
    pace: Pace
    fills_time: bool
    """Whether the time limits the number of updates, and not the text."""

    @property
    def chosen(self) -> Chosen:
        """The choice of this model. Its number of updates is counted anew if it is compiled."""
        open_budget = {"max_steps": None, "epochs": None}
        return Chosen(self.preset, {"model": {"dropout": self.dropout}, "train": open_budget})


@dataclass(frozen=True)
class Choice:
    """Models that could be trained, the smallest first, and the best of them."""

    candidates: tuple[Candidate, ...]
    seconds: float
    """Time that they may take."""
    ngram_bits_per_byte: float
    """The loss of the n-gram model on the text."""

    @property
    def only_memorizes(self) -> bool:
        """Whether the text is too small for more than memorizing: counts of a few characters predict it as well.

        Not where more time would help.
        """
        return not self.best.fills_time and self.best.bits_per_byte >= self.ngram_bits_per_byte

    @property
    def best(self) -> Candidate:
        """The model with the lowest expected loss."""
        return min(self.candidates, key=lambda candidate: candidate.loss)


def is_open(request: Request) -> bool:
    """Whether a request leaves the model and the number of updates to the program."""
    names_one = request.preset or "preset" in request.explicit or request.family == "gpt2"
    updates = [f"train.{name}" for name in BUDGET if name != "max_time"]
    return not names_one and not request.states(*SHAPE, *updates)


def choose_model(
    request: Request, decision: NewRun, dataset: Dataset, device: torch.device, team: Team = ALONE_TEAM
) -> Choice | None:
    """The models that fit into the machine and the time, each with the dropout and number of updates that suit it.

    None if there is none, or too little text. Takes some seconds.
    """
    if dataset.val.tokens < 2:
        return None
    return _Chooser(request, decision, dataset, device, team).choice()


def step_counts(longest: int) -> list[int]:
    """The numbers of updates that are compared, from `longest` down to 1."""
    return [int(longest / STEPS_RATIO**count) for count in range(int(math.log(longest, STEPS_RATIO)) + 1)]


class _Chooser:
    """Compares the presets for one text."""

    def __init__(self, request: Request, decision: NewRun, dataset: Dataset, device: torch.device, team: Team) -> None:
        self._request, self._decision, self._dataset = request, decision, dataset
        self._device, self._team = device, team
        parts = [part.dataset for part in dataset.parts] if isinstance(dataset, Mixture) else [dataset]
        self._shortest = min(part.train.tokens for part in parts)
        self._text = text_bits_per_byte(dataset)
        self._per_token = characters_per_token(dataset)
        time = self._config(Chosen(PRESETS[0], {})).train.max_time
        self._seconds = time or DEFAULT_SECONDS.get(device.type, DEFAULT_SECONDS_ELSEWHERE)

    def choice(self) -> Choice | None:
        found = list[Candidate]()
        seconds_per_flop = 0.0
        for name in PRESETS:
            config = self._config(Chosen(name, {}))
            if config.train.batch_size < self._team.ranks.size:  # a sequence for each
                continue
            flops = training_flops(config.model, config.model.block_size) * tokens_per_step(config)
            is_too_slow = FEWEST_STEPS * seconds_per_flop * flops > self._seconds
            if self._shortest <= config.model.block_size or is_too_slow:
                break
            candidate = self._candidate(config, self._dropouts(config))
            if candidate is None:
                break
            seconds_per_flop = candidate.pace.step / flops
            found.append(candidate)
        if not found:
            return None
        self._time_the_best(found)
        return Choice(tuple(found), self._seconds, self._text)

    def _time_the_best(self, found: list[Candidate]) -> None:
        """Measure the best model as it will run, with its dropout or compiled, until the best one is measured so."""
        timed = {one.preset: (self._config(Chosen(one.preset, {})).model.dropout, False) for one in found}
        for _ in range(2 * len(found)):
            best = min(found, key=lambda one: one.loss)
            as_it_runs = best.dropout, may_compile(self._device, best.seconds)
            if timed[best.preset] == as_it_runs:
                break
            timed[best.preset] = as_it_runs
            again = self._candidate(self._config(best.chosen), (best.dropout,), compiles=as_it_runs[1])
            if again:
                found[found.index(best)] = again
            elif len(found) > 1:
                found.remove(best)

    def _candidate(self, config: RunConfig, dropouts: Sequence[float], *, compiles: bool = False) -> Candidate | None:
        """A model whose pace was measured; None if there is no room for it."""
        fitted = fit_to_machine(config, self._device, self._team)
        if not fitted.fits:
            return None
        try:
            pace = measure_pace(fitted.config, self._dataset, self._device, compiles=compiles, team=self._team)
        except OutOfMemoryError:  # a GPU's memory is an estimate until it is used
            if self._team.ranks.size > 1:  # the others may wait for this rank in the middle of an update
                raise
            return None
        return self._best(fitted.config, pace, dropouts)

    def _dropouts(self, config: RunConfig) -> Sequence[float]:
        return (config.model.dropout,) if self._request.states("model.dropout") else DROPOUTS

    def _config(self, chosen: Chosen) -> RunConfig:
        decision = replace(self._decision, chosen=chosen)
        return run_config(self._request, decision, self._device, self._dataset.tokenizer.vocab_size)

    def _best(self, config: RunConfig, pace: Pace, dropouts: Sequence[float]) -> Candidate:
        """A model with the dropout and the number of updates for which the lowest loss is expected."""
        longest = steps_within(self._seconds, config, self._dataset, pace)
        counts = step_counts(longest)
        inner = inner_parameters(config.model)
        per_pass = epoch_steps(config, self._dataset)
        characters = self._per_token * self._dataset.train.tokens
        ratio, dropout, steps = min(
            (LAW.ratio(inner, characters, self._per_token * steps, steps / per_pass, dropout), dropout, steps)
            for dropout in dropouts
            for steps in counts
        )
        val, bits_per_byte = self._dataset.val, self._text * ratio
        paced = with_rhythm(with_train(config, max_steps=steps), pace.step)
        return Candidate(
            preset=config.preset,
            parameters=parameter_count(config.model),
            dropout=dropout,
            steps=steps,
            passes=steps / per_pass,
            seconds=seconds_of(steps, paced, self._dataset, pace),
            loss=bits_per_byte * math.log(2) * val.bytes / val.tokens,
            bits_per_byte=bits_per_byte,
            pace=pace,
            fills_time=steps == longest,
        )
