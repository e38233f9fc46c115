"""The tokenizer of a dataset: check a given one, or choose its kind and make it from the corpus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Literal

from gptcli.config import TokenizerConfig
from gptcli.dataset.corpus import Corpus
from gptcli.dataset.sources import BeginStage, OnBytes, naming
from gptcli.dataset.splits import Part, PartReader, utf8_length
from gptcli.errors import TokenizerError, UsageError, counted, size
from gptcli.tokenizer.bpe import train_bpe
from gptcli.tokenizer.char import char_tokenizer
from gptcli.tokenizer.tokenizer import Tokenizer

CHAR_BELOW_BYTES = 1_500_000
"""`auto` means characters for less text than this, and BPE for more (measured: docs/recipes.md)."""
BPE_NOTE_FROM_BYTES = 500_000
"""From here on a note says that BPE is often better."""
MAX_ALPHABET = 5_000
"""`auto` means BPE for a larger alphabet, in which most characters would be too rare to learn."""


def choose_kind(corpus: Corpus) -> tuple[Literal["char", "bpe"], str]:
    """The kind of tokenizer that `auto` stands for, and a sentence with the reason."""
    large, alphabet = size(corpus.bytes), len(corpus.alphabet)
    if corpus.bytes >= CHAR_BELOW_BYTES:
        return "bpe", f"Tokenizer: BPE, since the text has {large} (characters below {size(CHAR_BELOW_BYTES)})."
    if alphabet > MAX_ALPHABET:
        return "bpe", f"Tokenizer: BPE, since {alphabet:,} distinct characters are too many to learn one by one."
    has_better = corpus.bytes >= BPE_NOTE_FROM_BYTES
    better = " At this size `tokenizer.kind = bpe` often gives better text." if has_better else ""
    return "char", f"Tokenizer: {counted(alphabet, 'character')}, since the text is small ({large}).{better}"


def require_bpe_for_size(kind: str | None, vocab_size: int | None) -> None:
    """Raise UsageError for a vocabulary size without BPE: no other vocabulary is learned to a given size."""
    if vocab_size is not None and kind not in (None, "auto", "bpe"):
        hint = "Leave out `tokenizer.vocab_size`, or use `tokenizer.kind = bpe`."
        raise UsageError(f"The size of the vocabulary cannot be chosen for the tokenizer '{kind}'.", hint)


def require_known(tokenizer: Tokenizer, corpus: Corpus, *, is_chosen: bool) -> None:
    """Raise TokenizerError, which names a source and its characters, if the tokenizer does not know all of them.

    `is_chosen`: the settings name the tokenizer, so that they can name another.
    """
    if not tokenizer.unknown_characters("".join(corpus.alphabet)):
        return
    another = ", or make a tokenizer from this text with `tokenizer.kind = auto`" if is_chosen else ""
    hint = f"Skip them with `unknown = skip`{another}."
    for source in corpus.sources:
        pieces = chain.from_iterable(corpus.read(source))
        unknown = sorted({character for piece in pieces for character in tokenizer.unknown_characters(piece)})
        try:
            with naming(source):
                tokenizer.refuse_unknown("".join(unknown))
        except TokenizerError as error:
            raise TokenizerError(error.message, hint) from None


def make_tokenizer(
    config: TokenizerConfig, corpus: Corpus, train: Iterable[Part], report: BeginStage, trained: Tokenizer | None = None
) -> tuple[Tokenizer, list[str]]:
    """A new tokenizer of the kind that `config` asks for, and notes about it.

    The alphabet of a character tokenizer is that of the whole text; BPE is trained on the training split alone, unless
    it was `trained` before.
    """
    kind, why = choose_kind(corpus) if config.wanted == "auto" else (config.wanted, "")
    if config.kind == "auto" and config.wanted == "bpe":
        why = "Tokenizer: BPE, since a vocabulary size was given."
    notes = [why] if why else []
    if kind == "char":
        return char_tokenizer(corpus.alphabet), notes
    pieces = chain.from_iterable(map(PartReader(corpus).read, train))
    tokenizer = trained or train_bpe(_reported(pieces, report("training tokenizer")), config.entries)
    if tokenizer.vocab_size < config.entries:
        too_small = f"The text is too small for {config.entries:,} entries"
        notes.append(f"{too_small}; the vocabulary has {tokenizer.vocab_size:,}.")
    return tokenizer, notes


def _reported(pieces: Iterator[str], on_bytes: OnBytes) -> Iterator[str]:
    for piece in pieces:
        yield piece
        on_bytes(utf8_length(piece))
