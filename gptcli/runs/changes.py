"""Refusals to resume a run as another one: with other data, or with other settings that are fixed."""

from __future__ import annotations

import numpy as np

from gptcli.checkpoints import names
from gptcli.checkpoints.run_folder import StoredRun, next_free
from gptcli.config import CHANGEABLE_ON_RESUME, RunConfig, differences
from gptcli.config.values import flatten
from gptcli.dataset.folder import Dataset
from gptcli.errors import TokenizerError, UsageError, counted
from gptcli.runs.request import Request
from gptcli.tokenizer.tokenizer import Tokenizer, parse_tokenizer

COMPARED_AS_DATA = ("tokenizer.", "data.")
"""Sections that say how the data was made; runs compare the fingerprint of the data itself."""


def refuse_other_data(run: StoredRun, dataset: Dataset, request: Request) -> None:
    """Raise UsageError where the data of a run has changed; the hint depends on the likely reason."""
    if run.data_fingerprint == dataset.fingerprint:
        return
    another = f"start '{next_free(run.path)}' with `resume = never`"
    stated = [key for key in ("tokenizer.kind", "tokenizer.vocab_size") if request.states(key)]
    tokenizer = parse_tokenizer(run.tokenizer_json, run.path / names.TOKENIZER)
    has_other_tokenizer = tokenizer.fingerprint != dataset.tokenizer.fingerprint
    if has_other_tokenizer and stated and not request.has_dataset:
        listed = " and ".join(f"`{key}`" for key in stated)
        message = f"'{run.path}' was trained with another tokenizer than {listed} gives for this text."
        raise UsageError(message, f"Leave {listed} out to resume the run, or {another}.")
    message = f"'{run.path}' was trained on other data: '{run.data_name}' has changed."
    if request.out is None:
        message = f"{message[:-1]}, or it is another text of the same name."
    if run.data_name != dataset.name:
        message = f"'{run.path}' was trained on '{run.data_name}', not on '{dataset.name}'."
    if has_other_tokenizer and request.has_dataset:  # its ids mean something else to the model
        raise UsageError(message, f"Give the dataset that it was trained on, or {another}.")
    if request.out is None:  # the run is named after the text: its name must be stated to resume the new one later
        another = f"use `out = {next_free(run.path)}`"
    hint = f"To train its model on the new text, use {_start_from(run, tokenizer, dataset)}; to start over, {another}."
    raise UsageError(message, f"{_tokenizer_before(run, request)}{hint}")


def other_texts(run: StoredRun, error: TokenizerError) -> UsageError:
    """The error for texts that the tokenizer of a run does not know, although it was learned from them."""
    message = f"'{run.path}' was trained on '{run.data_name}', not on these texts: {error.message}"
    return UsageError(message, f"Give the texts as they were, or start '{next_free(run.path)}' with `resume = never`.")


def refuse_other_settings(run: StoredRun, config: RunConfig, request: Request) -> None:
    """Raise UsageError where a fixed setting of a run has changed. It names those that the user stated, if any."""
    changed = {
        key: values
        for key, values in differences(run.config, config).items()
        if key not in CHANGEABLE_ON_RESUME and not key.startswith(COMPARED_AS_DATA)
    }
    if not changed:
        return
    stated = {*flatten(request.explicit), *(["preset"] if request.preset else [])}
    named = {key: values for key, values in changed.items() if key in stated} or changed
    listed = "; ".join(f"`{key}`: {_shown(was)} → {_shown(now)}" for key, (was, now) in named.items())
    if following := len(changed) - len(named):
        listed += f"; and {counted(following, 'setting')} that follow{'s' * (following == 1)}"
    raise UsageError(
        f"'{run.path}' is a run with another configuration ({listed}).",
        f"Give the old values to resume it, or start '{next_free(run.path)}' with `resume = never`.",
    )


def _shown(value: object) -> str:
    """A value as a person writes it; "unset" for None."""
    return "unset" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _start_from(run: StoredRun, tokenizer: Tokenizer, dataset: Dataset) -> str:
    """The settings that train a run's model on other text."""
    is_known = dataset.tokenizer.kind == "char" and not tokenizer.unknown_characters(_alphabet(dataset.tokenizer))
    settings = [f"`train.init_from = {run.path}`", f"`out = {next_free(run.path)}`"]
    return " ".join(settings if is_known or tokenizer.kind == "bpe" else [*settings, "`unknown = skip`"])


def _alphabet(tokenizer: Tokenizer) -> str:
    """The characters of a character tokenizer."""
    return tokenizer.decode(np.flatnonzero(tokenizer.emittable).tolist())


def _tokenizer_before(run: StoredRun, request: Request) -> str:
    """A sentence with the tokenizer to state as before, where it was stated then and is not now; else ""."""
    before = run.config.tokenizer
    if before.kind == "bpe" and not request.states("tokenizer.kind", "tokenizer.vocab_size"):
        return (
            f"If only the tokenizer differs, add `tokenizer.kind = bpe` `tokenizer.vocab_size = {before.vocab_size}`. "
        )
    return ""
