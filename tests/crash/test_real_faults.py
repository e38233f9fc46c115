"""Disks that are really full or read-only: real file systems, not injected errors.

They are mounted in a namespace of the command, so that nothing stays mounted. Where the system does not allow that, a
limit on the size of files replaces the full disk, and a folder of another user the read-only one; the tests say so.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.crash.sessions import RUN, TRAIN, Sessions, newest_step
from tests.runs.small_runs import assert_same_end

pytestmark = pytest.mark.campaign

NAMESPACE = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
TRAINING = shlex.join([sys.executable, "-m", "gptcli", *TRAIN])
SIZES = ("64k", "128k", "192k", "256k", "320k", "384k", "1m")
TOO_SMALL = SIZES[:4]


def in_namespace(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run shell commands in a folder, with mounts of their own."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [*NAMESPACE, "sh", "-e", "-c", script]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def may_mount(folder: Path) -> bool:
    (folder / "try").mkdir()
    try:
        return in_namespace("mount -t tmpfs -o size=64k none try", folder).returncode == 0
    except FileNotFoundError:  # no `unshare`
        return False


@pytest.fixture(scope="module")
def mounting(tmp_path_factory: pytest.TempPathFactory) -> bool:
    return may_mount(tmp_path_factory.mktemp("mounting"))


def check_told(text: str, code: int, *reasons: str) -> None:
    assert code == 1, f"exit {code}: {text}"
    assert "Traceback" not in text, text
    assert "unexpected error" not in text, text
    assert any(reason in " ".join(text.split()) for reason in reasons), text


@pytest.mark.parametrize("size", SIZES)
def test_a_full_disk(sessions: Sessions, mounting: bool, size: str) -> None:
    """Train on a disk of that size; then it grows, and the same command resumes."""
    folder = sessions.new()
    if not mounting:
        print("no mounting here: a limit on the size of files")  # noqa: T201
        assert sessions.server.run(folder, file_size=20_000) == 1
        sessions.resume(folder)
        sessions.check_end(folder)
        return
    done = in_namespace(
        f"mkdir small && mount -t tmpfs -o size={size} none small && cp book.txt small && cd small\n"
        f"code=0; {TRAINING} || code=$?\n"
        f"mkdir ../before && cp -r . ../before\n"
        f"mount -o remount,size=64m . && {TRAINING} >&2 && cp -r runs data ..\n"
        "exit $code",
        folder,
    )
    needed = sum(path.stat().st_size for path in (folder / "before").rglob("*") if path.is_file())
    if done.returncode or size in TOO_SMALL:
        check_told(done.stderr, done.returncode, "no space left", "No space left", "of disk, and")
        assert newest_step(folder / "before" / RUN) >= 0
    assert_same_end(folder / RUN, sessions.whole / RUN, leaving_out=("best_val_loss", "best_step", "evals_since_best"))
    print(f"{size}: exit {done.returncode} with {needed:,} bytes written")  # noqa: T201


def test_a_read_only_disk(sessions: Sessions, mounting: bool) -> None:
    """A new run and one that would resume are refused; sampling works."""
    folder = sessions.copy(sessions.whole)
    longer = TRAINING.replace("--max-steps 12", "--max-steps 24")
    if not mounting and os.geteuid() == 0:
        print("no mounting here, and root may write anywhere: not tried")  # noqa: T201
        return
    if not mounting:
        print("no mounting here: folders without the permission to write")  # noqa: T201
        for path in (folder / RUN, folder):
            path.chmod(0o555)
    begin = "mount --bind . . && mount -o remount,bind,ro . && cd ." if mounting else "true"
    for command in (f"{longer} -o runs/other", longer):
        done = in_namespace(f"{begin}\ncd '{folder}'\n{command}", folder) if mounting else shell(command, folder)
        check_told(done.stderr, done.returncode, "read-only file system", "permission denied")
    sample = shlex.join([sys.executable, "-m", "gptcli", "sample", str(RUN), "-n", "20", "--quiet"])
    done = in_namespace(f"{begin}\ncd '{folder}'\n{sample}", folder) if mounting else shell(sample, folder)
    assert done.returncode == 0, done.stderr
    for path in (folder, folder / RUN):
        path.chmod(0o755)
    sessions.resume(folder)
    assert_same_end(folder / RUN, sessions.whole / RUN)


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        ["sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
