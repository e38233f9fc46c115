"""Writing to disk, and everything that makes it safe.

Three promises hold for everything written here:

- A folder (`new_directory`) or file (`write_file`) appears complete or not at all: it is written under a temporary
  name, flushed to the disk and renamed; then its parent folder is flushed.
- Nothing valid is overwritten in a folder made this way.
- A log (`AppendLog`) only grows. It is cut only on request, to a length that a manifest names.

Work that takes long is kept when its process is killed (`unfinished_directory`). `FolderLock` and `alone_in` keep other
processes from writing at the same time. A `scratch_folder` that a killed process has left is removed by the next one.
Disk errors become `StorageError`.
"""

from gptcli.storage.append_log import AppendLog
from gptcli.storage.atomic import (
    REPLACED_SUFFIX,
    TEMPORARY_SUFFIX,
    NewDirectory,
    adopt_file,
    new_directory,
    remove_directory,
    remove_leftovers,
    write_file,
)
from gptcli.storage.disk import (
    disk_errors,
    flush,
    free_space,
    is_occupied,
    make_directories,
    refuse_impossible_place,
    unnamed_file,
)
from gptcli.storage.lock import FolderLock, alone_in
from gptcli.storage.manifest import MANIFEST_FILE, FileEntry, fingerprints, mismatch, sha256_of_file, to_json
from gptcli.storage.scratch import scratch_folder
from gptcli.storage.unfinished import (
    UNFINISHED_SUFFIX,
    UnfinishedDirectory,
    remove_unfinished,
    unfinished_directory,
    unfinished_of,
)

__all__ = [
    "MANIFEST_FILE",
    "REPLACED_SUFFIX",
    "TEMPORARY_SUFFIX",
    "UNFINISHED_SUFFIX",
    "AppendLog",
    "FileEntry",
    "FolderLock",
    "NewDirectory",
    "UnfinishedDirectory",
    "adopt_file",
    "alone_in",
    "disk_errors",
    "fingerprints",
    "flush",
    "free_space",
    "is_occupied",
    "make_directories",
    "mismatch",
    "new_directory",
    "refuse_impossible_place",
    "remove_directory",
    "remove_leftovers",
    "remove_unfinished",
    "scratch_folder",
    "sha256_of_file",
    "to_json",
    "unfinished_directory",
    "unfinished_of",
    "unnamed_file",
    "write_file",
]
