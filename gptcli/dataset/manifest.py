"""`dataset.json`, the manifest of a dataset folder. Written last, so a folder that has it is complete."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from gptcli.errors import DatasetError, reason_of
from gptcli.storage import to_json
from gptcli.tokenizer.tokenizer import Tokenizer
from gptcli.untrusted import read_bounded, strict_json

DATASET_FILE = "dataset.json"
DAMAGED_HINT = "Delete the folder and prepare the dataset again from the text."
FORMATS = (1, 2)
"""1 lists all sources; 2 has only their sum, and is written where they are more than `LISTED_SOURCES`."""
LISTED_SOURCES = 10_000
_MAX_BYTES = 1 << 26
_MAX_COUNT = 1 << 53

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Positive = Annotated[int, Field(ge=1, le=_MAX_COUNT)]
Dtype = Literal["uint8", "uint16", "uint32"]
Name = Annotated[str, Field(pattern=r"^[^./\x00-\x1f\x7f][^/\x00-\x1f\x7f]*$", max_length=200)]


class DamagedDataset(DatasetError):  # noqa: N818 - an error by its base class
    """A dataset folder whose files are missing, cut off or altered. It can be made again from its text."""


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ShardEntry(_Entry):
    """A `.npy` file of ids, in this folder."""

    file: Annotated[str, Field(pattern=r"^(train|val)-[0-9]{5,9}\.npy$")]
    tokens: Positive
    dtype: Dtype
    bytes: Positive
    sha256: Sha256
    uint16_sha256: Sha256 | None = None
    """Of the same ids in a file of uint16, where these are uint8: earlier versions wrote every id in two bytes or more,
    and the fingerprints of their datasets must stay."""

    @model_validator(mode="after")
    def _is_hashed_as_before(self) -> ShardEntry:
        if (self.uint16_sha256 is not None) != (self.dtype == "uint8"):
            raise ValueError("the hash of uint16 ids belongs to shards of uint8, and to no others")
        return self


class SplitEntry(_Entry):
    """One split. `characters` and `bytes` count its text, so that bits per byte can be computed."""

    tokens: Positive
    characters: Positive
    bytes: Positive
    shards: Annotated[tuple[ShardEntry, ...], Field(min_length=1, strict=False)]

    @model_validator(mode="after")
    def _shards_add_up(self) -> SplitEntry:
        if sum(shard.tokens for shard in self.shards) != self.tokens:
            raise ValueError("the shards do not add up to the tokens of the split")
        return self


class SourceEntry(_Entry):
    """A source: its name relative to the argument that named it, its size in bytes, its hash."""

    name: str
    size: Annotated[int, Field(ge=0, le=_MAX_COUNT)]
    sha256: Sha256


class SourceTotal(_Entry):
    """All sources of a dataset that has too many to list."""

    files: Positive
    bytes: Annotated[int, Field(ge=0, le=_MAX_COUNT)]
    sha256: Sha256
    """Of the lines that `sha256sum` prints for the sources, sorted."""


class TokenizerEntry(_Entry):
    """The tokenizer of the ids, which is in `tokenizer.json`."""

    kind: Literal["char", "bpe"]
    vocab_size: Positive
    fingerprint: Sha256

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> TokenizerEntry:
        """The entry of a tokenizer."""
        names = ("kind", "vocab_size", "fingerprint")
        return cls.model_validate({name: getattr(tokenizer, name) for name in names})


class DatasetManifest(_Entry):
    """The content of `dataset.json`."""

    format: Literal[1, 2]
    name: Name
    """A plain folder name. Runs are named after it."""
    key: Sha256
    """Hash of the sources and of the tokenizer and split settings: equal keys give equal datasets."""
    tokenizer: TokenizerEntry
    documents: Positive
    uses_end_of_text: bool
    """Whether `<|endoftext|>` precedes each document."""
    start_id: Annotated[int, Field(ge=0)]
    """The id that an empty prompt starts from."""
    train: SplitEntry
    val: SplitEntry
    sources: Annotated[tuple[SourceEntry, ...], Field(strict=False)] = ()
    """In format 1."""
    source_total: SourceTotal | None = None
    """In format 2."""

    @model_validator(mode="after")
    def _sources_fit_the_format(self) -> DatasetManifest:
        if (bool(self.sources), bool(self.source_total)) != (self.format == 1, self.format == 2):
            raise ValueError(f"its sources are not given as in format {self.format}")
        return self

    @model_validator(mode="after")
    def _start_is_an_id(self) -> DatasetManifest:
        if self.start_id >= self.tokenizer.vocab_size:
            raise ValueError("start_id is not an id of the tokenizer")
        return self

    def shards(self) -> tuple[ShardEntry, ...]:
        """The shards of both splits."""
        return (*self.train.shards, *self.val.shards)

    def to_json(self) -> bytes:
        """The content of `dataset.json`."""
        unused = {"source_total"} if self.format == 1 else {"sources"}
        return to_json(self.model_dump(mode="json", exclude=unused, exclude_none=True))

    def fingerprint(self) -> str:
        """Hexadecimal sha256 of the tokenizer and the ids, independent of names and places, and of uint8 or uint16."""
        splits = (self.train, self.val)
        hashes = [[shard.uint16_sha256 or shard.sha256 for shard in split.shards] for split in splits]
        return digest([self.tokenizer.fingerprint, hashes])


def total_of(sources: Iterable[SourceEntry]) -> SourceTotal:
    """The sum of sources."""
    lines, size = list[bytes](), 0
    for source in sources:
        lines.append(f"{source.sha256}  {source.name}\n".encode())
        size += source.size
    return SourceTotal(files=len(lines), bytes=size, sha256=hashlib.sha256(b"".join(sorted(lines))).hexdigest())


def is_dataset_name(text: str) -> bool:
    """Whether `text` can be the name of a dataset."""
    try:
        TypeAdapter(Name).validate_python(text)
    except ValidationError:
        return False
    return True


def read_manifest(folder: Path) -> DatasetManifest:
    """The manifest of a dataset folder; raises DatasetError if it is missing, cut off, altered or of another format."""
    path = folder / DATASET_FILE
    try:
        values = strict_json(read_bounded(path, _MAX_BYTES))
    except FileNotFoundError:
        raise DatasetError(f"'{folder}' is not a dataset folder: it has no {DATASET_FILE}.") from None
    except OSError as error:
        raise DatasetError(f"'{path}' cannot be read: {reason_of(error)}.") from None
    except ValueError as error:
        raise DamagedDataset(f"'{path}' is damaged: {error}.", DAMAGED_HINT) from None
    other = values.get("format") if isinstance(values, dict) else None
    if type(other) is int and other not in FORMATS:
        message = f"'{path}' has format {other}, and this version reads {FORMATS[0]} and {FORMATS[1]}."
        raise DatasetError(message, "Use a newer gptcli.")
    try:
        return DatasetManifest.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        own = first["type"] == "value_error"  # a sentence of ours
        problem = str(first["ctx"]["error"]) if own else f"its entry '{where}' is missing or cannot be used"
        raise DamagedDataset(f"'{path}' is damaged: {problem}.", DAMAGED_HINT) from None


def digest(value: Any) -> str:
    """Hexadecimal sha256 of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
