"""Reading a file of any content raises only GptcliError; `make fuzz` tries many more inputs."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gptcli.checkpoints import small_files
from gptcli.dataset.readers import READERS
from tests.fuzz import document_targets, targets
from tests.fuzz.checking import survives
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS, CheckpointFolder

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "100"))
slow = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module", params=list(TARGETS))
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Target:
    return TARGETS[request.param](tmp_path_factory.mktemp(request.param))


def test_every_document_format_has_a_target() -> None:
    formats = {suffix[1:] for suffix, reader in READERS.items() if "dataset.formats" in reader.__module__}
    assert formats - {"htm"} <= document_targets.DOCUMENT_TARGETS.keys()


@slow
@given(random=st.randoms(use_true_random=False))
def test_every_input_is_used_or_refused(target: Target, random: Random) -> None:
    survives(target, random)


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_valid_is_accepted(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a change every target accepts its files, so that refusals are due to the change."""
    for module in (targets, document_targets):
        for change in ("mutated_bytes", "mutated_json"):
            monkeypatch.setattr(module, change, lambda data, random: data)
        monkeypatch.setattr(module, "mutated_text", lambda text, random: text.encode())
    monkeypatch.setattr(targets, "changed_tensors", lambda data, random: data)
    if name == "sampling":
        monkeypatch.setattr(TARGETS[name], "values", (1,))
        monkeypatch.setattr(TARGETS[name], "fields", ("top_k", "seed", "temperature", "top_p"))
    if name == "rows":
        monkeypatch.setattr(TARGETS[name], "settings", ({},))
        monkeypatch.setattr(TARGETS[name], "encodings", ("utf-8",))
    if name == "corpus":
        monkeypatch.setattr(TARGETS[name], "suffixes", (".txt",))
    accepted = [survives(target, Random(number)) for target in [TARGETS[name](tmp_path)] for number in range(10)]
    assert accepted.count(True) >= 3, accepted


def test_control_an_error_of_another_kind_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the check of depth, a deeply nested manifest ends in a Python error."""

    def trusting(content: bytes) -> object:
        raise RecursionError

    target = CheckpointFolder(tmp_path)
    monkeypatch.setattr(small_files, "strict_json", trusting)
    with pytest.raises(RecursionError):
        survives(target, Random(1))


def test_control_a_reader_that_writes_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = CheckpointFolder(tmp_path)
    monkeypatch.setattr(target, "run", lambda: (tmp_path / "trace").touch())
    with pytest.raises(AssertionError, match="wrote something"):
        survives(target, Random(1))
