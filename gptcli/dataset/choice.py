"""What `--tokenizer auto` takes for a text, and why."""

from __future__ import annotations

from typing import Literal

from gptcli.dataset.survey import Survey

CHAR_BELOW_BYTES = 5_000_000
"""Characters below this much text, BPE from there on."""
MAX_ALPHABET = 5_000
"""BPE for an alphabet larger than this: most of its characters would be too rare to learn."""


def choose_kind(survey: Survey) -> tuple[Literal["char", "bpe"], str]:
    """The kind of tokenizer for a text, and a sentence that says why."""
    size, alphabet = _size(survey.bytes), len(survey.alphabet)
    if survey.bytes >= CHAR_BELOW_BYTES:
        return "bpe", f"Tokenizer: BPE, since the text has {size} (characters below {CHAR_BELOW_BYTES / 1e6:.0f} MB)."
    if alphabet > MAX_ALPHABET:
        return "bpe", f"Tokenizer: BPE, since {alphabet:,} distinct characters are too many to learn one by one."
    return "char", f"Tokenizer: {alphabet:,} characters, since the text is small ({size})."


def _size(count: int) -> str:
    """Bytes for people: 74 bytes, 1.1 MB."""
    return f"{count / 1e6:,.1f} MB" if count >= 100_000 else f"{count:,} bytes"
