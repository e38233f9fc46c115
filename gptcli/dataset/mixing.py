"""Preparing the parts of a mixture with one tokenizer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain, pairwise
from pathlib import Path

from gptcli.config import DataConfig, TokenizerConfig
from gptcli.dataset.corpus import Corpus
from gptcli.dataset.documents import Documents
from gptcli.dataset.finding import find_sources
from gptcli.dataset.folder import Dataset, is_dataset, open_dataset
from gptcli.dataset.mixture import mixture, refuse_other_tokenizer
from gptcli.dataset.place import restore_interrupted
from gptcli.dataset.preparation import Prepared, reporter
from gptcli.dataset.preparing import find_or_prepare
from gptcli.dataset.scanning import scan
from gptcli.dataset.sources import STANDARD_INPUT, OnProgress, size_of
from gptcli.dataset.splits import Part, split
from gptcli.dataset.summary import ReadSummary
from gptcli.dataset.vocabulary import make_tokenizer
from gptcli.errors import CorpusError, UsageError, counted
from gptcli.tokenizer import Unknown
from gptcli.tokenizer.tokenizer import Tokenizer, is_path, load_tokenizer


def find_or_prepare_mixture(
    inputs: Sequence[str],
    weights: Sequence[float],
    roots: Sequence[Path],
    tokenizer: TokenizerConfig,
    data: DataConfig,
    *,
    given: Tokenizer | None = None,
    unknown: Unknown = "error",
    scratch: Path | None = None,
    on_progress: OnProgress | None = None,
) -> Prepared:
    """The mixture of `inputs` by `weights`, each a dataset folder or a text that is prepared as one of its own.

    Texts get the tokenizer of the datasets; where there are none, the `given` one, or the one that `tokenizer` asks
    for, learned from all texts. A single input needs no mixing. Raises as `find_or_prepare` and `mixture` do, and
    UsageError where inputs and weights are not as many.
    """
    if len(inputs) != len(weights):
        stated, wanted = counted(len(weights), "weight"), counted(len(inputs), "part")
        hint = f"State the weights with the data: {' '.join(f'{path}=1' for path in inputs)}"
        raise UsageError(f"`data.weights` has {stated}, but the data is {wanted}.", hint)
    is_mixed = len(inputs) > 1
    opened, notes = _opened(inputs) if is_mixed else {}, list[str]()
    if opened:
        given = next(iter(opened.values())).tokenizer
    elif given is None and is_path(tokenizer.kind):
        given = load_tokenizer(Path(tokenizer.kind))
    elif given is None and is_mixed:
        given, notes = _learned(inputs, tokenizer, data, on_progress)
    parts: list[Prepared] = []
    for path in inputs:
        if path in opened:
            parts.append(Prepared(opened[path], reused=True))
            continue
        with naming_part(path):
            part = find_or_prepare(
                (path,), roots, tokenizer, data, given=given, unknown=unknown, scratch=scratch, on_progress=on_progress
            )
        parts.append(part)
    return _joined(inputs, parts, weights, notes) if is_mixed else parts[0]


@contextmanager
def naming_part(name: str) -> Iterator[None]:
    """Put a part before the errors about its text that do not name it, such as that it is too short."""
    try:
        yield
    except CorpusError as error:
        message = error.message if f"'{name}" in error.message else f"'{name}': {error.message}"
        raise CorpusError(message, error.hint) from None


def _opened(inputs: Sequence[str]) -> dict[str, Dataset]:
    """The datasets among the parts of a mixture, which have one tokenizer. Raises UsageError if they do not."""
    if STANDARD_INPUT in inputs:
        message = "Standard input cannot be part of a mixture, which reads its texts more than once."
        raise UsageError(message, "Save it as a file, and name that.")
    restore_interrupted(*inputs)
    opened = {path: open_dataset(Path(path)) for path in inputs if is_dataset(path)}
    for one, other in pairwise(opened.values()):
        refuse_other_tokenizer(one, other)
    return opened


def _joined(inputs: Sequence[str], parts: Sequence[Prepared], weights: Sequence[float], notes: list[str]) -> Prepared:
    formats: Counter[str] = Counter()
    for part in parts:
        formats.update(part.summary.formats)
    skipped = tuple(one for part in parts for one in part.summary.skipped)
    return Prepared(
        mixture([part.dataset for part in parts], weights),
        reused=all(part.reused for part in parts),
        notes=[*notes, *(f"'{path}': {note}" for path, part in zip(inputs, parts, strict=True) for note in part.notes)],
        summary=ReadSummary(dict(formats), skipped),
    )


def refuse_unweighted(inputs: Sequence[str]) -> None:
    """Raise CorpusError for a dataset among several inputs that have no weights."""
    if len(inputs) > 1 and (datasets := [*filter(is_dataset, inputs)]):
        weighted = " ".join(f"{path}=1" for path in inputs)
        hint = f"Train on it alone, or give each part a weight: {weighted}"
        raise CorpusError(f"'{datasets[0]}' is a dataset already, not text.", hint)


def _learned(
    inputs: Sequence[str], config: TokenizerConfig, data: DataConfig, on_progress: OnProgress | None
) -> tuple[Tokenizer, list[str]]:
    """A tokenizer learned from the training parts of all texts, as they are split later, and notes about it."""
    documents, alphabet = Documents(), set[str]()
    training: list[Iterable[Part]] = []
    with ExitStack() as open_inputs:
        found = [open_inputs.enter_context(find_sources((path,), data, on_progress)) for path in inputs]
        report = reporter(on_progress, sum(size_of(source) for one in found for source in one.sources))
        on_bytes = report("reading")
        for one in found:
            corpus = scan(one, on_bytes)
            for document in corpus.documents:
                documents.append(document)
            alphabet.update(corpus.alphabet)
            training.append(split(corpus, data.val_fraction)[0])
        everything = Corpus(documents, alphabet=tuple(sorted(alphabet)))
        return make_tokenizer(config, everything, chain.from_iterable(training), report)
