"""Corpora by name: texts that a person can train on without looking for any.

    gptcli train shakespeare

Everything about a corpus is in its row of `CORPORA`: what it is, its licence, its size, and its source, pinned to a
revision. Nothing is part of gptcli: a corpus is downloaded from its source, or made from what this machine has.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec

from gptcli.dataset.python_docs import python_docs
from gptcli.dataset.refusals import MissingExtraError
from gptcli.dataset.remote.fetched import Fetched, RemoteFile
from gptcli.dataset.remote.hub import fetch_hub
from gptcli.dataset.remote.web import fetch_web
from gptcli.dataset.sources import OnProgress


@dataclass(frozen=True)
class NamedCorpus:
    """A corpus that has a name."""

    name: str
    what: str
    licence: str
    """Its SPDX identifier, or words where it has none."""
    bytes: int | None
    """Bytes to download; None for a corpus that is made here."""
    source: str
    """An address, or words."""
    sha256: str = ""
    """Of the whole download. "" where the Hub's hashes of the pinned revision are checked instead."""
    needs: str = ""
    """The extra of gptcli whose packages read it."""


CORPORA = {
    corpus.name: corpus
    for corpus in (
        NamedCorpus(
            name="shakespeare",
            what="40,000 lines of Shakespeare's plays, from the char-rnn project",
            licence="public domain",
            bytes=1_115_394,
            source="https://raw.githubusercontent.com/karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/"
            "data/tinyshakespeare/input.txt",
            sha256="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
        ),
        NamedCorpus(
            name="tinystories",
            what="2.1 million short stories in the words of small children, written by GPT-3.5 and GPT-4",
            licence="CDLA-Sharing-1.0",
            bytes=990_786_315,
            source="hf://datasets/roneneldan/TinyStories@f54c09fd23315a6f9c86f9dc80f725de7d8f9c64/data/train-*.parquet",
            needs="data",
        ),
        NamedCorpus(
            name="fineweb-edu",
            what="educational web pages: the last of the 14 files of FineWeb-Edu's sample of 10 billion tokens",
            licence="ODC-By-1.0, and Common Crawl's terms of use",
            bytes=540_632_672,
            source="hf://datasets/HuggingFaceFW/fineweb-edu@87f09149ef4734204d70ed1d046ddc9ca3f2b8f9/"
            "sample/10BT/013_00000.parquet",
            needs="data",
        ),
        NamedCorpus(
            name="python-docs",
            what="English prose from the documentation inside this Python's standard library",
            licence="PSF-2.0",
            bytes=None,
            source="made on this machine, without a network",
        ),
    )
}
"""The corpora by name."""


def is_corpus(given: str) -> bool:
    """Whether `given` names a corpus. A file or folder of that name in the working directory is meant instead."""
    return given in CORPORA and not os.path.lexists(given)


def fetch_corpus(name: str, on_progress: OnProgress) -> Fetched:
    """The text of a corpus, downloaded or made unless it is in the cache. Raises CorpusError and StorageError."""
    corpus = CORPORA[name]
    if corpus.needs and not find_spec("pyarrow"):
        raise MissingExtraError(f"The corpus {name}", corpus.needs)  # before anything is downloaded
    about = f"{name}: {corpus.what}. Licence: {corpus.licence}."
    if corpus.bytes is None:
        path = python_docs(on_progress)
        return Fetched((RemoteFile(path, path.name),), (about,))
    if corpus.sha256:
        fetched = fetch_web(corpus.source, on_progress, corpus.sha256)
    else:
        fetched = fetch_hub(corpus.source, lambda _path: "", on_progress)
    return Fetched(fetched.files, (about, *fetched.notes))
