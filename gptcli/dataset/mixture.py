"""Several datasets as one, each with a weight: its share of the sequences that are trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from gptcli.dataset.folder import Dataset, Split
from gptcli.dataset.manifest import digest
from gptcli.dataset.shards import TokenStream
from gptcli.errors import UsageError

WHOLE = 1 << 30
"""The sum of all shares: weights are rounded to multiples of a billionth, so that equal ratios are equal shares."""


@dataclass(frozen=True)
class MixturePart:
    """A dataset of a mixture."""

    name: str
    """The dataset's name, with a number if an earlier part has it too."""
    dataset: Dataset
    share: int
    """Its share of the sequences, of `WHOLE`."""

    @property
    def weight(self) -> float:
        """The share as a number up to 1."""
        return self.share / WHOLE


@dataclass(frozen=True, kw_only=True)
class Mixture(Dataset):
    """Several datasets of one tokenizer. As a dataset it is all of their tokens; its name has the weights.

    Whoever draws from it goes to its parts: the splits, end to end, would have windows over two datasets.
    """

    parts: tuple[MixturePart, ...]


def mixture(datasets: Sequence[Dataset], weights: Sequence[float]) -> Mixture:
    """The mixture of datasets by positive weights, in any unit.

    Raises UsageError for different tokenizers, for the same tokens twice, and for a weight that is next to nothing.
    """
    first = datasets[0]
    for number, dataset in enumerate(datasets):
        refuse_other_tokenizer(first, dataset)
        if twin := next((one for one in datasets[:number] if one.fingerprint == dataset.fingerprint), None):
            message = f"'{twin.path}' and '{dataset.path}' hold the same tokens."
            raise UsageError(message, "Name one of them, with the sum of their weights.")
    parts = tuple(map(MixturePart, _unique([one.name for one in datasets]), datasets, shares(weights)))
    end_of_text = first.tokenizer.end_of_text
    uses_end_of_text = any(one.uses_end_of_text for one in datasets)
    heaviest = max(parts, key=lambda part: part.share).dataset
    return Mixture(
        path=first.path,
        name=" ".join(f"{part.name}={part.weight:.3g}" for part in parts),
        fingerprint=digest([[part.dataset.fingerprint, part.share] for part in parts]),
        tokenizer=first.tokenizer,
        start_id=end_of_text if uses_end_of_text and end_of_text is not None else heaviest.start_id,
        documents=sum(one.documents for one in datasets),
        uses_end_of_text=uses_end_of_text,
        sources=tuple(source for one in datasets for source in one.sources),
        train=_joined([one.train for one in datasets]),
        val=_joined([one.val for one in datasets]),
        parts=parts,
    )


def shares(weights: Sequence[float]) -> list[int]:
    """Integers in the ratio of the weights, with the sum `WHOLE`. Raises UsageError for one that would be 0."""
    total = sum(weights)
    bounds = [round(WHOLE * (before / total)) for before in accumulate(weights, initial=0.0)]
    found = [stop - start for start, stop in pairwise(bounds)]
    if 0 in found:
        message = f"The weight {weights[found.index(0)]:g} is less than a billionth of all weights."
        raise UsageError(message, "Leave that part out, or give it more weight.")
    return found


def refuse_other_tokenizer(one: Dataset, other: Dataset) -> None:
    """Raise UsageError where two datasets have different tokenizers."""
    if one.tokenizer.fingerprint != other.tokenizer.fingerprint:
        message = (
            f"The datasets '{one.path}' and '{other.path}' have different tokenizers: their ids differ in meaning."
        )
        tokenizer = f"`tokenizer.kind = {one.path / 'tokenizer.json'}`"
        raise UsageError(message, f"Give the text of '{other.path}' instead, or prepare it again with {tokenizer}.")


def _joined(splits: Sequence[Split]) -> Split:
    return Split(
        tokens=sum(one.tokens for one in splits),
        characters=sum(one.characters for one in splits),
        bytes=sum(one.bytes for one in splits),
        stream=TokenStream.joined([one.stream for one in splits]),
    )


def _unique(names: Sequence[str]) -> list[str]:
    """book, book → book, book-2."""
    unique: list[str] = []
    for name in names:
        number, free = 1, name
        while free in unique:
            number += 1
            free = f"{name}-{number}"
        unique.append(free)
    return unique
