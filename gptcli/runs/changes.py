"""Refusals to resume a run as another one: with other data, or with other settings that are fixed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gptcli.checkpoints import names
from gptcli.checkpoints.run_folder import StoredRun, next_free
from gptcli.config import CHANGEABLE_ON_RESUME, DataConfig, RunConfig, differences, parse_section
from gptcli.config.values import flatten
from gptcli.dataset.corpus import Corpus
from gptcli.dataset.folder import Dataset
from gptcli.dataset.manifest import DatasetManifest, SourceEntry
from gptcli.dataset.place import dataset_name, dataset_roots, dataset_with
from gptcli.errors import TokenizerError, UsageError, counted
from gptcli.runs.request import Request
from gptcli.tokenizer.tokenizer import Tokenizer, parse_tokenizer

_NAMED_SOURCES = 3
COMPARED_AS_DATA = ("tokenizer.", "data.")
"""Sections that say how the data was made; runs compare the fingerprint of the data itself."""


def refuse_other_data(run: StoredRun, dataset: Dataset, request: Request) -> None:
    """Raise UsageError where the data of a run has changed; the hint depends on the likely reason."""
    if run.data_fingerprint == dataset.fingerprint:
        return
    another = _another(run)
    stated = [key for key in ("tokenizer.kind", "tokenizer.vocab_size") if request.states(key)]
    tokenizer = parse_tokenizer(run.tokenizer_json, run.path / names.TOKENIZER)
    has_other_tokenizer = tokenizer.fingerprint != dataset.tokenizer.fingerprint
    if has_other_tokenizer and stated and not request.has_dataset:
        listed = " and ".join(f"`{key}`" for key in stated)
        message = f"'{run.path}' was trained with another tokenizer than {listed} gives for this text."
        raise UsageError(message, f"Leave {listed} out to resume the run, or {another}.")
    message, resuming = _trained_on_other(run, dataset.name, dataset.sources, request)
    if has_other_tokenizer and request.has_dataset:  # its ids mean something else to the model
        raise UsageError(message, f"Give the dataset that it was trained on, or {another}.")
    alphabet = _alphabet(dataset.tokenizer) if dataset.tokenizer.kind == "char" else None
    resuming = resuming or _tokenizer_before(run, request)
    raise UsageError(message, f"{resuming}{_new_text_hint(run, tokenizer, alphabet, request)}")


def refuse_other_text(run: StoredRun, corpus: Corpus, sources: Iterable[SourceEntry], request: Request) -> None:
    """Raise UsageError where a run's text has changed, before a tokenizer is trained on it and it is encoded.

    Nothing is known where the dataset of the run is gone.
    """
    trained, sources = _dataset_of(run), list(sources)
    if trained and (
        trained.train.characters + trained.val.characters != corpus.characters
        or _has_other_bytes(trained, corpus, sources)
    ):
        tokenizer = parse_tokenizer(run.tokenizer_json, run.path / names.TOKENIZER)
        message, resuming = _trained_on_other(run, dataset_name(request.data), sources, request)
        hint = _new_text_hint(run, tokenizer, "".join(corpus.alphabet), request)
        raise UsageError(message, f"{resuming}{hint}")


def _has_other_bytes(trained: DatasetManifest, corpus: Corpus, sources: Sequence[SourceEntry]) -> bool:
    """Whether two texts differ for sure, by the hashes of their sources.

    Only where text is what the files hold, byte by byte: a file that is unpacked or converted may change and give the
    same text.
    """
    is_plain = corpus.bytes == sum(source.size for source in sources)
    was_plain = trained.train.bytes + trained.val.bytes == sum(source.size for source in trained.sources)
    return is_plain and was_plain and [one.sha256 for one in trained.sources] != [one.sha256 for one in sources]


def _trained_on_other(run: StoredRun, name: str, sources: Iterable[SourceEntry], request: Request) -> tuple[str, str]:
    """A sentence that says how the data of a run differs from the named one, which has these sources; and a hint for
    resuming, or ""."""
    if run.data_name != name:
        return f"'{run.path}' was trained on '{run.data_name}', not on '{name}'.", ""
    trained = _dataset_of(run)
    before, now = ({one.name: one.sha256 for one in these} for these in (trained.sources if trained else (), sources))
    if before and now and before.keys() != now.keys():
        listed = [f"with '{name}'" for name in before if name not in now]
        listed += [f"without '{name}'" for name in now if name not in before]
        more = f" and {len(listed) - _NAMED_SOURCES:,} other differences" if len(listed) > _NAMED_SOURCES else ""
        message = f"'{run.path}' was trained on other texts: {', '.join(listed[:_NAMED_SOURCES])}{more}."
        return message, "Give the same texts to resume it. "
    changed = next((name for name in now if before.get(name, now[name]) != now[name]), None)
    if changed is None and (settings := _other_reading(run, request)):
        message = f"'{run.path}' was trained on this text read or split in another way ({settings})."
        return message, "Give the old values. "
    namesake = ", or it is another text of the same name" if request.out is None else ""
    return f"'{run.path}' was trained on other data: '{changed or run.data_name}' has changed{namesake}.", ""


def _other_reading(run: StoredRun, request: Request) -> str:
    """The stated settings of the data that the run does not have: their values then and now; "" for none."""
    stated = request.explicit.get("data", {})
    before, now = run.config.data, parse_section(DataConfig, stated)
    values = {name: (getattr(before, name), getattr(now, name)) for name in stated}
    return "; ".join(
        f"`data.{name}`: {_shown(was)} → {_shown(new)}" for name, (was, new) in values.items() if was != new
    )


def _dataset_of(run: StoredRun) -> DatasetManifest | None:
    """The dataset that a run was trained on, where it was made from text and is still there."""
    return dataset_with(run.data_fingerprint, dataset_roots(run.path), run.data_name)


def _another(run: StoredRun) -> str:
    return f"start '{next_free(run.path)}' with `resume = never`"


def _new_text_hint(run: StoredRun, tokenizer: Tokenizer, alphabet: str | None, request: Request) -> str:
    """`alphabet`: the characters of the new text, if they are known."""
    start_from, another = _start_from(run, tokenizer, alphabet), _another(run)
    if request.out is None:  # the run is named after the text: its name must be stated to resume the new one later
        another = f"use `out = {next_free(run.path)}`"
    return f"To train its model on the new text, use {start_from}; to start over, {another}."


def other_texts(run: StoredRun, error: TokenizerError) -> UsageError:
    """The error for texts that the tokenizer of a run does not know, although it was learned from them."""
    message = f"'{run.path}' was trained on '{run.data_name}', not on these texts: {error.message}"
    return UsageError(message, f"Give the texts as they were, or {_another(run)}.")


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


def _start_from(run: StoredRun, tokenizer: Tokenizer, alphabet: str | None) -> str:
    """The settings that train a run's model on other text."""
    is_known = alphabet is not None and not tokenizer.unknown_characters(alphabet)
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
