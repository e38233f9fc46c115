"""One small interface over the tokenizers, loading one from its files, and decoding a stream.

>>> tokenizer = char_tokenizer("né")
>>> tokenizer.encode("né"), tokenizer.vocab_size
([0, 1], 5)
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gptcli.errors import TokenizerError, reason_of
from gptcli.tokenizer.bytelevel import ByteLevelTokenizer, Unknown
from gptcli.tokenizer.char import CharTokenizer, alphabet_of
from gptcli.tokenizer.document import END_OF_TEXT, TOKENIZER_FILE, Document, checked, new_document
from gptcli.untrusted import read_bounded, strict_json

_MAX_BYTES = 1 << 26
"""Of a tokenizer's file; the largest that are published have half of it."""
_HINT = "A tokenizer is a tokenizer.json, a folder that holds one, or GPT-2's vocab.json with merges.txt beside it."


class Tokenizer(Protocol):
    """Text to ids and back. `ByteLevelTokenizer` and `CharTokenizer` are the two behind it."""

    kind: str
    """`char` or `bpe`."""
    vocab_size: int
    """Rows that a model needs: the largest id + 1."""
    end_of_text: int | None
    """The id of `<|endoftext|>`; None where a foreign tokenizer has none."""
    fingerprint: str
    """Hexadecimal sha256 of the tokenizer's canonical form."""
    emittable: np.ndarray
    """bool (vocab_size,): the ids that encoded text can contain, and `end_of_text`."""

    cuttable: bool
    """Whether a long text can be encoded in pieces."""

    def encode(self, text: str, *, unknown: Unknown = "error") -> list[int]: ...
    def encode_pieces(self, pieces: Iterable[str]) -> Iterator[np.ndarray]: ...
    def cut(self, pieces: Iterable[str]) -> Iterator[str]: ...
    def encode_texts(self, texts: Iterable[str]) -> Iterator[np.ndarray]: ...
    def unknown_characters(self, text: str) -> list[str]: ...
    def known_part(self, text: str) -> str: ...
    def refuse_unknown(self, text: str) -> None: ...
    def decode(self, ids: Sequence[int]) -> str: ...
    def token_bytes(self, token: int) -> bytes: ...
    def pieces(self, text: str) -> list[tuple[int, bytes]]: ...
    def to_json(self) -> str: ...


class StreamDecoder:
    """Decodes token by token and never splits a character: its parts joined are `tokenizer.decode` of all ids."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """The text that is certain now: "" while a character is incomplete."""
        return self._decoder.decode(self._tokenizer.token_bytes(token))

    def finish(self) -> str:
        """What is left at the end: "" or a replacement character for a cut one."""
        return self._decoder.decode(b"", final=True)


def is_path(kind: str) -> bool:
    """Whether a tokenizer is named by its file rather than by its kind."""
    return kind not in ("auto", "char", "bpe")


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in `path`: a tokenizer.json, a folder that holds one, or a GPT-2 vocab.json (+ merges.txt).

    Raises TokenizerError for everything else, such as a file that is cut off or not byte-level.
    """
    file = _file_of(path)
    if file.exists() and not file.is_file():
        raise TokenizerError(f"'{file}' is not a file.", _HINT)
    return _tokenizer_of(_read_json(file, f"The tokenizer '{file}'"), file)


def parse_tokenizer(content: bytes, file: Path) -> Tokenizer:
    """The tokenizer in the content of a tokenizer.json, which `file` names in errors; raises TokenizerError."""
    try:
        return _tokenizer_of(strict_json(content), file)
    except ValueError as error:
        raise TokenizerError(f"The tokenizer '{file}' is not valid JSON: {error}.", _HINT) from None


def _tokenizer_of(content: Any, file: Path) -> Tokenizer:
    name = f"The tokenizer '{file}'"
    if _is_vocabulary(content):
        content = _gpt2_document(content, _beside(file), name)
    document = checked(content, name)
    if alphabet := alphabet_of(document):
        return CharTokenizer(document, alphabet, name)
    return ByteLevelTokenizer(document, name)


def holds_tokenizer(folder: Path) -> bool:
    """Whether a folder holds a file that `load_tokenizer` would read."""
    return _file_in(folder) is not None


def _file_in(folder: Path) -> Path | None:
    files = (folder / TOKENIZER_FILE, folder / "vocab.json")
    return next((file for file in files if file.is_file()), None)


def _file_of(path: Path) -> Path:
    """The JSON file that `path` means."""
    if path.is_dir():
        if file := _file_in(path):
            return file
        raise TokenizerError(f"The folder '{path}' holds no {TOKENIZER_FILE}.", _HINT)
    if path.name.endswith("merges.txt"):
        return path.with_name(path.name.removesuffix("merges.txt") + "vocab.json")
    return path


def _beside(vocab_file: Path) -> Path:
    """The merges that belong to a vocabulary: `vocab.json` → `merges.txt`, `x-vocab.json` → `x-merges.txt`."""
    return vocab_file.with_name(vocab_file.name.removesuffix("vocab.json") + "merges.txt")


def _read(path: Path, name: str) -> str:
    try:
        return read_bounded(path, _MAX_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise TokenizerError(f"There is no tokenizer '{path}'.", f"Use auto, char, bpe or a path. {_HINT}") from None
    except OSError as error:
        raise TokenizerError(f"{name} cannot be read: {reason_of(error)}.", _HINT) from None
    except UnicodeDecodeError:
        raise TokenizerError(f"{name} is not a text file.", _HINT) from None
    except ValueError as error:
        raise TokenizerError(f"{name} cannot be read: {error}.", _HINT) from None


def _read_json(path: Path, name: str) -> Any:
    text = _read(path, name)
    try:
        return strict_json(text)
    except ValueError as error:
        raise TokenizerError(f"{name} is not valid JSON: {error}.", _HINT) from None


def _is_vocabulary(content: object) -> bool:
    """Whether this is GPT-2's vocab.json, a flat table of entries and ids."""
    return isinstance(content, dict) and bool(content) and all(type(token) is int for token in content.values())


def _gpt2_document(vocab: dict[str, int], merges_file: Path, name: str) -> Document:
    """`tokenizer.json` of the pair of files that OpenAI published; merges.txt has one pair a line after its header."""
    lines = _read(merges_file, f"The merges '{merges_file}'").split("\n")
    merges = [tuple(line.rstrip("\r").split(" ")) for line in lines if line.strip() and not line.startswith("#version")]
    if not all(len(merge) == 2 for merge in merges):
        raise TokenizerError(f"{name} cannot be used: '{merges_file}' is not a list of pairs.", _HINT)
    return new_document(vocab, [(merge[0], merge[1]) for merge in merges], vocab.get(END_OF_TEXT))
