"""Commands whose text comes from an address: they train, resume and score with and without the server."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gptcli.cli.app import app
from tests.conftest import CommandLine
from tests.dataset.remote.web_server import Page, Web, web_server

SMALL = ("--preset", "nano", "--eval-every", "2", "--save-every", "2", "--device", "cpu")
TEXT = "".join(f"This is line {number} of a text.\n" for number in range(300))


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with web_server() as web:
        web.pages["/books/a-book.txt"] = Page(TEXT.encode())
        yield web


def done(*arguments: str, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(app, arguments, input=stdin)
    assert result.exit_code == 0, result.stderr
    return result


def test_a_run_resumes_without_its_server(web: Web) -> None:
    key = f"secret{'x' * 1000}"  # longer than the name of a file may be
    address = f"{web.url.replace('//', '//me:word@')}/books/a-book.txt?key={key}"
    assert done("train", address, *SMALL, "--max-steps", "4").stdout == "runs/a-book\n"
    web.pages.clear()
    resumed = done("train", address, *SMALL, "--max-steps", "6")
    assert "Resuming" in resumed.stderr
    assert "from the cache" in resumed.stderr
    assert len(web.requests) == 1
    everything = b"".join(path.read_bytes() for path in Path("runs").rglob("*") if path.is_file())
    assert b"secret" not in everything
    assert b"word@" not in everything
    Path("a-book.txt").write_text(TEXT)
    from_file = done("train", "a-book.txt", *SMALL, "--max-steps", "6")
    assert "is finished" in from_file.stderr, "the same text gives the same tokens"


def test_nothing_but_the_cache_is_written_by_a_dry_run(web: Web, tmp_path: Path) -> None:
    address = f"{web.url}/books/a-book.txt"
    shown = json.loads(done("tokenize", address, "--dry-run", "--json").stdout)
    assert (shown["files"], shown["characters"]) == ({"text": 1}, len(TEXT))
    done("train", address, *SMALL, "--max-steps", "4", "--dry-run")
    assert [*(tmp_path / "here").iterdir()] == []
    assert len(web.requests) == 1


def test_an_address_beside_standard_input(web: Web) -> None:
    address = f"{web.url}/books/a-book.txt"
    made = json.loads(done("tokenize", "-", address, "-o", "data/both", "--json", stdin="Another text.\n" * 9).stdout)
    assert made["documents"] == 2
    manifest = json.loads(Path("data/both/dataset.json").read_text())
    assert [source["name"] for source in manifest["sources"]] == ["standard input", address]


def test_scoring_and_inspecting(web: Web) -> None:
    address = f"{web.url}/books/a-book.txt"
    done("train", address, *SMALL, "--max-steps", "2")
    assert json.loads(done("eval", "runs/a-book", address, "--json", "--device", "cpu").stdout)["loss"] > 0
    report = json.loads(done("inspect", address, "--json").stdout)
    assert (report["kind"], report["path"], report["characters"]) == ("text", address, len(TEXT))
    tokens = json.loads(done("inspect", "runs/a-book", address, "--json").stdout)
    assert (tokens["text_path"], tokens["characters"]) == (address, len(TEXT))
    assert len(web.requests) == 1


@pytest.mark.parametrize("command", ["train", "tokenize", "inspect"])
def test_a_failure_is_one_sentence_and_a_hint(web: Web, command: str, tmp_path: Path) -> None:
    given = [command, f"{web.url}/missing.txt", *(["-o", "data/x"] if command == "tokenize" else [])]
    result = CliRunner().invoke(app, given)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "There is nothing at" in result.stderr
    assert "Hint: " in result.stderr
    assert [*(tmp_path / "here").iterdir()] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "hf://owner/name"], "--init-from hf://owner/name"),
        (["eval", "runs/x", "hf://owner/name"], "a model, not of text"),
        (["sample", "hf://datasets/owner/name"], "not an address of a model"),
        (["train", "book.txt", "--init-from", "hf://datasets/owner/name"], "not an address of a model"),
    ],
)
def test_texts_and_models_are_told_apart(web: Web, arguments: list[str], words: str) -> None:
    Path("book.txt").write_text(TEXT)
    if arguments[0] == "eval":
        done("train", "book.txt", *SMALL, "--max-steps", "2", "-o", "runs/x")
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2, result.stderr
    assert words in result.stderr


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_download_continues(web: Web, cli: CommandLine, tmp_path: Path, signum: int) -> None:
    body = TEXT.encode() * 100
    web.pages["/large.txt"] = Page(body, stalls_after=[len(body) // 2])
    command = ("tokenize", f"{web.url}/large.txt", "-o", "data/large", "--tokenizer", "char")
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    process = cli.start(*command, env=environment)
    while not any(part.stat().st_size for part in (tmp_path / "cache").rglob("partial")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signum)
    _, said = process.communicate(timeout=60)
    assert ("continues the download" in said) is (signum == signal.SIGINT)
    assert process.returncode == (-signal.SIGKILL if signum == signal.SIGKILL else 130)
    assert not (tmp_path / "data").exists()
    again = cli(*command, env=environment)
    assert again.code == 0, again.stderr
    [first, second] = [request.headers.get("Range") for request in web.requests]
    assert first is None
    assert second is not None
    [copy] = (tmp_path / "cache").rglob("large.txt")
    assert copy.read_bytes() == body


def test_the_list_of_corpora(web: Web) -> None:
    listed = json.loads(done("inspect", "corpora", "--json").stdout)
    assert listed["kind"] == "corpora"
    assert {"shakespeare", "tinystories", "fineweb-edu", "python-docs"} == {one["name"] for one in listed["corpora"]}
    table = done("inspect", "corpora").stdout
    assert "CDLA-Sharing-1.0" in table
    assert "gptcli[data]" in table
    Path("corpora").mkdir()
    Path("corpora/a.txt").write_text(TEXT)
    assert json.loads(done("inspect", "corpora", "--json").stdout)["kind"] == "text"


def test_a_run_of_a_corpus_is_found_by_the_name(web: Web) -> None:
    Path("shakespeare").write_text(TEXT)
    done("train", "shakespeare", *SMALL, "--max-steps", "2")
    Path("shakespeare").unlink()
    assert json.loads(done("inspect", "shakespeare", "--json").stdout)["kind"] == "run"
