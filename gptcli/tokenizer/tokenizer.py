"""Loading a tokenizer from its files, and decoding a stream of tokens.

>>> tokenizer = char_tokenizer("né")
>>> tokenizer.encode("né"), tokenizer.vocab_size
([0, 1], 5)
"""

from __future__ import annotations

import codecs
from pathlib import Path

from gptcli.errors import TokenizerError, reason_of
from gptcli.tokenizer.bytelevel import Tokenizer
from gptcli.tokenizer.char import CharTokenizer, alphabet_of
from gptcli.tokenizer.document import END_OF_TEXT, TOKENIZER_FILE, Document, checked, new_document
from gptcli.untrusted import read_bounded, strict_json

__all__ = ["StreamDecoder", "Tokenizer", "holds_tokenizer", "is_path", "load_tokenizer", "parse_tokenizer"]

MAX_BYTES = 1 << 26
"""Size limit for tokenizer files: twice the largest published one."""
_HINT = "A tokenizer is a tokenizer.json, a folder that contains one, or GPT-2's vocab.json with merges.txt beside it."


class StreamDecoder:
    """Decodes token by token without splitting characters. The parts, joined, are `tokenizer.decode` of all ids."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """The text that this token completes: "" while a character is incomplete."""
        return self._decoder.decode(self._tokenizer.token_bytes(token))

    def finish(self) -> str:
        """The rest of the text at the end: "", or U+FFFD for an incomplete character."""
        return self._decoder.decode(b"", final=True)


def is_path(kind: str) -> bool:
    """Whether the value of `tokenizer.kind` is the path of a tokenizer."""
    return kind not in ("auto", "char", "bpe")


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in `path`: a tokenizer.json, a folder that contains one, or a GPT-2 vocab.json (+ merges.txt).

    Raises TokenizerError for anything else, such as a truncated file or a tokenizer that is not byte-level.
    """
    file = _file_of(path)
    if file.exists() and not file.is_file():
        raise TokenizerError(f"'{file}' is not a file.", _HINT)
    return parse_tokenizer(_read(file, f"The tokenizer '{file}'"), file)


def parse_tokenizer(content: str | bytes, file: Path) -> Tokenizer:
    """The tokenizer in the content of a JSON file, which `file` names in errors; raises TokenizerError."""
    name = f"The tokenizer '{file}'"
    try:
        document = strict_json(content)
    except ValueError as error:
        raise TokenizerError(f"{name} cannot be read: {error}.", _HINT) from None
    if _is_vocabulary(document):
        document = _gpt2_document(document, file, name)
    document = checked(document, name)
    if alphabet := alphabet_of(document):
        return CharTokenizer(document, alphabet, name)
    return Tokenizer(document, name)


def holds_tokenizer(folder: Path) -> bool:
    """Whether a folder contains a file that `load_tokenizer` would read."""
    return _file_in(folder) is not None


def _file_in(folder: Path) -> Path | None:
    files = (folder / TOKENIZER_FILE, folder / "vocab.json")
    return next((file for file in files if file.is_file()), None)


def _file_of(path: Path) -> Path:
    """The JSON file of the tokenizer in `path`."""
    if path.is_dir():
        if file := _file_in(path):
            return file
        raise TokenizerError(f"The folder '{path}' contains no {TOKENIZER_FILE}.", _HINT)
    if path.name.endswith("merges.txt"):
        return path.with_name(path.name.removesuffix("merges.txt") + "vocab.json")
    return path


def _read(path: Path, name: str) -> str:
    try:
        return read_bounded(path, MAX_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise TokenizerError(f"There is no tokenizer '{path}'.", f"Use auto, char, bpe or a path. {_HINT}") from None
    except OSError as error:
        raise TokenizerError(f"{name} cannot be read: {reason_of(error)}.", _HINT) from None
    except UnicodeDecodeError:
        raise TokenizerError(f"{name} is not a text file.", _HINT) from None
    except ValueError as error:
        raise TokenizerError(f"{name} cannot be read: {error}.", _HINT) from None


def _is_vocabulary(content: object) -> bool:
    """Whether this is the content of GPT-2's vocab.json, a flat table of entries and ids."""
    return isinstance(content, dict) and bool(content) and all(type(token) is int for token in content.values())


def _gpt2_document(vocab: dict[str, int], vocab_file: Path, name: str) -> Document:
    """The `tokenizer.json` for OpenAI's pair of files: x-vocab.json, and x-merges.txt with one pair per line."""
    merges_file = vocab_file.with_name(vocab_file.name.removesuffix("vocab.json") + "merges.txt")
    lines = _read(merges_file, f"The merges '{merges_file}'").split("\n")
    merges = [tuple(line.rstrip("\r").split(" ")) for line in lines if line.strip() and not line.startswith("#version")]
    if not all(len(merge) == 2 for merge in merges):
        raise TokenizerError(f"{name} cannot be used: '{merges_file}' is not a list of pairs.", _HINT)
    return new_document(vocab, [(merge[0], merge[1]) for merge in merges], vocab.get(END_OF_TEXT))
