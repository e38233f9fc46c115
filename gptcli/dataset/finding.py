"""Finding sources: what files, folders, addresses, corpora and standard input hold, and what is left out and why."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePath, PurePosixPath

from gptcli.config import DataConfig
from gptcli.config.presets import nearest_name
from gptcli.dataset.corpora import CORPORA, fetch_corpus, is_corpus
from gptcli.dataset.readers import folder_patterns, require_format
from gptcli.dataset.refusals import MissingExtraError
from gptcli.dataset.remote.addresses import HUB, refuse_other_schemes
from gptcli.dataset.remote.fetched import Fetched
from gptcli.dataset.remote.hub import fetch_hub
from gptcli.dataset.remote.web import fetch_web
from gptcli.dataset.sources import STANDARD_INPUT, OnProgress, Source, copy_standard_input
from gptcli.errors import CorpusError, reason_of
from gptcli.paths import is_elsewhere
from gptcli.storage import unnamed_file
from gptcli.tokenizer.document import TOKENIZER_FILE

VENDORED = frozenset(
    {"node_modules", "bower_components", "venv", "site-packages", "__pycache__", "vendor", "dist", "build"}
)
"""Names of folders with code of others, or with what programs make."""
GENERATED = (
    *("*.min.js", "*.min.css", "*.map", "*.lock", "*.ipynb_checkpoints", "package.json", "tsconfig.json"),
    *("package-lock.json", "npm-shrinkwrap.json", "composer.json", "pnpm-lock.yaml", "go.sum"),
)
"""Names of files that programs write for programs."""


@dataclass(frozen=True)
class Skipped:
    """A file or folder that is not read."""

    name: str
    """The path relative to the argument that named its folder; a folder ends with a slash."""
    reason: str
    """Follows a number: "3 hidden"."""


@dataclass(frozen=True)
class Found:
    """The sources that were named, and what their folders hold besides."""

    sources: tuple[Source, ...]
    skipped: tuple[Skipped, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences for the user about text from elsewhere."""


@contextmanager
def find_sources(inputs: Sequence[str], data: DataConfig, on_progress: OnProgress | None = None) -> Iterator[Found]:
    """The sources that `inputs` name, in their order; a folder gives its matching files, sorted, at any depth.

    `-` is standard input, whose copy lasts as long as the context. Text at an address and a corpus by its name come
    from the cache, to which they are downloaded first. Hidden, vendored and generated files inside a folder are
    skipped, and so are models and datasets, which have a `tokenizer.json`. Raises CorpusError for a path that is
    missing or no regular file, a folder without a match, a file that is named twice, and a failed download.
    """
    require_format(data)
    if data.encoding == "auto" and not find_spec("charset_normalizer"):
        raise MissingExtraError("`data.encoding = auto`", "data")
    if not inputs:
        raise CorpusError("There is no text to read.", "Name a text file, a folder, or - for standard input.")
    if list(inputs).count(STANDARD_INPUT) > 1:
        raise CorpusError("Standard input can be read only once.", "Name - once.")
    with ExitStack() as open_copies:
        groups: list[list[Source]] = []
        skipped: list[Skipped] = []
        notes: list[str] = []
        for given in inputs:
            if given == STANDARD_INPUT:
                descriptor = open_copies.enter_context(unnamed_file()).fileno()
                copy_standard_input(descriptor)
                copy = Source(Path("-"), "standard input", "Standard input", descriptor=descriptor, settings=data)
                groups.append([copy])
            elif is_elsewhere(given) or is_corpus(given):
                fetched = _fetched(given, data, on_progress or (lambda _stage, _done, _total: None))
                groups.append(_sources_of(fetched, data))
                skipped += [Skipped(name, reason) for name, reason in fetched.skipped]
                notes += fetched.notes
            else:
                groups.append(_sources_at(Path(given), data, skipped))
                if given in CORPORA:
                    notes.append(f"'{given}' is the file or folder here, not the corpus of that name.")
        _refuse_twice(groups)
        yield Found(tuple(source for group in groups for source in group), tuple(skipped), tuple(notes))


def _fetched(given: str, data: DataConfig, on_progress: OnProgress) -> Fetched:
    """The local files of an address or a corpus. Raises UsageError for an address that cannot be read."""
    if not is_elsewhere(given):
        return fetch_corpus(given, on_progress)
    refuse_other_schemes(given)
    if given.startswith(HUB):
        return fetch_hub(given, _Rules(data).inside, on_progress)
    return fetch_web(given, on_progress)


def _sources_of(fetched: Fetched, data: DataConfig) -> list[Source]:
    return [
        Source(file.path, file.name, f"'{file.name}'", from_folder=fetched.from_folder, settings=data)
        for file in fetched.files
    ]


def _sources_at(path: Path, data: DataConfig, skipped: list[Skipped]) -> list[Source]:
    try:
        if path.is_dir():
            return _sources_in_folder(path, data, skipped)
        if not path.exists():
            hint = nearest_name(str(path), CORPORA) or "Check the path."
            raise CorpusError(f"There is no file or folder '{path}'.", hint)
    except OSError as error:
        where = error.filename or path
        hint = "Check its permissions, or name a folder with nothing but your texts."
        raise CorpusError(f"'{where}' cannot be read: {reason_of(error)}.", hint) from None
    if not path.is_file():
        raise CorpusError(
            f"'{path}' is a device, pipe or socket, not a regular file.", "To read from a pipe, use - (standard input)."
        )
    return [Source(path, path.name, f"'{path}'", settings=data)]


def _sources_in_folder(folder: Path, data: DataConfig, skipped: list[Skipped]) -> list[Source]:
    def stop(error: OSError) -> None:
        raise error

    rules = _Rules(data)
    found: list[Path] = []
    for parent, folders, names in os.walk(folder, onerror=stop):
        place = Path(parent).relative_to(folder)
        if TOKENIZER_FILE in names and Path(parent) != folder:
            folders.clear()  # a model or a dataset, such as a run: its model card is not part of the text
            skipped.append(Skipped(f"{place.as_posix()}/", "models and datasets"))
            continue
        for name in sorted(folders):
            if reason := rules.folder(place / name):
                folders.remove(name)
                skipped.append(Skipped(f"{(place / name).as_posix()}/", reason))
        for name in sorted(names):
            reason = rules.file(place / name)
            if not reason and not Path(parent, name).is_file():
                reason = "links to nothing, pipes or devices"
            if reason:
                skipped.append(Skipped((place / name).as_posix(), reason))
            else:
                found.append(Path(parent, name))
    files = sorted(found, key=lambda path: path.relative_to(folder).parts)
    if not files:
        patterns = ", ".join(data.include) or "a format that can be read"
        message = f"The folder '{folder}' holds no file that matches {patterns}."
        raise CorpusError(message, "Choose other patterns with `data.include`, such as *.py.")
    return [
        Source(path, path.relative_to(folder).as_posix(), f"'{path}'", from_folder=True, settings=data)
        for path in files
    ]


class _Rules:
    """Why files and folders inside a folder are skipped; "" for those that are read."""

    def __init__(self, data: DataConfig) -> None:
        self._is_included = _matcher(data.include or folder_patterns())
        self._is_excluded, self._is_generated = _matcher(data.exclude), _matcher(GENERATED)

    def inside(self, path: PurePosixPath) -> str:
        """The reason for a file or for a folder above it."""
        above = [self.folder(folder) for folder in [*path.parents][:-1]]
        return next(filter(None, above), "") or self.file(path)

    def folder(self, path: PurePath) -> str:
        if path.name.startswith("."):
            return "hidden"
        if path.name in VENDORED:
            return "vendored"
        return "excluded" if self._is_excluded(path) else ""

    def file(self, path: PurePath) -> str:
        if path.name.startswith("."):
            return "hidden"
        if self._is_excluded(path):
            return "excluded"
        if not self._is_included(path):
            return path.suffix.lower() or "without a suffix"
        return "generated" if self._is_generated(path) else ""


def _matcher(patterns: Sequence[str]) -> Callable[[PurePath], bool]:
    """A function that says whether the name of a path matches a pattern, or all of it one with a slash.

    Upper and lower case are the same. A slash at the end, as a shell completes the name of a folder, means nothing, nor
    does `./` at the beginning.
    """
    plain = [pattern.lower().removeprefix("./").rstrip("/") for pattern in patterns]
    names, wholes = (
        re.compile("|".join(fnmatch.translate(pattern) for pattern in plain if ("/" in pattern) is whole) or "$^")
        for whole in (False, True)
    )
    return lambda path: bool(names.match(path.name.lower()) or wholes.match(path.as_posix().lower()))


def _refuse_twice(groups: list[list[Source]]) -> None:
    """Raise CorpusError for a file that two arguments name, be it in a folder or through a link."""
    if len(groups) < 2:
        return
    seen: dict[tuple[int, int], tuple[int, Source]] = {}
    for number, group in enumerate(groups):
        for source in group:
            if source.descriptor is None:
                status = source.path.stat()
                first, earlier = seen.setdefault((status.st_dev, status.st_ino), (number, source))
                if first != number:
                    message = f"{source.label} is named twice, the first time as {earlier.label}."
                    raise CorpusError(message, "Name it once, or leave it out of a folder with `data.exclude`.")
