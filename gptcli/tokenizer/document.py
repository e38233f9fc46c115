"""The content of `tokenizer.json`, the file of a byte-level BPE: making it and checking it.

A byte-level BPE works on bytes. Its file is text, so GPT-2 gave each byte a printable character: `A` stands for itself,
a space is `Ġ`, and the two bytes of `é` are `Ã` and `©`. An entry of the vocabulary is a string of such characters.

Files can come from anywhere. They are checked here, in Python, before the `tokenizers` library gets them, since some
contradictions make that library panic instead of raising an exception.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

from gptcli.errors import TokenizerError

TOKENIZER_FILE = "tokenizer.json"
END_OF_TEXT = "<|endoftext|>"
Document = dict[str, Any]
"""The parsed content of a `tokenizer.json`."""
Merge = tuple[str, str]

_MAX_VOCAB_SIZE = 2**22
"""Four times the largest published vocabulary; each id takes memory, used or not."""
_HINT = "Use a byte-level BPE tokenizer.json, or GPT-2's vocab.json with merges.txt beside it."


def _byte_characters() -> dict[int, str]:
    """GPT-2's table: printable Latin-1 bytes map to themselves, the others to U+0100, U+0101, … in order."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}


CHARACTER_OF_BYTE = _byte_characters()
BYTE_OF_CHARACTER = {character: byte for byte, character in CHARACTER_OF_BYTE.items()}


def entry_of_bytes(data: bytes) -> str:
    """The entry of a vocabulary for `data`: b" a" → "Ġa"."""
    return "".join(map(CHARACTER_OF_BYTE.__getitem__, data))


def bytes_of_entry(entry: str) -> bytes | None:
    """The inverse: "Ġa" → b" a"; None if the entry has other characters."""
    try:
        return bytes(BYTE_OF_CHARACTER[character] for character in entry)
    except KeyError:
        return None


def new_document(vocab: Mapping[str, int], merges: list[Merge], end_of_text: int | None) -> Document:
    """A byte-level BPE with GPT-2's pattern; `end_of_text` is the id of its only special token."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    known = {} if end_of_text is None else {END_OF_TEXT: end_of_text}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": token, "content": content, **special} for content, token in known.items()],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {**vocab, **known},
            "merges": [list(merge) for merge in merges],
        },
    }


def checked(document: object, name: str) -> Document:
    """A copy of `document` in the form that gptcli relies on.

    Truncation, padding and dropout are switched off (ids would depend on more than the text), and `<|endoftext|>` is
    special even if the file does not say so. Raises TokenizerError, which calls the file `name`, if this is not a
    byte-level BPE or contradicts itself.
    """
    if not isinstance(document, dict) or not isinstance(document.get("model"), dict):
        raise TokenizerError(f"{name} is not a tokenizer file.", _HINT)
    model = document["model"]
    if model.get("type", "BPE") != "BPE" or "ByteLevel" not in [step.get("type") for step in pre_tokenizers(document)]:
        raise TokenizerError(f"{name} is not a byte-level BPE tokenizer.", _HINT)
    problem = _vocabulary_problem(model) or _merges_problem(model) or _added_tokens_problem(document)
    if problem:
        raise TokenizerError(f"{name} cannot be used: {problem}.", _HINT)
    added = [token | ({"special": True} if token["content"] == END_OF_TEXT else {}) for token in added_tokens(document)]
    off = {"truncation": None, "padding": None, "added_tokens": added, "model": model | {"dropout": None}}
    return document | off


def fingerprint(document: Document) -> str:
    """Hexadecimal sha256 of the document in a canonical form, so that the layout of its file does not matter."""
    canonical = json.dumps(document, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def pre_tokenizers(document: Document) -> list[Document]:
    """The steps that split text before the merges, without nested sequences."""

    def steps(step: object) -> Iterator[Document]:
        if isinstance(step, dict):
            parts = step.get("pretokenizers")
            if isinstance(parts, list):
                for part in parts:
                    yield from steps(part)
            else:
                yield step

    return list(steps(document.get("pre_tokenizer")))


def cuts_like_gpt2(document: Document) -> bool:
    """Whether text is used as it is, and GPT-2's pattern alone splits it into words."""
    steps = pre_tokenizers(document)
    step = steps[0]
    plain = len(steps) == 1 and step.get("use_regex", True) and not step.get("add_prefix_space", True)
    return plain and document.get("normalizer") is None


def added_tokens(document: Document) -> list[Document]:
    """The tokens outside of the BPE's vocabulary: {"id", "content", "special", …}."""
    return document.get("added_tokens") or []


def merges_of(model: Document) -> list[Merge]:
    """The merges as pairs; in older files a pair is one string, "Ġ t"."""
    pairs = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
    return [(left, right) for left, right in pairs]


@contextmanager
def library_errors(name: str, *, foreign: bool = False) -> Iterator[None]:
    """Turn errors of the `tokenizers` library (bare Exceptions, and panics, which are BaseExceptions) into ours.

    For a `foreign` tokenizer, whose regular expressions can be anything, standard error is discarded meanwhile: a panic
    prints a report there before it can be caught.
    """
    try:
        with _standard_error_discarded() if foreign else nullcontext():
            yield
    except BaseException as error:
        if type(error) is Exception or type(error).__name__ == "PanicException":
            raise TokenizerError(f"{name} cannot be used: {error}.", _HINT) from error
        raise


@contextmanager
def _standard_error_discarded() -> Iterator[None]:
    try:
        saved = os.dup(2)
    except OSError:  # it is closed already
        yield
        return
    sys.stderr.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


def _vocabulary_problem(model: Document) -> str:
    vocab = model.get("vocab")
    if not isinstance(vocab, dict) or not vocab or not all(_is_id(token) for token in vocab.values()):
        return "its vocabulary is not a table of entries and ids"
    if len(set(vocab.values())) != len(vocab):
        return "its vocabulary gives one id to two entries"
    if model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"):
        return "it marks parts of words, which byte-level tokenizers do not do"
    return ""


def _merges_problem(model: Document) -> str:
    vocab = model["vocab"]
    try:
        merges = merges_of(model)
        for left, right in merges:
            if not (left in vocab and right in vocab and left + right in vocab):
                return f"its merge of {left!r} and {right!r} is not in its vocabulary"
    except (KeyError, TypeError, ValueError):
        return "its merges are not a list of pairs"
    return ""


def _added_tokens_problem(document: Document) -> str:
    tokens, vocab = added_tokens(document), document["model"]["vocab"]
    if not isinstance(tokens, list) or not all(isinstance(token, dict) for token in tokens):
        return "its added tokens are not a list of tokens"
    if not all(_is_id(token.get("id")) and isinstance(token.get("content"), str) for token in tokens):
        return "an added token has no id or content"
    entries = {token: entry for entry, token in vocab.items()}
    for content, number in ((token["content"], token["id"]) for token in tokens):
        if vocab.get(content, number) != number or entries.get(number, content) != content:
            return f"its added token {content!r} contradicts its vocabulary"
    return ""


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MAX_VOCAB_SIZE
