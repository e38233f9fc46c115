"""Install the built wheel as users do, each time into a bare environment, then train and generate text with it.

    python -m tests.install            with pip, pipx and uv
    python -m tests.install pip        with one of them

pipx and uv are installed into a temporary environment of their own. Prints the time and the size of each.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
TEXT = "The quick brown fox jumps over the lazy dog, and the dog sleeps on.\n" * 200


def run(*command: str | Path, folder: Path, **variables: str | Path) -> str:
    """Run a command without what the environment says of Python; its standard output."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    environment = kept | {name: str(value) for name, value in variables.items()}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def bare_environment(folder: Path, *packages: str) -> Path:
    """The folder of the programs of a new virtual environment with these packages."""
    venv.create(folder, with_pip=True)
    if packages:
        run(folder / "bin" / "python", "-m", "pip", "install", "-q", *packages, folder=folder)
    return folder / "bin"


def with_pip(wheel: Path, folder: Path) -> Path:
    programs = bare_environment(folder / "environment")
    run(programs / "python", "-m", "pip", "install", "-q", "-c", CONSTRAINTS, wheel, folder=folder)
    return programs / "gptcli"


def with_pipx(wheel: Path, folder: Path) -> Path:
    programs = bare_environment(folder / "tool", "pipx")
    places = {"PIPX_HOME": folder / "home", "PIPX_BIN_DIR": folder / "bin"}
    run(programs / "pipx", "install", f"--pip-args=-c {CONSTRAINTS}", wheel, folder=folder, **places)
    return folder / "bin" / "gptcli"


def with_uv(wheel: Path, folder: Path) -> Path:
    programs = bare_environment(folder / "tool", "uv")
    places = {"UV_TOOL_DIR": folder / "tools", "UV_TOOL_BIN_DIR": folder / "bin"}
    run(programs / "uv", "tool", "install", "-q", "-c", CONSTRAINTS, wheel, folder=folder, **places)
    return folder / "bin" / "gptcli"


INSTALLERS: dict[str, Callable[[Path, Path], Path]] = {"pip": with_pip, "pipx": with_pipx, "uv": with_uv}


def try_out(gptcli: Path, folder: Path) -> None:
    """Train and generate text in an empty folder; exits with a message unless both work."""
    (folder / "book.txt").write_text(TEXT, encoding="utf-8")
    run(gptcli, "train", "book.txt", "--preset", "nano", "--max-steps", "5", "-q", folder=folder)
    text = run(gptcli, "sample", "--prompt", "The", "--max-new-tokens", "20", "-q", folder=folder)
    if not text.startswith("The") or len(text) < 10:
        sys.exit(f"'{gptcli} sample' generated {text!r}")
    for extra in ("--version", "--help"):
        run(gptcli, extra, folder=folder)


def size(folder: Path) -> int:
    """Bytes of the files below a folder, links left out."""
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        run(sys.executable, "-m", "build", "--wheel", "--outdir", place, folder=ROOT)
        (wheel,) = place.glob("*.whl")
        for name in sys.argv[1:] or INSTALLERS:
            folder = place / name
            folder.mkdir()
            begun = time.monotonic()
            gptcli = INSTALLERS[name](wheel, folder)
            seconds, taken = time.monotonic() - begun, size(folder)
            work = folder / "work"
            work.mkdir()
            try_out(gptcli, work)
            sys.stdout.write(f"{name}: installed in {seconds:,.0f} s, {taken / 1e6:,.0f} MB; trains and samples\n")


if __name__ == "__main__":
    main()
