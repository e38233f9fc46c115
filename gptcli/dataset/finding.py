"""Finding sources: what files, folders, addresses, corpora and standard input hold, and what is left out and why."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Iterator, Sequence
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
from gptcli.paths import hint_for_missing, is_elsewhere
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
    unmatched: tuple[str, ...] = ()
    """Stated patterns that match nothing, as settings: "data.exclude = drafts"."""
    notes: tuple[str, ...] = ()
    """Sentences for the user about text from elsewhere."""


@contextmanager
def find_sources(inputs: Sequence[str], data: DataConfig, on_progress: OnProgress | None = None) -> Iterator[Found]:
    """The sources that `inputs` name, in their order; a folder gives its matching files, sorted, at any depth.

    `-` is standard input, whose copy lasts as long as the context. Text at an address and a corpus by its name come
    from the cache, to which they are downloaded first. Hidden, vendored and generated files inside a folder are
    skipped, and so are models and datasets, which have a `tokenizer.json`, and further names of one file. Raises
    CorpusError for a path that is missing or no regular file, a folder without a match, a file that is named twice, and
    a failed download.
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
        rules = _Rules(data)
        for given in inputs:
            if given == STANDARD_INPUT:
                descriptor = open_copies.enter_context(unnamed_file()).fileno()
                copy_standard_input(descriptor)
                copy = Source(Path("-"), "standard input", "Standard input", descriptor=descriptor, settings=data)
                groups.append([copy])
            elif is_elsewhere(given) or is_corpus(given):
                fetched = _fetched(given, rules, on_progress or (lambda _stage, _done, _total: None))
                groups.append(_sources_of(fetched, data))
                skipped += [Skipped(name, reason) for name, reason in fetched.skipped]
                notes += fetched.notes
            else:
                groups.append(_sources_at(Path(given), data, rules, skipped))
                if given in CORPORA:
                    notes.append(f"'{given}' is the file or folder here, not the corpus of that name.")
        _refuse_twice(groups)
        sources = tuple(source for group in groups for source in group)
        yield Found(sources, tuple(skipped), rules.unmatched(), tuple(notes))


def _fetched(given: str, rules: _Rules, on_progress: OnProgress) -> Fetched:
    """The local files of an address or a corpus. Raises UsageError for an address that cannot be read."""
    if not is_elsewhere(given):
        return fetch_corpus(given, on_progress)
    refuse_other_schemes(given)
    if given.startswith(HUB):
        return fetch_hub(given, rules.inside, on_progress)
    return fetch_web(given, on_progress)


def _sources_of(fetched: Fetched, data: DataConfig) -> list[Source]:
    return [
        Source(file.path, file.name, f"'{file.name}'", from_folder=fetched.from_folder, settings=data)
        for file in fetched.files
    ]


def _sources_at(path: Path, data: DataConfig, rules: _Rules, skipped: list[Skipped]) -> list[Source]:
    try:
        if path.is_dir():
            return _sources_in_folder(path, data, rules, skipped)
        if not path.exists():
            hint = nearest_name(str(path), CORPORA) or hint_for_missing(path)
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


def _sources_in_folder(folder: Path, data: DataConfig, rules: _Rules, skipped: list[Skipped]) -> list[Source]:
    found = _once([*_files_in(folder, rules, skipped)], folder, skipped)
    if not found:
        what = f"that matches {', '.join(data.include)}" if data.include else "of a format that gptcli reads"
        message = f"The folder '{folder}' holds no file {what}."
        raise CorpusError(message, "Choose other patterns with `data.include`, such as *.py.")
    return [
        Source(path, path.relative_to(folder).as_posix(), f"'{path}'", from_folder=True, settings=data)
        for path in found
    ]


def _files_in(folder: Path, rules: _Rules, skipped: list[Skipped]) -> Iterator[Path]:
    """The files of a folder to read, at any depth; the others are added to `skipped`."""

    def stop(error: OSError) -> None:
        if not rules.skips_unreadable:
            raise error
        skipped.append(Skipped(f"{Path(error.filename).relative_to(folder).as_posix()}/", "unreadable"))

    for parent, folders, names in os.walk(folder, onerror=stop):
        place = Path(parent).relative_to(folder)
        if TOKENIZER_FILE in names and Path(parent) != folder:
            folders.clear()  # a model or a dataset, such as a run: its model card is not part of the text
            skipped.append(Skipped(f"{place.as_posix()}/", "models and datasets"))
            continue
        for name in sorted(folders):
            if reason := rules.folder(place / name, Path(parent, name)):
                folders.remove(name)
                skipped.append(Skipped(f"{(place / name).as_posix()}/", reason))
        for name in sorted(names):
            if reason := rules.file(place / name, Path(parent, name)):
                skipped.append(Skipped((place / name).as_posix(), reason))
            else:
                yield Path(parent, name)


def _once(paths: list[Path], folder: Path, skipped: list[Skipped]) -> list[Path]:
    """The files sorted by name, each once: of several names of one file, links are added to `skipped`."""
    kept: dict[tuple[int, int], Path] = {}
    for path in sorted(paths, key=lambda path: (path.is_symlink(), path.relative_to(folder).parts)):
        status = path.stat()
        if kept.setdefault((status.st_dev, status.st_ino), path) is not path:
            skipped.append(Skipped(path.relative_to(folder).as_posix(), "repeated by links"))
    return sorted(kept.values(), key=lambda path: path.relative_to(folder).parts)


class _Rules:
    """Why files and folders inside a folder are skipped; "" for those that are read."""

    def __init__(self, data: DataConfig) -> None:
        self.skips_unreadable = data.errors == "skip"
        self._is_included = _Patterns(data.include) if data.include else _Patterns(folder_patterns(), stated=False)
        self._is_excluded, self._is_generated = _Patterns(data.exclude), _Patterns(GENERATED, stated=False)
        self._stated = {"data.include": self._is_included if data.include else None, "data.exclude": self._is_excluded}

    def inside(self, path: PurePosixPath) -> str:
        """The reason for a file that is not on this machine, or for a folder above it."""
        above = [self.folder(folder) for folder in [*path.parents][:-1]]
        return next(filter(None, above), "") or self.file(path)

    def folder(self, path: PurePath, full: Path | None = None) -> str:
        is_excluded = self._is_excluded(path)
        if path.name.startswith("."):
            return "hidden"
        if path.name in VENDORED:
            return "vendored"
        if is_excluded:
            return "excluded"
        return "linked folders" if full and full.is_symlink() else ""

    def file(self, path: PurePath, full: Path | None = None) -> str:
        is_excluded, is_included = self._is_excluded(path), self._is_included(path)
        if path.name.startswith("."):
            return "hidden"
        if is_excluded:
            return "excluded"
        if not is_included:
            return path.suffix.lower() or "without a suffix"
        if self._is_generated(path):
            return "generated"
        if full is None:
            return ""
        if not full.is_file():
            return "links to nothing, pipes or devices"
        return "unreadable" if self.skips_unreadable and not os.access(full, os.R_OK) else ""

    def unmatched(self) -> tuple[str, ...]:
        """The stated patterns that no file or folder matched so far, as settings."""
        stated = [(key, patterns) for key, patterns in self._stated.items() if patterns]
        return tuple(f"{key} = {pattern}" for key, patterns in stated for pattern in patterns.unmatched)


class _Patterns:
    """Patterns for the name of a path, or for all of it where they have a slash; knows which stated ones matched.

    Upper and lower case are the same. A slash at the end, as a shell completes the name of a folder, means nothing, nor
    does `./` at the beginning.
    """

    def __init__(self, patterns: Sequence[str], *, stated: bool = True) -> None:
        self._unmatched = {one: _any_of([one]) for one in patterns} if stated else {}
        self._names, self._wholes = (
            _any_of(pattern for pattern in patterns if ("/" in _plain(pattern)) is whole) for whole in (False, True)
        )

    def __call__(self, path: PurePath) -> bool:
        name, whole = path.name.lower(), path.as_posix().lower()
        if not (self._names.match(name) or self._wholes.match(whole)):
            return False
        if self._unmatched:
            found = [one for one, each in self._unmatched.items() if each.match(whole if "/" in _plain(one) else name)]
            for one in found:
                del self._unmatched[one]
        return True

    @property
    def unmatched(self) -> list[str]:
        return [*self._unmatched]


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(fnmatch.translate(_plain(pattern)) for pattern in patterns) or "$^")


def _plain(pattern: str) -> str:
    return pattern.lower().removeprefix("./").rstrip("/")


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
