"""One look at the whole text before anything is encoded: its size, its characters, and what people should know."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gptcli.dataset.sources import NotTextError, OnBytes, TextFile, has_byte_order_mark, read_text
from gptcli.errors import CorpusError
from gptcli.tokenizer.code_points import beyond_ascii

_DEFAULT_TRAIN_SHARE = 0.9
_MAX_HELD_OUT_BYTES = 10_000_000


@dataclass(frozen=True)
class Text:
    """A readable, non-blank text: one document."""

    file: TextFile
    characters: int
    bytes: int
    """UTF-8 bytes, without a byte-order mark."""


@dataclass(frozen=True)
class Survey:
    """What `texts`, in this order, amount to."""

    texts: tuple[Text, ...]
    alphabet: tuple[str, ...]
    """The distinct characters, sorted."""
    notes: tuple[str, ...]

    @property
    def characters(self) -> int:
        return sum(text.characters for text in self.texts)

    @property
    def bytes(self) -> int:
        return sum(text.bytes for text in self.texts)

    def training_characters(self, val_fraction: float | None) -> int:
        """How many characters, from the first on, are for training; the rest is held out for validation.

        By default int(0.9 × characters), as nanoGPT cuts Shakespeare into 1,003,854 and 111,540, but at most 10 MB of
        text are held out.
        """
        if val_fraction is not None:
            return int((1 - val_fraction) * self.characters)
        max_held_out = _MAX_HELD_OUT_BYTES * self.characters // self.bytes
        return max(int(_DEFAULT_TRAIN_SHARE * self.characters), self.characters - max_held_out)


def survey(files: Sequence[TextFile], on_bytes: OnBytes) -> Survey:
    """Read every file once. Raises CorpusError for what is not text, empty or blank.

    In a folder, empty, blank and binary files are passed over, and told; named ones are errors.
    """
    seen = np.zeros(sys.maxunicode + 1, dtype=np.bool_)
    texts: list[Text] = []
    blank: list[TextFile] = []
    binary: list[TextFile] = []
    marked: list[TextFile] = []
    crlf: list[TextFile] = []
    for file in files:
        look = _Look()
        try:
            for piece in read_text(file, on_bytes):
                look.at(piece)
        except NotTextError:
            if not file.from_folder:
                raise
            binary.append(file)
            continue
        if look.blank and not file.from_folder:
            raise _blank_error(file, empty=not look.characters)
        if look.blank:
            blank.append(file)
            continue
        seen |= look.seen
        texts.append(Text(file, look.characters, look.bytes))
        marked += [file] if has_byte_order_mark(file) else []
        crlf += [file] if look.crlf else []
    if not texts:
        raise CorpusError("The files of the folder hold no text.", "Name a folder or file with text in UTF-8.")
    notes = [
        _told(binary, "was passed over: it is not text", "were passed over: they are not text"),
        _told(blank, "was passed over: it is blank", "were passed over: they are blank"),
        _told(marked, "starts with a byte-order mark, which is dropped", "start with byte-order marks, now dropped"),
        _told(crlf, "has CRLF line ends; they are kept", "have CRLF line ends; they are kept"),
    ]
    alphabet = tuple(chr(point) for point in np.flatnonzero(seen))
    return Survey(tuple(texts), alphabet, tuple(note for note in notes if note))


class _Look:
    """What the pieces of one file have shown so far."""

    def __init__(self) -> None:
        self.seen = np.zeros(sys.maxunicode + 1, dtype=np.bool_)
        self.characters = self.bytes = 0
        self.blank, self.crlf = True, False
        self._known = bytes(range(0x80, 0x100))
        """Bytes to skip: ASCII seen so far, and all that are not ASCII."""

    def at(self, piece: str) -> None:
        data = piece.encode()
        if new := data.translate(None, delete=self._known):
            self._known += bytes(set(new))
            self.seen[list(set(new))] = True
        if len(data) > len(piece):
            _, points = beyond_ascii(np.frombuffer(data, dtype=np.uint8))
            self.seen[points] = True
        self.characters += len(piece)
        self.bytes += len(data)
        self.blank = self.blank and piece.isspace()
        self.crlf = self.crlf or "\r\n" in piece


def _blank_error(file: TextFile, *, empty: bool) -> CorpusError:
    what = "is empty" if empty else "is blank: it holds nothing but white space"
    return CorpusError(f"{file.subject} {what}.", "Name a file with text in UTF-8.")


def _told(files: list[TextFile], one: str, many: str) -> str:
    if len(files) < 2:
        return f"{files[0].subject} {one}." if files else ""
    return f"{len(files):,} files {many} (the first: {files[0].shown})."
