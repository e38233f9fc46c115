"""Ids of an earlier dataset for the beginning of a text that has grown.

A dataset of much text has marks: places in its training split, each with a hash of the text since the one before. A new
dataset with the same tokenizer takes over the ids up to the last mark whose text is the same, and continues there as if
it had been interrupted. The ids are those of encoding everything, since a mark is where `Tokenizer.cut` cut the text;
the text after it is another one now, so the cut must still be one.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter

from gptcli.dataset import shards as shard_files
from gptcli.dataset.corpus import Corpus
from gptcli.dataset.manifest import DatasetManifest, ShardEntry, read_manifest
from gptcli.dataset.progress import BEGINNING, MARKS_FILE, Mark, Place, Reused
from gptcli.dataset.splits import Part, PartReader
from gptcli.errors import DatasetError
from gptcli.storage import NewDirectory, sha256_of_file
from gptcli.tokenizer.corpus import is_cut
from gptcli.tokenizer.tokenizer import Tokenizer
from gptcli.untrusted import read_bounded, strict_json

_MAX_BYTES = 1 << 26
_COMPARED = 3
"""Datasets whose text is compared: the newest."""
_MARKS = TypeAdapter(tuple[Mark, ...])


def reuse_ids(
    new: NewDirectory,
    tokenizer: Tokenizer,
    corpus: Corpus,
    parts: Iterable[Part],
    folders: Iterable[Path],
) -> Reused | None:
    """Copy to `new` the ids that one of the datasets has for the beginning of a training split; None where none has."""
    found: list[tuple[int, Path, DatasetManifest, tuple[Mark, ...]]] = []
    dtype = shard_files.dtype_for(tokenizer.vocab_size)
    separates = tokenizer.end_of_text is not None and len(corpus.documents) > 1
    for folder in sorted(folders, key=_time_of, reverse=True):
        with suppress(DatasetError, OSError, ValueError):
            manifest = read_manifest(folder)
            if (manifest.tokenizer.fingerprint, manifest.uses_end_of_text) == (tokenizer.fingerprint, separates):
                if manifest.train.shards[0].dtype != dtype:  # of an earlier version
                    continue
                marks = _MARKS.validate_python(strict_json(read_bounded(folder / MARKS_FILE, _MAX_BYTES)))
                same = tuple(_same(marks, corpus, parts, cuttable=tokenizer.cuttable))
                found.append((len(same), folder, manifest, same))
        if len(found) == _COMPARED:
            break
    for count, folder, manifest, marks in sorted(found, key=lambda one: one[0], reverse=True):
        if count and (place := _copied(new, folder, manifest.train.shards, marks[-1])):
            return Reused(place, marks, folder)
    return None


def _time_of(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0


def _same(marks: Sequence[Mark], corpus: Corpus, parts: Iterable[Part], *, cuttable: bool) -> Iterator[Mark]:
    """The marks up to which the training split has the same text, and may be cut."""

    def may_cut(before: str, after: str) -> bool:
        return cuttable and is_cut(before, after)

    left, reader = deque(marks), PartReader(corpus)
    text = hashlib.blake2b()
    for number, part in enumerate(parts):
        if not left or left[0].part < number:
            return
        text.update(BEGINNING)
        at, waiting, last = part.start, None, ""
        for piece in reader.read(part):
            if waiting:
                if not may_cut(last, piece[0]):
                    return
                yield waiting
                waiting = None
            while left and left[0].part == number and at < left[0].character <= at + len(piece):
                mark = left.popleft()
                before, piece = piece[: mark.character - at], piece[mark.character - at :]
                text.update(before.encode())
                if text.hexdigest() != mark.digest or (piece and not may_cut(before[-1], piece[0])):
                    return
                text, at, last = hashlib.blake2b(), mark.character, before[-1]
                if piece:
                    yield mark
                else:
                    waiting = mark  # the next character decides whether it may be cut
            text.update(piece.encode())
            at += len(piece)
        if waiting:
            yield waiting


def _copied(new: NewDirectory, folder: Path, shards: Sequence[ShardEntry], mark: Mark) -> Place | None:
    """Copy the ids before a mark. None if a shard is damaged."""
    finished: list[ShardEntry] = []
    left, tokens, crc32 = mark.tokens, 0, 0
    for shard in shards:
        if not left:
            break
        path = folder / shard.file
        if sha256_of_file(path) != shard.sha256:
            return None
        count = min(left, shard.tokens)
        left -= count
        is_finished = count == shard.tokens == shard_files.MAX_SHARD_TOKENS
        crc32 = shard_files.copy_shard(new, path, shard, count)
        if is_finished:
            finished.append(shard)
        else:
            tokens = count
    if left:
        return None
    return Place(
        part=mark.part,
        character=mark.character,
        characters=mark.characters,
        bytes=mark.bytes,
        shards=tuple(finished),
        tokens=tokens,
        crc32=crc32 if tokens else 0,
    )
