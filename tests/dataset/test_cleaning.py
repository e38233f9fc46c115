"""Which documents are kept and held out: separators, copies, splits by document, and the key of a dataset."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcli.config import DataConfig, TokenizerConfig
from gptcli.dataset import splits
from gptcli.dataset.corpus import Corpus
from gptcli.dataset.preparing import find_or_prepare, tokenize
from gptcli.dataset.separating import separated
from gptcli.dataset.splits import Part, PartReader, split
from gptcli.errors import CorpusError
from tests.dataset.test_rows import documents
from tests.dataset.test_sources import file_of, look_at
from tests.tokenizer.text_samples import LESSON, some

WORDS = LESSON.split()


def stories(count: int, seed: int = 0) -> list[str]:
    random = Random(seed)
    return [f"Story {number}: {' '.join(random.choices(WORDS, k=20))}" for number in range(count)]


def rows_of(folder: Path, texts: list[str], name: str = "rows.jsonl") -> Path:
    return file_of(folder, name, "".join(json.dumps({"text": text}) + "\n" for text in texts))


def texts_of(corpus: Corpus, parts: Any) -> list[str]:
    reader = PartReader(corpus)
    return ["".join(reader.read(part)) for part in parts]


@some
@given(
    text=st.text(alphabet="ab-\n", max_size=40), separator=st.sampled_from(["-", "--", "-\n-", "aa"]), data=st.data()
)
def test_separated_is_split(text: str, separator: str, data: st.DataObject) -> None:
    """In any pieces, and also where a document is not read."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    skipped = data.draw(st.sets(st.integers(0, 10)))
    found = separated(iter(filter(None, pieces)), separator)
    read = [None if number in skipped else "".join(document) for number, document in enumerate(found)]
    assert read == [None if n in skipped else part for n, part in enumerate(text.split(separator))]


def test_a_separator_makes_documents(tmp_path: Path) -> None:
    path = file_of(tmp_path, "a.txt", "one\r\n---\r\ntwo\r\n---\r\n\r\n---\r\nthree")
    assert documents(path, doc_separator=r"\n---\n", newline="lf") == ["one", "two", "three"]
    assert documents(path, doc_separator="<|x|>") == [path.read_bytes().decode()]
    assert documents(rows_of(tmp_path, ["a--b"]), doc_separator="--") == ["a--b"], "rows are documents already"
    made = tokenize(path, tmp_path / "out", settings={"data.doc_separator": "---"}, val_fraction=0.5).dataset
    assert (made.documents, made.uses_end_of_text) == (3, True)


def test_exact_copies_are_left_out(tmp_path: Path) -> None:
    path = rows_of(tmp_path, ["one", "two", "one", "one ", "Two", "two"])
    other = file_of(tmp_path, "b.txt", "two")
    assert len(look_at(path, other).documents) == 7
    corpus = look_at(path, other, dedup="exact")
    assert texts_of(corpus, [Part(one, 0, one.characters) for one in corpus.documents]) == ["one", "two", "one ", "Two"]
    assert "Left out 3 documents: exact copies of earlier ones." in corpus.notes


def test_near_copies_are_left_out(tmp_path: Path) -> None:
    pytest.importorskip("rensa")
    first = stories(30)
    near = [text.replace(" ", "  ") + "!" for text in first[:4]] + [first[4] * 3 + " more"]
    corpus = look_at(rows_of(tmp_path, [*first, *near, "short", "brief", first[5]]), dedup="near")
    kept = texts_of(corpus, [Part(one, 0, one.characters) for one in corpus.documents])
    assert kept == [*first, first[4] * 3 + " more", "short", "brief"]
    assert "Left out 4 documents: near copies of earlier ones." in corpus.notes
    assert "Left out 1 document: exact copies of earlier ones." in corpus.notes


def test_many_documents_are_held_out_by_their_text(tmp_path: Path) -> None:
    texts = stories(2000)
    corpus = look_at(rows_of(tmp_path, texts))
    train, val, note = split(corpus, None)
    held_out = texts_of(corpus, val)
    assert 150 < len(held_out) < 250
    assert f"{len(held_out):,} of 2,000 documents" in note
    assert sorted(texts_of(corpus, train) + held_out) == sorted(texts)
    mixed = [*stories(3000, seed=1), *texts, *texts[:500]]
    Random(5).shuffle(mixed)
    larger = look_at(rows_of(tmp_path, mixed))
    held_out_then = set(texts_of(larger, split(larger, None)[1]))
    assert held_out_then & set(texts) == set(held_out), "each stays in its split when others are added"
    made = tokenize(tmp_path / "rows.jsonl", tmp_path / "out", val_fraction=0.2)
    assert 800 < made.dataset.val.characters / len(mixed[0]) < 1500
    assert any("chosen by a hash" in note for note in made.notes)


def test_the_last_part_is_held_out_of_few_or_uneven_documents_and_of_files(tmp_path: Path) -> None:
    few = look_at(rows_of(tmp_path, stories(500)))
    uneven = look_at(rows_of(tmp_path, [*stories(2000), "x" * 1_000_000]))
    folder = tmp_path / "files"
    for number, text in enumerate(stories(1200)):
        file_of(folder, f"{number:04}.txt", text)
    for corpus, place in ((few, ""), (uneven, ""), (look_at(folder), "from '")):
        train, val, note = split(corpus, None)
        cut = corpus.training_characters(None)
        assert "hash" not in note
        assert bool(note) == bool(place)
        assert place in note
        assert sum(part.stop - part.start for part in train) == cut
        assert sum(part.stop - part.start for part in val) == corpus.characters - cut


def test_a_large_corpus_holds_out_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = look_at(rows_of(tmp_path, stories(8000)))
    tenth = set(texts_of(corpus, split(corpus, None)[1]))
    monkeypatch.setattr(splits, "MAX_HELD_OUT_BYTES", corpus.bytes // 25)
    less = set(texts_of(corpus, split(corpus, None)[1]))
    assert 0.02 < len(less) / 8000 < 0.03
    assert less < tenth


def test_too_small_a_validation_part_of_a_text_that_could_have_more(tmp_path: Path) -> None:
    path = file_of(tmp_path, "a.txt", LESSON * 30)
    with pytest.raises(CorpusError, match="validation part has only") as caught:
        tokenize(path, tmp_path / "out", tokenizer="char", val_fraction=0.001)
    assert "`data.val_fraction = 0.1`" in caught.value.hint
    assert not (tmp_path / "out").exists()
    small = tokenize(file_of(tmp_path, "b.txt", "small text " * 30), tmp_path / "out")
    assert any("its loss is rough" in note for note in small.notes)


KEYS = {
    "text": "fc5f78f9",
    "folder": "ad6f02ae",
    "bpe": "f4a84bd9",
}


def key_of(path: Path, tokenizer: TokenizerConfig | None = None, **data: Any) -> str:
    root = path.parent / "data"
    made = find_or_prepare([str(path)], [root], tokenizer or TokenizerConfig(), DataConfig(**data))
    return made.dataset.path.name.rpartition("-")[2]


def test_the_key_is_that_of_earlier_versions_until_a_new_setting_is_used(tmp_path: Path) -> None:
    path = file_of(tmp_path, "book.txt", LESSON * 9)
    file_of(tmp_path, "books/a.txt", LESSON * 9)
    file_of(tmp_path, "books/b.md", LESSON)
    assert key_of(path) == KEYS["text"]
    assert key_of(tmp_path / "books") == KEYS["folder"]
    assert key_of(path, TokenizerConfig(vocab_size=300), val_fraction=0.5) == KEYS["bpe"]
    settings: list[dict[str, Any]] = [{"newline": "lf"}, {"errors": "skip"}, {"encoding": "latin-1"}]
    settings += [{"dedup": "exact"}, {"doc_separator": "x"}, {"text_field": "x"}]
    assert len({key_of(path), *(key_of(path, **one) for one in settings)}) == 1 + len(settings)
    same: list[dict[str, Any]] = [
        {"include": ("*.txt",)},
        {"exclude": ("*.c",)},
        {"encoding": "U8"},
        {"format": "text"},
    ]
    assert {key_of(path, **one) for one in same} == {key_of(path)}


def test_a_table_that_was_read_as_text_is_another_dataset_than_its_rows(tmp_path: Path) -> None:
    path = rows_of(tmp_path, stories(30))
    as_text = tokenize(path, tmp_path / "text", settings={"data.format": "text"}).dataset
    rows = tokenize(path, tmp_path / "rows").dataset
    assert (as_text.documents, rows.documents) == (1, 30)
    assert key_of(path) != key_of(path, format="text")
