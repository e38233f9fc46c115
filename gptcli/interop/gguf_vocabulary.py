"""A tokenizer as a GGUF file states it: one string and one type for each row of the model, and the merges.

llama.cpp reads a byte-level BPE (`tokenizer.ggml.model` = gpt2) from the strings of `tokenizer.json`: `Ġa` is b" a".
How text is cut into words before the merges is no part of the file, only the name of a pattern that llama.cpp knows.
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
"""llama.cpp's name for GPT-2's pattern. Character tokenizers have it too, where it changes nothing: no merge crosses
two characters."""
NO_MERGES = "À À"
"""llama.cpp refuses a vocabulary without merges. `À` stands for the byte C0, which is never in UTF-8, so that this one
never acts."""


class TokenType(IntEnum):
    """llama.cpp's `llama_token_type`."""

    NORMAL = 1
    CONTROL = 3
    """Special: text gives it only on request, and it is not shown."""
    USER_DEFINED = 4
    """Added beside the merges: found in text before it is cut."""
    UNUSED = 5
    """Never in encoded text; decodes to nothing."""


@dataclass(frozen=True)
class Vocabulary:
    """The tokenizer's part of a GGUF file."""

    tokens: list[str]
    """One for each row of the model."""
    types: list[TokenType]
    merges: list[str]
    start_id: int
    end_id: int


def gguf_vocabulary(tokenizer: Tokenizer, rows: int, start_id: int, end_id: int | None) -> Vocabulary:
    """The vocabulary of a model with `rows` rows. Raises ExportError if llama.cpp would give other ids.

    Rows that no entry belongs to (holes, and those beyond the tokenizer) get a name of their own, as llama.cpp's own
    converter names them: every row stays, so that probabilities stay what they are.
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
    """The id that ends a text in llama.cpp, which takes number 11 if the file names none: any letter could be that."""
    if end_id is not None:
        return end_id
    if tokenizer.end_of_text is not None:
        return tokenizer.end_of_text
    if TokenType.UNUSED in types:
        return types.index(TokenType.UNUSED)
    raise ExportError("The model has no token that ends a text, which GGUF needs.", "Name one in its config.json.")


def _require_same_words(document: Document) -> None:
    if not cuts_like_gpt2(document) or document["model"].get("ignore_merges"):
        raise ExportError(
            "GGUF cannot hold this tokenizer: it cuts text in another way than GPT-2's, which llama.cpp would not do.",
            "Export with --to hf instead.",
        )
