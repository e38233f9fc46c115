"""The prompt: read from a file or standard input, and encoded for a model."""

from __future__ import annotations

from dataclasses import dataclass

from gptcli.config import DataConfig
from gptcli.dataset.corpora import is_corpus
from gptcli.dataset.finding import find_sources
from gptcli.dataset.plain_text import read_text
from gptcli.dataset.refusals import utf8_alone
from gptcli.dataset.sources import refuse_address
from gptcli.errors import CorpusError, UsageError
from gptcli.generation.context_window import window_start
from gptcli.paths import given_path
from gptcli.tokenizer import Unknown
from gptcli.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Prompt:
    """A text encoded for one model."""

    text: str
    """The text without the characters that were skipped."""
    ids: list[int]
    """At least one: an empty text starts from the model's start token."""
    notes: tuple[str, ...]
    """Sentences about skipped characters, and about tokens beyond the context window."""


def read_prompt(path: str) -> str:
    """The text of a prompt file, or of standard input for `-`, without a byte-order mark.

    Raises CorpusError, with file and byte offset, for bytes that are not UTF-8, and for a folder.
    """
    refuse_address(path)
    if is_corpus(path):
        raise CorpusError(f"There is no file '{path}'.", "Check the path.")
    if given_path(path).is_dir():
        raise CorpusError(f"'{path}' is a folder, not a prompt.", "Name a text file, or - for standard input.")
    with utf8_alone(), find_sources([path], DataConfig(format="text")) as found:
        return "".join(read_text(found.sources[0], lambda _count: None))


def encode_prompt(tokenizer: Tokenizer, text: str, unknown: Unknown, start_id: int, block_size: int) -> Prompt:
    """Encode a prompt for a model with a context of `block_size` tokens.

    With `unknown` "skip", characters that the tokenizer does not know are left out; with "error" they raise a
    TokenizerError that names them. Raises UsageError for text that is not valid Unicode.
    """
    if not isinstance(text, str):
        raise UsageError(f"The prompt is {text!r}, not text.", "Give a text; an empty one starts from nothing.")
    try:
        text.encode()
    except UnicodeEncodeError:  # bytes of a command line that are not UTF-8 are lone surrogates in Python
        hint = "Set the terminal to UTF-8, or read the prompt from a file."
        raise UsageError("The prompt is not valid UTF-8.", hint) from None
    ids = tokenizer.encode(text, unknown=unknown) or [start_id]
    notes = []
    if skipped := tokenizer.unknown_characters(text):
        notes.append(f"Skipped characters of the prompt that the model does not know: {' '.join(skipped)}")
        text = tokenizer.known_part(text)
    if unseen := window_start(len(ids), block_size):
        notes.append(
            f"The prompt has {len(ids):,} tokens, more than the context window of {block_size:,}: "
            f"the model sees the last {len(ids) - unseen:,}, because a full window drops its oldest half."
        )
    return Prompt(text, ids, tuple(notes))
