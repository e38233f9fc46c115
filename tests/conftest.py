"""What every test can use: one torch thread, text that every machine has, and the command line in a process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from gptcli.signals import STOP_SIGNALS

# Before anything imports torch. The tests run in as many processes as there are cores, so that more than one thread in
# each would only make them wait for each other; and sums come out the same on every machine only if the number of
# threads is. Nothing is looked up on the network.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"

ROOT = Path(__file__).resolve().parent.parent
CORPUS_CHARACTERS = 200_000
_KEPT_VARIABLES = ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class CommandLine:
    """`gptcli` in a process of its own, in `folder` unless told otherwise, with a clean environment and no network."""

    folder: Path

    def __call__(
        self,
        *arguments: str | Path,
        cwd: Path | None = None,
        stdin: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 120,
    ) -> Result:
        """Run to the end. `stdin` is the text on standard input (None: nothing there); `env` adds variables."""
        done = subprocess.run(
            self._command(arguments),
            cwd=cwd or self.folder,
            env=self._environment(env),
            input=stdin or "",
            capture_output=True,
            encoding="utf-8",
            timeout=timeout,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def start(
        self, *arguments: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start it and return at once, with pipes on both outputs; for signals and closed pipes."""
        return subprocess.Popen(
            self._command(arguments),
            cwd=cwd or self.folder,
            env=self._environment(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )

    @staticmethod
    def _command(arguments: tuple[str | Path, ...]) -> list[str]:
        return [sys.executable, "-m", "gptcli", *map(str, arguments)]

    @staticmethod
    def _environment(extra: Mapping[str, str] | None) -> dict[str, str]:
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        # The package is found from any folder, installed or not.
        return kept | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"} | dict(extra or {})


@pytest.fixture(autouse=True, scope="session")
def _signals_as_in_a_terminal() -> Iterator[None]:
    """Programs that tests start hear what stops them, also where `nohup` or a shell's `&` had that ignored."""
    ignored = [signum for signum in STOP_SIGNALS if signal.getsignal(signum) is signal.SIG_IGN]
    for signum in ignored:
        signal.signal(signum, signal.SIG_DFL)
    yield
    for signum in ignored:
        signal.signal(signum, signal.SIG_IGN)


@pytest.fixture(autouse=True)
def _one_torch_thread() -> Iterator[None]:
    """Undo what a test did to the number of threads. Tests that do not need torch do not load it for this."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture(scope="session")
def corpus() -> str:
    """200,000 ASCII characters of real text: the sources of asyncio, one after another."""
    sources = sorted(Path(asyncio.__file__).parent.glob("*.py"))
    return "".join(source.read_text(encoding="utf-8") for source in sources)[:CORPUS_CHARACTERS]


@pytest.fixture(scope="session")
def corpus_file(corpus: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus as a file, `book.txt`. Do not change it: tests share it."""
    path = tmp_path_factory.mktemp("corpus") / "book.txt"
    path.write_text(corpus, encoding="utf-8", newline="")
    return path


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """`cli("train", path, "--max-steps", "5")` → code, stdout, stderr; it runs in the test's own folder."""
    return CommandLine(tmp_path)
