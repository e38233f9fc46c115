"""Token files of other tools: ids without a tokenizer.

nanogpt      ids of 16 bits and nothing else (nanoGPT's train.bin and val.bin)
llmc         256 numbers of 32 bits (a magic number, the version, the number of ids), then ids of 16 bits, or for
             Llama 3 of 32 (llm.c's dev/data/data_common.py)
datatrove    ids of 16 or 32 bits, with an index beside them: for each document its end in ids, of 64 bits
             (datatrove's pipeline/tokens/tokenizer.py)

All numbers are little-endian.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gptcli.errors import CorpusError, counted, reason_of

TOKEN_FORMATS = ("nanogpt", "llmc", "datatrove")
_HEADER_NUMBERS = 256
_LLMC_DTYPES: dict[tuple[int, int], np.dtype[np.generic]] = {
    (20240520, 1): np.dtype("<u2"),
    (20240801, 7): np.dtype("<u4"),
}
"""The dtype of llm.c's ids by magic number and version: those of GPT-2, and of Llama 3."""
_LLMC_EVALUATIONS = 20240522
"""The magic number of llm.c's files of questions, such as HellaSwag."""
_SUFFIXES = {".bin": "nanogpt", ".ds": "datatrove"}
_VALIDATION = re.compile(r"(^|[^a-z])val(id|idation)?([^a-z]|$)")


@dataclass(frozen=True)
class TokenFile:
    """A file of ids."""

    path: Path
    dtype: np.dtype[np.generic]
    offset: int
    """Bytes before the first id."""
    tokens: int
    format: str

    @property
    def bytes(self) -> int:
        """Bytes of the file."""
        return self.offset + self.tokens * self.dtype.itemsize

    @property
    def is_validation(self) -> bool:
        """Whether its name says that it is held out: val.bin, fineweb_val_000000.bin."""
        return _VALIDATION.search(self.path.name.lower()) is not None

    def ids(self) -> np.ndarray:
        """A memory map of the ids, (tokens,)."""
        try:
            return np.memmap(self.path, dtype=self.dtype, mode="r", offset=self.offset, shape=(self.tokens,))
        except (OSError, ValueError) as error:
            raise CorpusError(f"'{self.path}' cannot be read: {error}.") from None


def are_token_files(inputs: Sequence[str], form: str) -> bool:
    """Whether `inputs` are token files: the format says so, or it is open and all of their names do."""
    return form in TOKEN_FORMATS or (form == "auto" and all(Path(given).suffix in _SUFFIXES for given in inputs))


def find_token_files(inputs: Sequence[str], form: str) -> list[TokenFile]:
    """The token files that `inputs` name, files or folders, in their order; those of a folder are sorted.

    Raises CorpusError for a path that is missing, and for a file that is not whole or of another format.
    """
    pattern = "*.ds" if form == "datatrove" else "*.bin"
    found: list[TokenFile] = []
    for path in map(Path, inputs):
        try:
            inside = sorted(path.glob(pattern)) if path.is_dir() else [path]
            found += [_token_file(file, form) for file in inside]
        except OSError as error:
            raise CorpusError(f"'{path}' cannot be read: {reason_of(error)}.", "Check the path.") from None
        if not inside:
            raise CorpusError(
                f"The folder '{path}' holds no file that matches {pattern}.", "Name the files themselves."
            )
    return found


def _token_file(path: Path, form: str) -> TokenFile:
    size = path.stat().st_size
    with open(path, "rb") as file:
        header = np.frombuffer(file.read(4 * _HEADER_NUMBERS)[: size // 4 * 4], dtype="<i4")[:_HEADER_NUMBERS]
    magic = int(header[0]) if header.size else 0
    is_llmc = header.size == _HEADER_NUMBERS and magic in {known for known, _ in _LLMC_DTYPES}
    if form == "llmc" or (is_llmc and form == "auto"):
        return _llmc_file(path, header, size)
    if is_llmc:
        raise CorpusError(f"'{path}' begins with llm.c's header.", "Read it with `data.format = llmc`.")
    if form == "datatrove" or (form == "auto" and path.suffix == ".ds"):
        return _datatrove_file(path, size)
    return _plain_file(path, np.dtype("<u2"), 0, size, "nanogpt")


def _llmc_file(path: Path, header: np.ndarray, size: int) -> TokenFile:
    if header.size < _HEADER_NUMBERS:
        raise CorpusError(
            f"'{path}' is too short for llm.c's header of {4 * _HEADER_NUMBERS:,} bytes.", "Check the file."
        )
    magic, version, tokens = (int(number) for number in header[:3])
    dtype = _LLMC_DTYPES.get((magic, version))
    if dtype is None:
        what = (
            "a file of questions" if magic == _LLMC_EVALUATIONS else f"no token file (magic {magic}, version {version})"
        )
        known = " or ".join(f"magic {magic}, version {version}" for magic, version in _LLMC_DTYPES)
        raise CorpusError(f"'{path}' is {what} of llm.c.", f"Name a file with {known}.")
    file = _plain_file(path, dtype, 4 * _HEADER_NUMBERS, size, "llmc")
    if file.tokens != tokens:
        message = f"'{path}' has {counted(file.tokens, 'id')}, but its header says {tokens:,}."
        raise CorpusError(message, "It may be cut off: make or copy it again.")
    return file


def _datatrove_file(path: Path, size: int) -> TokenFile:
    """The index says how many ids there are, and so how large each is."""
    index = path.with_name(f"{path.name}.index")
    if not index.is_file():
        raise CorpusError(
            f"'{path}' has no index '{index.name}' beside it.", "Copy it there: it says how wide the ids are."
        )
    ends = np.fromfile(index, dtype="<u8")
    tokens = int(ends[-1]) if ends.size else 0
    for dtype in ("<u2", "<u4"):
        if tokens and size == tokens * np.dtype(dtype).itemsize:
            return _plain_file(path, np.dtype(dtype), 0, size, "datatrove")
    message = f"'{path}' has {counted(size, 'byte')}, but its index says {counted(tokens, 'id')}."
    raise CorpusError(message, "Copy both files again.")


def _plain_file(path: Path, dtype: np.dtype[np.generic], offset: int, size: int, form: str) -> TokenFile:
    tokens, rest = divmod(size - offset, dtype.itemsize)
    if rest:
        message = (
            f"'{path}' does not hold ids of {8 * dtype.itemsize} bits: {counted(size, 'byte')} are not a whole number."
        )
        raise CorpusError(message, "It may be cut off, or in another format: state it with `data.format`.")
    if not tokens:
        raise CorpusError(f"'{path}' holds no ids.", "Name a file with tokens.")
    return TokenFile(path, dtype, offset, tokens, form)
