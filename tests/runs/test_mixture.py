"""Trainings on several datasets with weights: preparing, identity, resume, validation, and what is shown."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

import gptcli
from gptcli.cli.app import app
from gptcli.config.values import nest
from gptcli.dataset.mixture import Mixture
from gptcli.errors import ConfigError, CorpusError, GptcliError, UsageError
from gptcli.runs.events import EvalMetrics, Event, StepMetrics
from gptcli.runs.weights import weighted_paths
from gptcli.training.evaluation import bits_per_byte
from gptcli.training.mixed_batches import MixedBatches, training_batches
from gptcli.training.trainer import Trainer
from tests.runs.small_runs import FLAGS, assert_same_end, lines

OPTIONS = {"preset": "nano", "family": "gpt2", "settings": FLAGS}
PARTS = {"book.txt": 0.7, "code.txt": 0.3}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, corpus: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").write_text(corpus[:6000])
    (tmp_path / "code.txt").write_text("ξ" + corpus[50_000:53_000])
    return tmp_path


def mixture(data: object, **options: object) -> Mixture:
    dataset = gptcli.plan(data, **(OPTIONS | options)).dataset
    assert isinstance(dataset, Mixture)
    return dataset


def test_weights_in_words() -> None:
    assert weighted_paths(["a=0.7", "b=3"]) == (("a", "b"), (0.7, 3.0))
    assert weighted_paths({"a": 1, "b": 2}) == (("a", "b"), (1.0, 2.0))
    assert weighted_paths("a") == (("a",), None)
    assert weighted_paths(["a=b", Path("c=1")]) == (("a=b", "c=1"), None)
    address = "https://example.com/book?id=3"
    assert weighted_paths([address, "a"]) == ((address, "a"), None)
    assert weighted_paths(["https://example.com/book=3"]) == (("https://example.com/book",), (3.0,))


def test_a_path_that_exists_wins_over_a_weight(folder: Path) -> None:
    (folder / "book=0.7").write_text("text")
    assert weighted_paths(["book=0.7", "code.txt"]) == (("book=0.7", "code.txt"), None)
    assert weighted_paths(["book=0.7=2", "code.txt=1"]) == (("book=0.7", "code.txt"), (2.0, 1.0))


def test_texts_share_a_tokenizer_of_all_of_them() -> None:
    made = mixture(PARTS)
    assert made.name == "book=0.7 code=0.3"
    assert made.tokenizer.decode(made.tokenizer.encode("ξ")) == "ξ"
    assert {part.dataset.tokenizer.fingerprint for part in made.parts} == {made.tokenizer.fingerprint}
    assert made.train.tokens == sum(part.dataset.train.tokens for part in made.parts)
    assert [part.weight for part in made.parts] == pytest.approx([0.7, 0.3])


def test_bpe_is_learned_from_every_training_part(folder: Path) -> None:
    """Also from the last text, which is all of the last tenth of the texts together."""
    (folder / "code.txt").write_text("zyxwvu " * 90)
    settings = FLAGS | {"tokenizer.kind": "bpe", "tokenizer.vocab_size": 300}
    tokenizer = mixture(PARTS, settings=settings).tokenizer
    assert len(tokenizer.encode(" zyxwvu")) == 1


def test_texts_get_the_tokenizer_of_a_dataset(folder: Path) -> None:
    made = gptcli.tokenize("code.txt", "data/code", tokenizer="bpe", vocab_size=300).dataset
    assert mixture(["book.txt=1", "data/code=2"]).tokenizer.fingerprint == made.tokenizer.fingerprint


def test_resuming_is_exact(folder: Path) -> None:
    seen: list[int] = []

    def on_event(event: Event) -> None:
        seen.extend([event.step] if isinstance(event, StepMetrics) else [])

    gptcli.train(PARTS, "whole", **OPTIONS)
    first = gptcli.train(PARTS, "parts", should_stop=lambda: len(seen) >= 13, on_event=on_event, **OPTIONS)
    assert first.end.step == 13
    gptcli.train(["book.txt=7", "code.txt=3"], "parts", resume="must", **OPTIONS)
    assert_same_end(Path("whole"), Path("parts"))


def test_the_stored_weights_hold_where_none_are_stated() -> None:
    gptcli.train(PARTS, "run", **OPTIONS)
    made = gptcli.plan(["book.txt", "code.txt"], "run", **OPTIONS)
    assert made.finished == "max_steps"
    assert made.config.data.weights == (0.7, 0.3)


def test_the_config_file_repeats_the_run() -> None:
    gptcli.train(PARTS, "one", **OPTIONS)
    gptcli.train(["book.txt", "code.txt"], "other", config="one/gptcli.toml")
    assert Path("one/gptcli.toml").read_bytes() == Path("other/gptcli.toml").read_bytes()
    assert_same_end(Path("one"), Path("other"))


def test_one_part_is_trained_on_as_without_a_weight() -> None:
    gptcli.train("book.txt", "plain", **OPTIONS)
    gptcli.train(["book.txt=3"], "weighted", **OPTIONS)
    assert_same_end(Path("plain"), Path("weighted"))


def test_a_run_without_weights_stores_none() -> None:
    gptcli.train("book.txt", "plain", **OPTIONS)
    assert "weights" not in Path("plain/gptcli.toml").read_text()


@pytest.mark.parametrize(
    "data", [{"book.txt": 0.6, "code.txt": 0.4}, {"code.txt": 0.3, "book.txt": 0.7}, {"book.txt": 0.7, "more.txt": 0.3}]
)
def test_another_mixture_is_other_data(folder: Path, data: dict[str, float], corpus: str) -> None:
    (folder / "more.txt").write_text("ξ" + corpus[60_000:63_000])
    gptcli.train(PARTS, "run", **OPTIONS)
    with pytest.raises(UsageError, match=r"trained on 'book=0.7 code=0.3'"):
        gptcli.plan(data, "run", **OPTIONS)


def test_the_validation_loss_is_the_mean_by_weight(folder: Path) -> None:
    events: list[Event] = []
    settings = OPTIONS | {"settings": FLAGS | {"train.eval_tokens": 10**6}}
    gptcli.train(PARTS, "run", on_event=events.append, **settings)
    last = [event for event in events if isinstance(event, EvalMetrics)][-1]
    assert last.loss == pytest.approx(0.7 * last.parts["book"] + 0.3 * last.parts["code"], rel=1e-8)
    assert [line for line in lines(Path("run")) if "val/loss" in line][-1]["val/loss/code"] == last.parts["code"]
    made = gptcli.plan(PARTS, "another", **settings)
    trainer = Trainer(made.config, made.dataset, made.device)
    whole, alone = trainer.evaluate(), {}
    assert isinstance(made.dataset, Mixture)
    for part in made.dataset.parts:
        trainer.dataset = part.dataset
        alone[part.name] = trainer.evaluate()
    assert trainer.part_losses == alone
    assert whole == pytest.approx(0.7 * alone["book"] + 0.3 * alone["code"], rel=1e-8)


def test_bits_per_byte_are_those_of_the_tokens_that_are_drawn() -> None:
    settings = FLAGS | {"tokenizer.kind": "bpe", "tokenizer.vocab_size": 300}
    made = mixture({"book.txt": 1, "code.txt": 3}, settings=settings)
    book, code = (part.dataset.val for part in made.parts)
    assert book.bytes / book.tokens != pytest.approx(code.bytes / code.tokens, rel=0.01), "else the test is blind"
    drawn = book.bytes / book.tokens + 3 * code.bytes / code.tokens
    assert bits_per_byte(math.log(2), made) == pytest.approx(4 / drawn)


def test_epochs_count_the_windows_of_all_parts() -> None:
    settings = {key: value for key, value in FLAGS.items() if key != "train.max_steps"} | {"train.epochs": 2.0}
    made = gptcli.plan(PARTS, **(OPTIONS | {"settings": settings}))
    assert isinstance(made.dataset, Mixture)
    windows = sum((part.dataset.train.tokens - 16) // 16 for part in made.dataset.parts)
    assert made.config.train.max_steps == -(-2 * windows // 4)
    passes = next(note for note in made.notes if note.startswith("Budget"))
    assert "times over book" in passes
    assert "times over code" in passes


def test_the_command_line(folder: Path) -> None:
    options = [f"--set={key}={value}" for key, value in FLAGS.items()]
    arguments = ["train", "book.txt=7", "code.txt=3", "--preset", "nano", *options]
    dry = CliRunner().invoke(app, [*arguments, "--dry-run", "--json"])
    parts = json.loads(dry.stdout)["data"]["parts"]
    assert [(part["name"], round(part["weight"], 6)) for part in parts] == [("book", 0.7), ("code", 0.3)]
    assert not (folder / "data").exists()
    made = CliRunner().invoke(app, [*arguments, "-v"])
    assert (made.exit_code, made.stdout) == (0, "runs/book+code\n"), made.stderr
    assert "Validation loss at step 20: book " in made.stderr
    shown = CliRunner().invoke(app, ["inspect", "runs/book+code"])
    assert "book=0.7 code=0.3" in shown.stdout
    assert "book=0.7 code=0.3" in (folder / "runs/book+code/README.md").read_text()


def test_different_tokenizers_are_refused_with_a_way_out() -> None:
    gptcli.tokenize("book.txt", "data/book")
    gptcli.tokenize("code.txt", "data/code")
    with pytest.raises(UsageError, match="different tokenizers") as caught:
        mixture({"data/book": 1, "data/code": 1})
    assert "`tokenizer.kind = data/book/tokenizer.json`" in caught.value.hint
    gptcli.tokenize("code.txt", "data/again", tokenizer="data/book/tokenizer.json", unknown="skip")
    assert mixture({"data/book": 1, "data/again": 1}).parts[1].name == "again"


@pytest.mark.parametrize(
    ("data", "error", "fact"),
    [
        (["book.txt=1", "code.txt"], UsageError, "'code.txt' has none"),
        (["book.txt=0", "code.txt=1"], ConfigError, "a number above 0"),
        (["book.txt=nan", "code.txt=1"], ConfigError, "a finite number above 0"),
        (["book.txt=1e-12", "code.txt=1"], UsageError, "billionth"),
        (["book.txt=1", "book.txt=2"], UsageError, "the same tokens"),
        (["book.txt=1", "-=1"], UsageError, "Standard input"),
        (["nothing.txt=1", "code.txt=1"], CorpusError, "'nothing.txt'"),
    ],
)
def test_what_cannot_be_mixed(data: list[str], error: type[GptcliError], fact: str) -> None:
    with pytest.raises(error) as caught:
        mixture(data)
    assert fact in caught.value.message


def test_weights_of_another_number_of_parts() -> None:
    settings = FLAGS | {"data.weights": [0.5, 0.5]}
    with pytest.raises(UsageError, match="2 weights") as caught:
        mixture(["book.txt"], settings=settings)
    assert "book.txt=1" in caught.value.hint
    with pytest.raises(UsageError, match="twice"):
        mixture(["book.txt=1", "code.txt=1"], settings=nest(settings))


def test_datasets_without_weights_are_refused_with_the_weights_to_give() -> None:
    made = gptcli.tokenize("book.txt", "data/book").dataset
    with pytest.raises(CorpusError, match="dataset already") as caught:
        gptcli.plan(["data/book", "code.txt"], **OPTIONS)
    assert f"{made.path}=1 code.txt=1" in caught.value.hint


@pytest.mark.parametrize(("characters", "named"), [(10, "'code.txt'"), (18, "'code'")])
def test_a_part_that_is_too_short_is_named(folder: Path, characters: int, named: str) -> None:
    (folder / "code.txt").write_text(("short text " * 2)[:characters])
    with pytest.raises(CorpusError, match=named):
        mixture(PARTS)


def test_parts_of_equal_length_have_orders_of_their_own(folder: Path, corpus: str) -> None:
    for number, name in enumerate(PARTS):
        (folder / name).write_text(corpus[10_000 * number :][:5000])
    made = gptcli.plan(PARTS, **OPTIONS)
    batches = training_batches(made.config, made.dataset)
    assert isinstance(batches, MixedBatches)
    one, other = ([source.starts(step).tolist() for step in range(5)] for source in batches.sources)
    assert one != other
