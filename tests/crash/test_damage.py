"""Every file of a run and of a dataset, damaged in every way: the damage is reported, or breaks nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.crash.damage import Damage, damages
from tests.crash.sessions import RUN, TRAIN, Sessions, changes, said
from tests.runs.small_runs import assert_same_end

NEWEST, OLDER = Path("checkpoints/step-00000009"), Path("checkpoints/step-00000006")
IN_CHECKPOINT = ("model.safetensors", "optimizer.safetensors", "state.json")
WITH_MANIFEST = (*IN_CHECKPOINT, "manifest.json")
VERIFIED = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "gptcli.toml")
UNVERIFIED = ("README.md", "metrics.jsonl", "events.out.tfevents.*")
SAMPLE = ["sample", str(RUN), "-n", "5", "--seed", "1", "--quiet"]
LOUD = [argument for argument in TRAIN if argument != "--quiet"]
SAMPLED_EVERY = 9


@pytest.fixture(scope="session")
def stopped(sessions: Sessions) -> Path:
    """A run that was killed just after the checkpoint of step 9 was complete."""
    done = changes(sessions.record(sessions.new()))
    at = next(number for number, change in enumerate(done) if change.target.endswith(NEWEST.name))
    folder = sessions.new()
    sessions.record(folder, kill_at=at + 12)
    return folder


def cases(folder: Path, names: tuple[str, ...], where: Path) -> list[tuple[Path, str, Damage]]:
    places = [place.relative_to(folder) for name in names for place in sorted((folder / where).glob(name))]
    assert len(places) == len(names)
    return [(place, what, damage) for place in places for what, damage in damages(folder / place)]


def checked_text(folder: Path, status: int) -> str:
    text = said(folder)
    assert status in (0, 1), text
    assert "unexpected error" not in text, text
    assert "Traceback" not in text, text
    return " ".join(text.split())


def check_newest(sessions: Sessions, stopped: Path, place: Path, damage: Damage, *sabotage: str) -> None:
    """A damaged newest checkpoint is named and skipped, and costs nothing but time."""
    folder = sessions.copy(stopped)
    damage(folder / place)
    status = sessions.server.run(folder, arguments=LOUD, sabotage=sabotage)
    assert status == 0, said(folder)
    assert "Skipped the checkpoint of step 9" in checked_text(folder, status), said(folder)
    sessions.check_end(folder)
    sessions.done_with(folder)


def check_told(sessions: Sessions, stopped: Path, place: Path, damage: Damage) -> None:
    """A damaged file is named by training, and by sampling unless it does not use the file."""
    folder = sessions.copy(stopped)
    damage(folder / place)
    for arguments in (TRAIN, SAMPLE):
        status = sessions.server.run(folder, arguments=arguments)
        if arguments == SAMPLE and place.name == "gptcli.toml":
            assert status == 0, said(folder)
            continue
        assert status == 1, said(folder)
        assert place.name in checked_text(folder, status), said(folder)
    sessions.done_with(folder)


def check_told_or_harmless(sessions: Sessions, stopped: Path, place: Path, damage: Damage) -> None:
    """A damaged manifest is reported, or training reaches the right end: not every entry matters."""
    folder = sessions.copy(stopped)
    damage(folder / place)
    if checked_text(folder, sessions.server.run(folder)).startswith("runs/"):
        assert_same_end(folder / RUN, sessions.whole / RUN)
    sessions.done_with(folder)


def check_harmless(sessions: Sessions, stopped: Path, place: Path, damage: Damage) -> None:
    """A damaged file that nothing depends on breaks neither sampling nor training."""
    folder = sessions.copy(stopped)
    damage(folder / place)
    for arguments in (SAMPLE, TRAIN):
        status = sessions.server.run(folder, arguments=arguments)
        assert status == 0, said(folder)
    assert_same_end(folder / RUN, sessions.whole / RUN)
    sessions.done_with(folder)


def check_weights(sessions: Sessions, stopped: Path, place: Path, damage: Damage) -> None:
    """Damaged best weights are never sampled from."""
    folder = sessions.copy(stopped)
    damage(folder / place)
    status = sessions.server.run(folder, arguments=SAMPLE)
    assert status == 1, said(folder)
    assert place.name in checked_text(folder, status), said(folder)
    sessions.done_with(folder)


def check_dataset(sessions: Sessions, stopped: Path, place: Path, damage: Damage) -> None:
    """A damaged dataset is made again from the text."""
    folder = sessions.copy(stopped)
    damage(folder / place)
    status = sessions.server.run(folder)
    checked_text(folder, status)
    assert status == 0, said(folder)
    assert_same_end(folder / RUN, sessions.whole / RUN)
    sessions.done_with(folder)


CHECKS = {
    "newest checkpoint": (check_newest, RUN / NEWEST, IN_CHECKPOINT),
    "manifest of the newest": (check_told_or_harmless, RUN / NEWEST, ("manifest.json",)),
    "older checkpoint": (check_harmless, RUN / OLDER, WITH_MANIFEST),
    "verified": (check_told, RUN, VERIFIED),
    "manifest": (check_told_or_harmless, RUN, ("manifest.json",)),
    "not verified": (check_harmless, RUN, UNVERIFIED),
    "best weights": (check_weights, RUN, ("model.safetensors",)),
    "dataset": (check_dataset, Path("data"), ("train-00000.npy", "val-00000.npy", "tokenizer.json", "dataset.json")),
}


def check_damages(sessions: Sessions, stopped: Path, part: str, every: int) -> None:
    check, where, names = CHECKS[part]
    if where == Path("data"):
        where = next((stopped / "data").iterdir()).relative_to(stopped)
    for place, what, damage in cases(stopped, names, where)[::every]:
        try:
            check(sessions, stopped, place, damage)
        except AssertionError as error:
            error.add_note(f"{place}: {what}")
            raise


@pytest.mark.parametrize("part", list(CHECKS))
def test_some_damages(sessions: Sessions, stopped: Path, part: str) -> None:
    check_damages(sessions, stopped, part, SAMPLED_EVERY)


@pytest.mark.campaign
@pytest.mark.parametrize("part", list(CHECKS))
def test_every_damage(sessions: Sessions, stopped: Path, part: str) -> None:
    check_damages(sessions, stopped, part, 1)


@pytest.mark.parametrize("name", WITH_MANIFEST)
def test_a_file_of_another_step(sessions: Sessions, stopped: Path, name: str) -> None:
    """The file is sound by itself; only the manifest shows that it is another one."""
    check_newest(sessions, stopped, RUN / NEWEST / name, of_another_step)


def test_missing_checkpoints(sessions: Sessions, stopped: Path) -> None:
    """Training does not start over, which would replace the log and the best weights; another run may start."""
    folder = sessions.copy(stopped)
    shutil.rmtree(folder / RUN / "checkpoints")
    before = (folder / RUN / "metrics.jsonl").read_bytes()
    status = sessions.server.run(folder)
    text = checked_text(folder, status)
    assert status == 1, text
    assert "'checkpoints'" in text
    assert "resume never" in text
    assert (folder / RUN / "metrics.jsonl").read_bytes() == before
    sessions.resume(folder, arguments=SAMPLE)
    sessions.resume(folder, arguments=[*TRAIN, "--resume", "never"])
    assert_same_end(folder / "runs/book-2", sessions.whole / RUN)


def of_another_step(path: Path) -> None:
    path.write_bytes((path.parents[1] / OLDER.name / path.name).read_bytes())


def wrong_count(state: Path) -> None:
    """Make the state wrong but readable."""
    content = state.read_bytes()
    assert content.count(b'"tokens": 576') == 1
    state.write_bytes(content.replace(b'"tokens": 576', b'"tokens": 575'))


def test_control_without_the_manifest(sessions: Sessions, stopped: Path) -> None:
    check_newest(sessions, stopped, RUN / NEWEST / "state.json", wrong_count)
    with pytest.raises(AssertionError):
        check_newest(sessions, stopped, RUN / NEWEST / "state.json", wrong_count, "manifest")


def test_retention_stays_in_its_own_folder(sessions: Sessions, stopped: Path) -> None:
    """Only real folders named as checkpoints are deleted; links, files and other names stay."""
    folder = sessions.copy(stopped)
    checkpoints = folder / RUN / "checkpoints"
    (folder / "elsewhere").mkdir()
    shutil.copytree(checkpoints / OLDER.name, folder / "elsewhere/step-00000001")
    (checkpoints / "step-00000001").symlink_to(folder / "elsewhere/step-00000001")
    (checkpoints / "step-00000002").write_text("mine")
    (checkpoints / "step-2").mkdir()
    (checkpoints / "notes").mkdir()
    sessions.resume(folder)
    assert {path.name for path in checkpoints.iterdir()} == {
        *("step-00000001", "step-00000002", "step-2", "notes"),
        *("step-00000009", "step-00000012"),
    }
    assert len(list((folder / "elsewhere/step-00000001").iterdir())) == 4


def test_a_linked_folder_of_checkpoints_is_refused(sessions: Sessions, stopped: Path) -> None:
    """Retention could delete something elsewhere."""
    folder = sessions.copy(stopped)
    checkpoints = folder / RUN / "checkpoints"
    checkpoints.rename(folder / "elsewhere")
    checkpoints.symlink_to(folder / "elsewhere")
    before = sorted((folder / "elsewhere").rglob("*"))
    status = sessions.server.run(folder)
    assert (status, "link" in checked_text(folder, status)) == (1, True)
    assert sorted((folder / "elsewhere").rglob("*")) == before
