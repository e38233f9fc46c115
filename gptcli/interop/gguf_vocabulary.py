"""A tokenizer in a GGUF file: a string and a type for each row of the token embedding, and the merges.

llama.cpp reads a byte-level BPE (`tokenizer.ggml.model` = gpt2) from the strings of `tokenizer.json`: `Ġa` is b" a".
The file does not contain the pattern that splits text into words, only its name in llama.cpp.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import IntEnum

from gptcli.errors import ExportError
from gptcli.tokenizer.document import Document, added_tokens, cuts_like_gpt2, merges_of
from gptcli.tokenizer.tokenizer import Tokenizer

MODEL = "gpt2"
PATTERN = "gpt-2"
"""llama.cpp's name for the pattern of GPT-2. It changes nothing for a character tokenizer, whose merges never cross
characters."""
NO_MERGES = "À À"
"""A merge that never applies, since `À` is the byte C0, which UTF-8 never uses. llama.cpp needs at least one merge."""


class TokenType(IntEnum):
    """llama.cpp's `llama_token_type`."""

    NORMAL = 1
    CONTROL = 3
    """Special: encoded on request only, and not shown."""
    USER_DEFINED = 4
    """Added to the vocabulary: matched in text before it is split into words."""
    UNUSED = 5
    """Never encoded; decodes to nothing."""


@dataclass(frozen=True)
class Vocabulary:
    """The tokenizer of a GGUF file."""

    tokens: list[str]
    """One for each row of the token embedding."""
    types: list[TokenType]
    merges: list[str]
    start_id: int
    end_id: int


def gguf_vocabulary(tokenizer: Tokenizer, rows: int, start_id: int, end_id: int | None) -> Vocabulary:
    """The vocabulary for a token embedding of `rows` rows. Raises ExportError if llama.cpp would give other ids.

    Rows without a token get the names that llama.cpp's converter gives them. They stay in the file, since leaving them
    out would change the probabilities of the others.
    """
    document = json.loads(tokenizer.to_json())
    _require_same_words(document)
    added = {token["content"]: token for token in added_tokens(document)}
    entries = document["model"]["vocab"] | {content: token["id"] for content, token in added.items()}
    tokens = [f"[PAD{row}]" for row in range(rows)]
    types = [TokenType.UNUSED] * rows
    for entry, token in entries.items():
        tokens[token] = entry
        if entry in added:
            types[token] = TokenType.CONTROL if added[entry].get("special") else TokenType.USER_DEFINED
        elif tokenizer.emittable[token]:
            types[token] = TokenType.NORMAL
    merges = [f"{left} {right}" for left, right in merges_of(document["model"])] or [NO_MERGES]
    return Vocabulary(tokens, types, merges, start_id, _end(end_id, tokenizer, types))


def _end(end_id: int | None, tokenizer: Tokenizer, types: list[TokenType]) -> int:
    """The id that ends a text. If the file has none, llama.cpp takes id 11, which could be any letter."""
    if end_id is not None:
        return end_id
    if tokenizer.end_of_text is not None:
        return tokenizer.end_of_text
    if TokenType.UNUSED in types:
        return types.index(TokenType.UNUSED)
    raise ExportError(
        "GGUF needs a token that ends a text, and the model has none.", "Set eos_token_id in its config.json."
    )


def _require_same_words(document: Document) -> None:
    if not cuts_like_gpt2(document) or document["model"].get("ignore_merges"):
        raise ExportError(
            "GGUF cannot hold this tokenizer: it does not split text into words like GPT-2, as llama.cpp does.",
            "Export with `to = hf` instead.",
        )
