"""Files on the Hugging Face Hub as text: `hf://datasets/owner/name`, with an optional revision and path or pattern.

huggingface_hub downloads them, each once, into its own cache (`HF_HOME`), and resumes what broke off. Our cache keeps
the list of files and the commit, so that the same address gives the same text later, without a network too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from gptcli.dataset.remote.addresses import HubPlace, hub_place
from gptcli.dataset.remote.cache import (
    CachedFile,
    Record,
    folder_of,
    locked,
    problem_of,
    read_record,
    require_room,
    write_record,
)
from gptcli.dataset.remote.fetched import Fetched, RemoteFile, dated_note
from gptcli.dataset.sources import OnProgress
from gptcli.errors import CorpusError, counted, first_line, size

_CARD = "README.md"
_COMMIT = re.compile("[0-9a-f]{40}")
_WILD = re.compile(r"[*?[]")

Skip = Callable[[PurePosixPath], str]
"""The reason why a file in a folder is skipped; "" for one that is read."""


def fetch_hub(address: str, skip: Skip, on_progress: OnProgress) -> Fetched:
    """The files at an address on the Hub, downloaded unless they are in the cache, with notes.

    A folder gives the files that `skip` has no reason against. Raises UsageError for an impossible address, CorpusError
    for a download that fails, and StorageError.
    """
    place = hub_place(address)
    folder = folder_of(address)
    with locked(folder, on_progress), _explained_errors(address, place):
        record = read_record(folder)
        is_new = record is None
        if record is None:
            record = _listed(address, place)
            write_record(folder, record)
        is_folder = not _WILD.search(place.path) and [file.name for file in record.files] != [place.path]
        reasons = {file.name: _reason(file.name, place, skip) if is_folder else "" for file in record.files}
        chosen = [file for file in record.files if not reasons[file.name]]
        if not chosen:
            raise CorpusError(f"'{address}' holds no file that can be read.", "Choose others with `data.include`.")
        paths, new_bytes = _downloaded(chosen, place, record.revision, on_progress)
    notes = []
    if new_bytes:
        what = f"{counted(len(chosen), 'file')}, {size(new_bytes)}, revision {record.revision[:8]}"
        notes.append(f"'{address}' was downloaded: {what}.")
    elif not is_new:
        notes.append(dated_note(f"'{address}' (revision {record.revision[:8]})", record, folder))
    files = [RemoteFile(path, _name(file, place)) for path, file in zip(paths, chosen, strict=True)]
    skipped = tuple((name, reason) for name, reason in reasons.items() if reason)
    return Fetched(tuple(files), tuple(notes), skipped, is_folder)


def why_not(error: Exception, address: str, what: str, revision: str | None) -> tuple[str, str]:
    """The message and the hint for a failed request to the Hub, from the most specific cause to the most general.

    `what` is the kind of repository: "model", "dataset" or "space".
    """
    from huggingface_hub import errors
    from huggingface_hub.constants import HF_HUB_OFFLINE

    if isinstance(error, errors.GatedRepoError):
        hint = f"Request it on the {what}'s page, log in with `hf auth login`, and run the command again."
        return f"Access to '{address}' must be granted by its owner.", hint
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"The {what} '{address}' does not exist or is private.",
            "Check the name, or log in with `hf auth login`.",
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return f"The {what} has no revision '{revision}'.", f"Leave it out: {address.replace(f'@{revision}', '', 1)}"
    if isinstance(error, errors.RemoteEntryNotFoundError):
        return f"The {what} has no '{address}'.", "Check the path."
    status = http_status(error)
    if HF_HUB_OFFLINE and status is None:
        return f"'{address}' is not in the cache, and HF_HUB_OFFLINE is set.", "Unset it, or give a local folder."
    if isinstance(error, errors.LocalEntryNotFoundError | ConnectionError) or is_transport_error(error):
        message = f"'{address}' is not in the cache, and the Hub cannot be reached."
        return message, "Check the network, or give a local folder."
    reason = first_line(error) if status is None else f"status {status}"
    return f"'{address}' could not be downloaded: {reason}.", "Run the command again later."


def http_status(error: Exception) -> int | None:
    """The HTTP status of a failed request; None if there was no response."""
    status: int | None = getattr(getattr(error, "response", None), "status_code", None)
    return status


def is_transport_error(error: Exception) -> bool:
    """Whether there was no connection, or it broke off."""
    import httpx2

    return isinstance(error, httpx2.TransportError)


@contextmanager
def _explained_errors(address: str, place: HubPlace) -> Iterator[None]:
    """A context in which failed requests become CorpusErrors."""
    import httpx2
    from huggingface_hub.errors import XetDownloadError

    try:
        yield
    except (httpx2.HTTPError, XetDownloadError, OSError) as error:
        raise CorpusError(*why_not(error, address, place.kind, place.revision)) from error


def _listed(address: str, place: HubPlace) -> Record:
    """The files that an address names, at the commit that its revision is now. Raises CorpusError if there are none."""
    from huggingface_hub import HfApi

    api = HfApi(library_name="gptcli")
    revision = place.revision or ""
    if not _COMMIT.fullmatch(revision):
        revision = api.repo_info(place.repository, repo_type=place.kind, revision=place.revision).sha or ""
    fixed = PurePosixPath(_WILD.split(place.path)[0] + "x").parent if _WILD.search(place.path) else place.path
    tree = list(_tree(api, place, "" if str(fixed) == "." else str(fixed), revision))
    files = tuple(sorted((_entry(file) for file in tree if _is_named(file.path, place)), key=lambda file: file.name))
    if not files:
        raise CorpusError(f"There is no file at '{address}'.", "Check the path or the pattern.")
    return Record(address=address, revision=revision, files=files)


def _tree(api: Any, place: HubPlace, path: str, revision: str) -> Iterator[Any]:
    """The files at or below a path of the repository."""
    from huggingface_hub.hf_api import RepoFile

    def entries(folder: str, *, recursive: bool) -> Iterator[Any]:
        options = {"repo_type": place.kind, "revision": revision, "recursive": recursive}
        yield from api.list_repo_tree(place.repository, folder or None, **options)

    if path and not _WILD.search(place.path):  # it may be a file, of which there is no tree
        parent = str(PurePosixPath(path).parent)
        beside = [one for one in entries("" if parent == "." else parent, recursive=False) if one.path == path]
        if not beside or isinstance(beside[0], RepoFile):
            yield from beside
            return
    yield from (one for one in entries(path, recursive=True) if isinstance(one, RepoFile))


def _is_named(path: str, place: HubPlace) -> bool:
    """Whether a file is among those that the address names."""
    parts = PurePosixPath(path).parts
    if ".." in parts:
        return False
    return not _WILD.search(place.path) or _matches(parts, PurePosixPath(place.path).parts)


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a path matches a pattern, part by part; `**` stands for any number of parts.

    >>> _matches(("data", "en", "a.parquet"), ("data", "**", "*.parquet"))
    True
    """
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[count:], pattern[1:]) for count in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])


def _entry(file: Any) -> CachedFile:
    return CachedFile(name=file.path, bytes=file.size, hash=file.lfs.sha256 if file.lfs else f"git:{file.blob_id}")


def _reason(name: str, place: HubPlace, skip: Skip) -> str:
    if name == _CARD:
        return "dataset card"
    return skip(PurePosixPath(name).relative_to(place.path))


def _name(file: CachedFile, place: HubPlace) -> str:
    """The address of a file, without a revision."""
    kind = "" if place.kind == "model" else f"{place.kind}s/"
    return f"hf://{kind}{place.repository}/{file.name}"


def _downloaded(
    files: Sequence[CachedFile], place: HubPlace, revision: str, on_progress: OnProgress
) -> tuple[list[Path], int]:
    """The local paths of files, and how many bytes were downloaded. Raises CorpusError for a damaged one."""
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.constants import HF_HUB_CACHE

    where: dict[str, Any] = {"repo_id": place.repository, "repo_type": place.kind, "revision": revision}
    missing = [file for file in files if not isinstance(try_to_load_from_cache(filename=file.name, **where), str)]
    total = sum(file.bytes for file in missing)
    require_room(Path(HF_HUB_CACHE), total)
    bar = _reporting_bar(on_progress, f"downloading {place.repository}", total)
    paths = []
    for file in files:
        options = {**where, "filename": file.name, "library_name": "gptcli", "tqdm_class": bar}
        path = Path(hf_hub_download(**options))
        if problem_of(path, file):
            path = Path(hf_hub_download(**options, force_download=True))
        if problem := problem_of(path, file):
            raise CorpusError(f"'{_name(file, place)}' was damaged on the way: {problem}.", "Run the command again.")
        paths.append(path)
    return paths, total


def _reporting_bar(on_progress: OnProgress, stage: str, total: int) -> type[Any]:
    """A class for huggingface_hub's progress bars that draws nothing, and reports the bytes of all bars together."""
    from huggingface_hub.utils.tqdm import tqdm

    done = 0

    class Bar(tqdm):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "disable": True})  # type: ignore[no-untyped-call]
            self.update(options.get("initial") or 0)

        def update(self, n: float | None = 1) -> None:
            nonlocal done
            done += int(n or 0)
            on_progress(stage, min(done, total), total)

        def update_transfer(self, n: float) -> None:
            """Bytes on the network, which xet counts beside those of the file."""

    return Bar
