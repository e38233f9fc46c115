"""Files and folders appear complete or not at all; one process writes at a time; logs only grow."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gptcli.errors import StorageError
from gptcli.storage import (
    AppendLog,
    FileEntry,
    FolderLock,
    alone_in,
    fingerprints,
    mismatch,
    new_directory,
    remove_directory,
    remove_leftovers,
    scratch_folder,
    to_json,
    unnamed_file,
    write_file,
)
from gptcli.storage.manifest import read_back
from tests.conftest import ROOT


def fail_with(code: int) -> OSError:
    return OSError(code, os.strerror(code))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_new_directory_has_its_manifest(tmp_path: Path) -> None:
    with new_directory(tmp_path / "a/b") as new:
        new.write("one", b"1")
        new.write("two", [b"2", memoryview(b"2")])
        assert not (tmp_path / "a/b").exists(), "visible before it is complete"
    manifest = json.loads((tmp_path / "a/b/manifest.json").read_text())
    assert manifest["files"].keys() == {"one", "two"}
    assert mismatch(tmp_path / "a/b", {name: FileEntry(**entry) for name, entry in manifest["files"].items()}) == ""
    assert names(tmp_path / "a") == {"b"}


@pytest.mark.parametrize("where", ["rename", "fsync"])
def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def refuse(*arguments: object) -> None:
        raise fail_with(errno.ENOSPC)

    monkeypatch.setattr(os, where, refuse)
    with pytest.raises(StorageError, match="no space left") as caught, new_directory(tmp_path / "b") as new:
        new.write("one", b"1")
    assert "Free some space" in caught.value.hint
    assert names(tmp_path) == set()


def test_a_body_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def write_half() -> None:
        with new_directory(tmp_path / "b") as new:
            new.write("one", b"1")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert names(tmp_path) == set()


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_an_existing_file_or_folder_is_kept(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "b"
    content = place if kind == "file" else place / "mine"
    content.parent.mkdir(exist_ok=True)
    content.write_text("mine")
    with pytest.raises(StorageError, match="already there"), new_directory(place):
        pass
    assert content.read_text() == "mine"
    assert names(tmp_path) == {"b"}


def test_replacing_a_directory(tmp_path: Path) -> None:
    for content in (b"1", b"2"):
        with new_directory(tmp_path / "b", replace=True) as new:
            new.write("one", content)
    assert (tmp_path / "b/one").read_bytes() == b"2"
    assert names(tmp_path) == {"b"}


def test_a_file_is_old_or_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(tmp_path / "a", b"old")

    def refuse(*arguments: object) -> None:
        raise fail_with(errno.EROFS)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        with pytest.raises(StorageError, match="read-only"):
            write_file(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert names(tmp_path) == {"a"}
    write_file(tmp_path / "a", [b"n", b"ew"])
    assert (tmp_path / "a").read_bytes() == b"new"


def test_a_mismatch_is_found(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    files = fingerprints(tmp_path)
    assert mismatch(tmp_path, files) == ""
    (tmp_path / "a").write_bytes(b"abd")
    assert "altered" in mismatch(tmp_path, files)
    assert mismatch(tmp_path, files, hashes=False) == ""
    (tmp_path / "a").write_bytes(b"ab")
    assert "has 2 bytes instead of 3" in mismatch(tmp_path, files, hashes=False)
    (tmp_path / "a").unlink()
    assert "missing" in mismatch(tmp_path, files)


@pytest.mark.parametrize("found", [b"onetwX", b"onetw", b"onetwoo", b""])
def test_what_reads_back_differently_is_an_error(tmp_path: Path, found: bytes) -> None:
    pieces = [b"one", memoryview(b"two")]
    path = tmp_path / "file"
    path.write_bytes(b"onetwo")
    assert read_back(path, pieces) == fingerprints(tmp_path)["file"]
    path.write_bytes(found)
    with pytest.raises(StorageError, match=r"file' was not stored"):
        read_back(path, pieces)


def test_a_log_grows_and_is_cut_on_request(tmp_path: Path) -> None:
    log = AppendLog(tmp_path / "log", 0)
    log.append("one")
    kept = log.length()
    log.append("two")
    log.close()
    assert kept == 4
    log = AppendLog(tmp_path / "log", kept)
    log.append("drei")
    assert log.length() == 9
    log.close()
    assert (tmp_path / "log").read_text() == "one\ndrei\n"
    AppendLog(tmp_path / "log", 0).close()
    assert (tmp_path / "log").read_text() == ""


@pytest.mark.parametrize(("content", "left"), [("one\ntwo\nthr", "one\ntwo\n"), ("one\n", "one\n"), ("o", "")])
def test_a_log_that_is_shorter_keeps_whole_lines(tmp_path: Path, content: str, left: str) -> None:
    (tmp_path / "log").write_text(content)
    AppendLog(tmp_path / "log", 100).close()
    assert (tmp_path / "log").read_text() == left


def test_lines_that_a_full_disk_refuses_are_written_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = AppendLog(tmp_path / "log", 0)
    file = log._file
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    with open("/dev/full", "wb", buffering=0) as full:
        monkeypatch.setattr(log, "_file", full)
        for line in ("one", "two"):
            with pytest.raises(StorageError, match="no space left"):
                log.append(line)
        with pytest.raises(StorageError, match="no space left"):
            log.length()
    monkeypatch.setattr(log, "_file", file)
    log.append("three")
    assert log.length() == 14
    log.close()
    assert (tmp_path / "log").read_text() == "one\ntwo\nthree\n"


ANOTHER_WRITER = """
import sys
from pathlib import Path
from gptcli.errors import StorageError
from gptcli.storage import FolderLock
try:
    FolderLock(Path(sys.argv[1]))
except StorageError as error:
    print(error.message)
else:
    print("taken")
"""


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    def other() -> str:
        command = [sys.executable, "-c", ANOTHER_WRITER, str(tmp_path / "run")]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    with FolderLock(tmp_path / "run"):
        assert other() == f"Another process is writing to '{tmp_path / 'run'}'."
        with pytest.raises(StorageError, match="Another process"):
            FolderLock(tmp_path / "run")
    assert other() == "taken"


def test_a_lock_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise fail_with(errno.ENOLCK)

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StorageError, match="no locks available"):
        FolderLock(tmp_path)


def test_only_leftovers_of_killed_processes_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".step-00000005-4194999.partial").mkdir()
    (tmp_path / ".step-00000005-4194999.partial/model").write_text("half")
    (tmp_path / ".a-4194999.partial").write_text("half")
    for kept in (".hidden", "mine.partial", ".other.partial", "a"):
        (tmp_path / kept).write_text("mine")
    remove_leftovers(tmp_path, of="b")
    assert ".a-4194999.partial" in names(tmp_path)
    remove_leftovers(tmp_path)
    assert names(tmp_path) == {".hidden", "mine.partial", ".other.partial", "a"}
    remove_leftovers(tmp_path / "missing")


def test_two_processes_may_remove_the_same_leftovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def faster(plain: Callable[..., None]) -> Callable[..., None]:
        """The other process does the same just before this one."""

        def act(*args: object, **options: object) -> None:
            plain(*args, **options)
            raise fail_with(errno.ENOENT)

        return act

    (tmp_path / ".folder-4194999.partial/inner").mkdir(parents=True)
    (tmp_path / ".folder-4194999.partial/inner/model").write_text("half")
    (tmp_path / ".file-4194999.partial").write_text("half")
    (tmp_path / ".old-4194999.replaced").mkdir()
    with monkeypatch.context() as patch:
        for name in ("unlink", "rmdir", "rename"):
            patch.setattr(os, name, faster(getattr(os, name)))
        remove_leftovers(tmp_path)
    assert names(tmp_path) == {"old"}


def test_a_leftover_that_cannot_be_removed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise fail_with(errno.EPERM)

    (tmp_path / ".b-4194999.partial").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", refuse)
        with pytest.raises(StorageError, match="not permitted"):
            remove_leftovers(tmp_path)


def test_a_new_directory_removes_its_own_leftovers(tmp_path: Path) -> None:
    for left in (".b-4194999.partial", ".c-4194999.partial"):
        (tmp_path / left).mkdir()
    with new_directory(tmp_path / "b") as new:
        new.write("one", b"1")
    assert names(tmp_path) == {"b", ".c-4194999.partial"}


def test_a_folder_that_was_about_to_be_replaced_is_put_back(tmp_path: Path) -> None:
    (tmp_path / ".b-4194999.replaced").mkdir()
    (tmp_path / ".b-4194999.replaced/one").write_text("old")
    (tmp_path / ".b-4194999.partial").mkdir()
    remove_leftovers(tmp_path)
    assert names(tmp_path) == {"b"}
    assert (tmp_path / "b/one").read_text() == "old"
    (tmp_path / ".b-4194999.replaced").mkdir()
    remove_leftovers(tmp_path)
    assert (tmp_path / "b/one").read_text() == "old", "the folder in its place is newer"
    assert names(tmp_path) == {"b"}


@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_failed_replacement_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int) -> None:
    """The first renaming moves the old folder away, the second moves the new one in, the third starts the cleanup."""
    with new_directory(tmp_path / "b") as new:
        new.write("one", b"old")
    plain, calls = os.rename, iter(range(1, 10))

    def rename(source: Path, target: Path) -> None:
        if next(calls) == failing:
            raise fail_with(errno.EIO)
        plain(source, target)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(StorageError), new_directory(tmp_path / "b", replace=True) as new:
        new.write("one", b"new")
    assert (tmp_path / "b/one").read_bytes() == (b"new" if failing == 3 else b"old")
    assert names(tmp_path) == {"b"}


def test_only_real_folders_are_removed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").write_text("mine")
    for name in ("link", "file", "missing"):
        remove_directory(tmp_path / name)
    assert names(tmp_path) == {"real", "link", "file"}
    remove_directory(tmp_path / "real")
    assert names(tmp_path) == {"link", "file"}


def test_json_is_readable_and_strict() -> None:
    assert to_json({"a": "ä"}) == '{\n  "a": "ä"\n}\n'.encode()
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json({"a": float("nan")})


def test_an_unnamed_file_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with unnamed_file() as file:
        file.write(b"text")
        file.seek(0)
        assert file.read() == b"text"
        assert names(tmp_path) == set()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(StorageError, match="no such file"), unnamed_file():
        pass


KILLED = (
    "import os; from gptcli.storage import scratch_folder\nwith scratch_folder() as f: (f / 'big').touch(); os.abort()"
)


def test_a_scratch_folder_of_a_killed_process_is_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".gptcli-scratch-notes").write_text("not ours")
    (tmp_path / "gptcli-mine").mkdir()
    subprocess.run([sys.executable, "-c", KILLED], cwd=ROOT, env=os.environ | {"TMPDIR": str(tmp_path)}, check=False)
    [left] = names(tmp_path) - {"gptcli-mine", ".gptcli-scratch-notes"}
    assert [path.name for path in (tmp_path / left).rglob("*") if path.is_file()] == ["big"]
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with scratch_folder() as folder:
        assert left not in names(tmp_path)
        (folder / "file").touch()
        with alone_in(folder, on_wait=lambda: pytest.fail("it is locked already")):
            pass
        with scratch_folder() as other:
            assert folder.is_dir(), "its process lives"
            assert other != folder
    assert names(tmp_path) == {"gptcli-mine", ".gptcli-scratch-notes"}
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(StorageError), scratch_folder():
        pass
