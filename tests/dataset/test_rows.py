"""Rows: JSON Lines, JSON arrays, CSV and Parquet, packed or not, and how bad rows are reported."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptcli.dataset import sources
from gptcli.dataset.corpus import Corpus
from gptcli.dataset.readers import READERS, read_documents
from gptcli.dataset.rows import json_values, row, table, tsv
from gptcli.dataset.rows.documents import row_reader
from gptcli.dataset.rows.tsv import OpenQuoteError, TsvRecords
from gptcli.dataset.sources import Source
from gptcli.errors import ConfigError, CorpusError
from tests.dataset.test_sources import file_of, look_at
from tests.tokenizer.text_samples import some, texts

TEXTS = ["First, a cat.\nIt sat.", 'Then "a dog", né 😀;\tit ran', "third"]
ROWS = [{"id": number, "text": text, "from": "x"} for number, text in enumerate(TEXTS)]


def as_csv(rows: list[dict[str, Any]], delimiter: str = ",") -> bytes:
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue().encode()


def as_lines(rows: list[Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def as_parquet(rows: list[dict[str, Any]]) -> bytes:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist(rows), file, row_group_size=2)
    return file.getvalue()


def as_zstd(content: bytes) -> bytes:
    return bytes(pytest.importorskip("backports.zstd").compress(content))


FORMATS: dict[str, Callable[[list[dict[str, Any]]], bytes]] = {
    ".jsonl": as_lines,
    ".ndjson": as_lines,
    ".json": lambda rows: json.dumps(rows, indent=2).encode(),
    ".csv": as_csv,
    ".tsv": lambda rows: as_csv(rows, "\t"),
    ".parquet": as_parquet,
}
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": lambda content: content,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": as_zstd,
}


def documents(path: Path, **settings: Any) -> list[str]:
    """The documents of a file, and a check that a scan finds the same ones."""
    corpus = look_at(path, **settings)
    read = ["".join(pieces) for pieces in read_documents(corpus.sources[0], lambda _: None)]
    kept = [text for text in read if text and not text.isspace()]
    assert [document.characters for document in corpus.documents] == list(map(len, kept))
    assert [read[document.index] for document in corpus.documents] == kept
    return kept


def note_on_rows(corpus: Corpus) -> str:
    return next(note for note in corpus.notes if note.startswith("Text of the rows"))


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_packed_and_not(tmp_path: Path, suffix: str, packed: str) -> None:
    path = file_of(tmp_path, f"rows{suffix.upper()}{packed}", PACKED[packed](FORMATS[suffix](ROWS)))
    assert documents(path) == TEXTS
    assert "'text'" in note_on_rows(look_at(path))
    assert "First, a cat." in note_on_rows(look_at(path))
    assert [source.name for source in look_at(tmp_path).sources] == [path.name], "also in a folder"


def test_every_row_format_has_an_example() -> None:
    assert FORMATS.keys() == {
        suffix for suffix, reader in READERS.items() if reader.__module__ == row_reader.__module__
    }


@pytest.mark.parametrize("packed", [".gz", ".bz2", ".xz", ".zst"])
def test_plain_text_can_be_packed_and_damage_is_named(tmp_path: Path, packed: str) -> None:
    content = PACKED[packed](b"some text, which is long enough to be cut\n" * 9000)
    assert look_at(file_of(tmp_path, f"a.txt{packed}", content)).characters == 42 * 9000
    for bad in (content[:-9], content[:20], b"no archive", b"not packed" + content):
        with pytest.raises(CorpusError, match=f"a.txt{packed}' (is damaged|is no {packed} file|is empty)"):
            look_at(file_of(tmp_path, f"a.txt{packed}", bad))


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet", ".csv"])
def test_standard_input_is_recognized_by_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    for packed in ("", ".gz"):
        content = PACKED[packed](FORMATS[suffix](ROWS))
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        settings = {"format": "csv"} if suffix == ".csv" else {}  # text with commas looks the same
        assert len(look_at("-", **settings).documents) == 3


def test_what_is_not_rows_stays_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"{a: 1}\n[b]\n")))
    assert look_at("-").summary.formats == {"text": 1}
    path = file_of(tmp_path, "rows.jsonl", as_lines(ROWS))
    assert documents(path, format="text") == [path.read_text()], "on request rows are text too"
    with pytest.raises(ConfigError, match=r"`data\.format` cannot be 'xls'"):
        look_at(path, format="xls")


@some
@given(rows=st.lists(texts, min_size=1, max_size=5), chunk=st.integers(8, 40))
def test_any_rows_in_any_pieces(tmp_path_factory: pytest.TempPathFactory, rows: list[str], chunk: int) -> None:
    """The parsers find rows wherever the text is cut into pieces."""
    rows = [text.replace("\0", "") for text in rows]
    folder = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "CHUNK_BYTES", chunk)
        patch.setattr(json_values, "_MIN_READ", chunk)
        for suffix in (".jsonl", ".json", ".csv"):
            content = FORMATS[suffix]([{"text": f"x{text}", "n": 12.5} for text in rows])
            path = file_of(folder, f"any{suffix}", content)
            assert [*documents(path)] == [f"x{text}" for text in rows]


COLUMNS: dict[str, tuple[list[Any], str, str]] = {
    "an obvious name": ([{"title": "t", "Content": "c"}], "c", "'Content'"),
    "text before others": ([{"body": "b", "text": "t"}], "t", "'text'"),
    "the only text": ([{"n": 1, "said": "s"}], "s", "'said'"),
    "missing in the first row": ([{"n": 1}, {"n": 2, "text": "t"}], "t", "'text'"),
    "texts": (["one"], "one", "each value"),
    "messages": (
        [{"text": 1, "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None}]}],
        "user: Hi\nassistant: ",
        "the messages of 'messages'",
    ),
    "from and value": ([{"conversations": [{"from": "human", "value": "Hi"}]}], "human: Hi", "'conversations'"),
    "parts": ([{"messages": [{"role": "a", "content": [{"text": "b"}, {"image": 1}]}]}], "a: b", "'messages'"),
    "a prompt": ([{"prompt": "Q:", "completion": "A"}], "Q:\nA", "'prompt' and 'completion'"),
    "a prompt that ends": ([{"prompt": "Q: ", "response": "A"}], "Q: A", "'prompt' and 'response'"),
}


@pytest.mark.parametrize(("rows", "text", "words"), COLUMNS.values(), ids=COLUMNS)
def test_the_column_is_found_and_named(tmp_path: Path, rows: list[Any], text: str, words: str) -> None:
    path = file_of(tmp_path, "a.jsonl", as_lines(rows))
    assert documents(path) == [text]
    assert words in note_on_rows(look_at(path))


def test_numbers_in_csv_are_no_text(tmp_path: Path) -> None:
    path = file_of(tmp_path, "a.csv", "when,price,said\n2024-01-02,3.5,hello\n,4,\n")
    assert documents(path) == ["hello"]
    assert "Skipped 1 blank row." in look_at(path).notes


def test_blank_rows_and_bad_ones_are_counted_apart(tmp_path: Path) -> None:
    path = file_of(tmp_path, "a.jsonl", '{"text":"a"}\n\n{broken\n{"text":" "}\n{"text":"c"}\n')
    notes = look_at(path, errors="skip").notes
    assert "Skipped 1 blank row." in notes
    assert "Skipped 1 row that cannot be read." in notes


def test_the_column_can_be_stated(tmp_path: Path) -> None:
    path = file_of(tmp_path, "a.jsonl", as_lines([{"a": {"b": "inner"}, "a.c": "dotted", "text": "t", "m": []}]))
    assert documents(path, text_field="a.b") == ["inner"]
    assert documents(path, text_field="a.c") == ["dotted"]
    with pytest.raises(CorpusError, match=r"no column 'x': its columns are 'a.b', 'a.c', 'text', 'm'"):
        look_at(path, text_field="x")
    path = file_of(tmp_path, "a.parquet", as_parquet([{"a": {"b": "inner"}, "text": "t"}]))
    assert documents(path, text_field="a.b") == ["inner"]


@pytest.mark.parametrize(
    "rows", [[{"title": "a", "summary": "b"}], [{"n": 1}], [{"content": "a", "body": "b"}], [{}], [{"id": 1}, "x"]]
)
def test_an_ambiguous_column_is_an_error_that_lists_them(tmp_path: Path, rows: list[Any]) -> None:
    with pytest.raises(CorpusError, match="no column that is surely the text") as caught:
        look_at(file_of(tmp_path, "a.jsonl", as_lines(rows)))
    assert "`data.text_field`" in caught.value.hint
    assert all(name in caught.value.message for name in rows[0])


BAD_ROWS: dict[str, tuple[str, str, str, int]] = {
    "not JSON": ("a.jsonl", '{"text": "a"}\n{"text": "b\n{"text": "c"}\n', "line 2: it is not JSON", 2),
    "a number": ("a.jsonl", '{"text": "a"}\n{"text": 5}\n', "line 2: 'text' is a number, not text", 1),
    "a list": ("a.jsonl", '{"text": "a"}\n\n["b"]\n', "line 3: it is a list", 1),
    "half a character": ("a.jsonl", '{"text": "a"}\n{"text": "\\ud83d!"}\n', "line 2: it has half a character", 2),
    "too many fields": ("a.csv", "n,text\n1,a\n2,b,c\n", "line 3: it has 3 fields, and the table has 2", 1),
    "deep": ("a.jsonl", '{"text": "a"}\n' + "[" * 100_000 + "\n", "line 2: it is nested too deeply", 1),
    "a huge number": (
        "a.jsonl",
        '{"text": "a", "n": ' + "9" * 5000 + '}\n{"text": ' + "9" * 5000 + "}\n",
        "line 2: 'text' is a number",
        1,
    ),
    "an open quote in TSV": ("a.tsv", 'text\tn\n"a\nb\t1\n', "line 2: a quoted field begins here and never ends", 1),
}


@pytest.mark.parametrize(("name", "content", "message", "kept"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_bad_row_is_refused_with_its_line_or_skipped(
    tmp_path: Path, name: str, content: str, message: str, kept: int
) -> None:
    path = file_of(tmp_path, name, content)
    with pytest.raises(CorpusError, match=f"{name}', {message}") as caught:
        look_at(path)
    assert "`data.errors = skip`" in caught.value.hint
    assert len(documents(path, errors="skip")) == kept


def test_half_characters_can_be_replaced_or_skipped(tmp_path: Path) -> None:
    path = file_of(tmp_path, "a.jsonl", '{"text": "a\\ud83dz"}\n{"text": "\\ud83d\\ude00"}\n')
    assert documents(path, errors="replace") == ["a\ufffdz", "😀"]
    assert documents(path, errors="skip") == ["az", "😀"]
    assert any("1 sequence of bytes" in note for note in look_at(path, errors="skip").notes)


BAD_FILES: dict[str, tuple[str, str, str]] = {
    "no end": ("a.json", '[{"text": "a"}', "neither a comma nor the end"),
    "no comma": ("a.json", '[{"text": "a"} {"text": "b"}]', "line 1: it has neither a comma"),
    "more": ("a.json", '[{"text": "a"}]\n\n[]', "line 3: there is more"),
    "bad element": ("a.json", '[{"text": "a"},\n{"text": b}]' + " " * 99, "line 2: it is not JSON"),
    "cut off": ("a.json", '[{"text": "a"},\n{"text": "b', "line 2: it is not JSON"),
    "deep": ("a.json", "[" * 100_000, "nested too deeply"),
    "no array": ("a.json", "12", "no array of rows"),
    "an object": ("a.json", '{"name": "my program", "version": 1}', "holds a single JSON object"),
    "quote": ("a.csv", 'text\n"a"b\n', "line 2: a quoted field has text between its closing"),
    "open quote": ("a.csv", 'text\nx\n"a\nb\n', "line 3: a quoted field begins here and never ends: 2 lines"),
    "a stray pair": ("a.csv", 'text,n\n"a,1\nb,2\nc" d,3\n', "line 2: a quoted field .*, after 3 lines"),
    "returns alone": ("a.csv", "n,text\r1,a\r2,b\r", "line 1: it has a carriage return"),
    "returns alone in TSV": ("a.tsv", "n\ttext\r1\ta\r", "line 1: it has a carriage return"),
    "the text twice": ("a.csv", "text,n,text\na,1,b\n", "2 columns called 'text'"),
    "an answer twice": ("a.csv", "prompt,output,output\na,b,c\n", "2 columns called 'output'"),
    "a sentence as name": ("a.csv", "The first sentence.\nThe second.\n", "seems to begin without the names"),
    "a number as name": ("a.csv", "1,one\n2,two\n", "seems to begin without the names"),
    "an object as text": (
        "a.jsonl",
        '{"id": 1, "meta": {"title": "a", "n": {"x": "b"}}}\n',
        "'id', 'meta.title', 'meta.n.x'",
    ),
    "not Parquet": ("a.parquet", "PAR1 and more than eight bytes", "no Parquet file|further packages"),
    "empty": ("a.jsonl", "", "is empty"),
    "only a header": ("a.csv", "n,text\n", "it has no rows"),
    "blank rows": ("a.jsonl", '{"text": " "}\n' * 3, "it has 3 rows, blank in column 'text'"),
}


@pytest.mark.parametrize(("name", "content", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_bad_files_of_rows(tmp_path: Path, name: str, content: str, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        look_at(file_of(tmp_path, name, content))


def test_an_object_in_a_folder_is_skipped(tmp_path: Path) -> None:
    file_of(tmp_path, "a.txt", "text")
    file_of(tmp_path, "settings.json", '{"name": "my program"}')
    file_of(tmp_path, "lines.json", '{"text": "a"}\n{"text": "b"}\n')
    seen = look_at(tmp_path)
    assert [(one.name, one.reason) for one in seen.summary.skipped] == [("settings.json", "JSON without rows")]
    assert seen.summary.formats == {"text": 1, "json": 1}
    assert len(seen.documents) == 3


def test_a_row_that_is_too_long_is_refused_before_it_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (row, json_values, table, tsv):
        monkeypatch.setattr(module, "MAX_ROW_CHARACTERS", 300_000)
    taken = 0

    def count(size: int) -> None:
        nonlocal taken
        taken += size

    long = {"text": "x" * 5_000_000}
    for suffix in (".jsonl", ".json", ".csv", ".tsv"):
        path = file_of(tmp_path, f"a{suffix}", FORMATS[suffix]([long, long]))
        taken = 0
        with pytest.raises(CorpusError, match=r"line [12]: it has more than"):
            list(map(list, read_documents(Source(path, path.name, f"'{path}'"), count)))
        assert taken < 2_000_000
    assert documents(file_of(tmp_path, "b.csv", as_csv([{"text": "x" * 200_000}]))) == ["x" * 200_000]


def test_a_number_between_two_pieces_is_one_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "CHUNK_BYTES", 3)
    monkeypatch.setattr(json_values, "_MIN_READ", 3)
    assert documents(file_of(tmp_path, "a.json", '["a", 12345678, "b"]'), errors="skip") == ["a", "b"]


def test_rows_are_read_one_by_one(tmp_path: Path) -> None:
    """The first row of a long file is there before the rest is read."""
    rows = [{"text": f"row number {number}, of several hundred thousand"} for number in range(60_000)]
    for suffix in (".jsonl", ".json", ".csv", ".parquet"):
        path = file_of(tmp_path, f"a{suffix}", FORMATS[suffix](rows))
        taken: list[int] = []
        first = next(read_documents(Source(path, path.name, f"'{path}'"), taken.append))
        assert "".join(first) == rows[0]["text"]
        assert sum(taken) <= 1 << 18


def test_semicolons_separate_columns_too(tmp_path: Path) -> None:
    path = file_of(tmp_path, "a.csv", "\ufeffn;text\r\n1;one, two\r\n2;three\r\n")
    assert documents(path) == ["one, two", "three"]


def test_rows_that_were_all_skipped_are_counted_with_the_first_reason(tmp_path: Path) -> None:
    path = file_of(tmp_path, "texts/a.jsonl", "\n{bad\n{worse\n")
    with pytest.raises(CorpusError, match=r"2 cannot be read \(the first: line 2: it is not JSON") as caught:
        look_at(path, errors="skip")
    assert "`data.format = text`" in caught.value.hint
    with pytest.raises(CorpusError, match=r"1 cannot be read .*, and 1 are blank"):
        look_at(file_of(tmp_path, "b.jsonl", '{"text": " "}\n{bad\n'), errors="skip")
    file_of(tmp_path, "texts/b.txt", "text")
    skipped = look_at(tmp_path / "texts", errors="skip").summary.skipped
    assert [(one.name, one.reason) for one in skipped] == [("a.jsonl", "without a row that can be read")]


TSV_RECORDS: dict[str, tuple[str, list[str]]] = {
    "inches": ('1\ta 5" pipe\n2\t6"\n3\tx\n', ['a 5" pipe', '6"', "x"]),
    "a stray mark": ('1\t"open\n2\ttwo\n3\tthree"\n', ['"open', "two", 'three"']),
    "a stray mark in the last row": ('1\tone\n2\t"open', ["one", '"open']),
    "speech": ('1\t"Yes," he said.\n2\t"No."\n', ['"Yes," he said.', "No."]),
    "quoted by Excel": ('1\t"a ""b"" c"\r\n2\t"d\te"\r\n', ['a "b" c', "d\te"]),
    "quoted over lines": ('1\t"a\n\nb"\n2\tc\n', ["a\n\nb", "c"]),
    "quoted, then another": ('"1"\t"a\r\nb"\n2\t"c\nd"\n', ["a\r\nb", "c\nd"]),
    "nothing quoted": ('1\t""\n2\t"\n3\tx\n', ['"', "x"]),
}


@pytest.mark.parametrize(("rows", "wanted"), TSV_RECORDS.values(), ids=TSV_RECORDS)
def test_marks_in_tsv(tmp_path: Path, rows: str, wanted: list[str]) -> None:
    assert documents(file_of(tmp_path, "a.tsv", f"n\ttext\n{rows}")) == wanted
    assert documents(file_of(tmp_path, "a.csv", f"n\ttext\n{rows}")) == wanted, "tabs separate the columns of this too"


@some
@given(rows=st.lists(texts, min_size=1, max_size=5), chunk=st.integers(8, 40))
def test_tsv_as_spreadsheets_quote_it(tmp_path_factory: pytest.TempPathFactory, rows: list[str], chunk: int) -> None:
    """The csv module quotes as they do. A text with both tabs and line ends may look like two rows."""
    rows = [f"x{text}".replace("\0", "").replace("\t" if "\n" in text else "\0", " ") for text in rows]
    for columns in (("n", "text"), ("text", "n")):
        table = [{name: {"text": text, "n": 12.5}[name] for name in columns} for text in rows]
        path = file_of(tmp_path_factory.getbasetemp(), "any.tsv", as_csv(table, "\t"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sources, "CHUNK_BYTES", chunk)
            assert documents(path) == rows


def test_a_quote_that_never_ends_is_followed_for_one_row_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line is looked ahead at a few times at most, however many open quotes there are."""
    looks = 0

    class Counted(str):
        def count(self, *place: Any) -> int:
            nonlocal looks
            looks += 1
            return super().count(*place)

    records = TsvRecords(iter([Counted('"open\n'), *[Counted("x\n")] * 99] * 50), 1)
    for _ in range(50 * 100):
        with suppress(OpenQuoteError):
            records.take(2)
    assert looks <= 4 * 50 * 100


def test_excel_names_the_separator_in_the_first_line(tmp_path: Path) -> None:
    path = file_of(tmp_path, "a.csv", "\ufeffsep=;\r\nn;text\r\n1;one, two\r\n2;x;y\r\n")
    with pytest.raises(CorpusError, match="line 4: it has 3 fields"):
        look_at(path)
    assert documents(path, errors="skip") == ["one, two"]


def test_short_rows_are_counted(tmp_path: Path) -> None:
    path = file_of(tmp_path, "a.csv", "n,text,m\n1,a,b\n2\n\n3,c\n")
    assert documents(path) == ["a", "c"]
    notes = look_at(path).notes
    assert any(note.startswith("Fewer fields than columns in 2 rows") for note in notes)
    assert "Skipped 2 blank rows." in notes


@pytest.mark.parametrize(("name", "is_noted"), [("headline", True), ("Text", False), ("body", False)])
def test_the_names_in_the_first_row_are_noted_unless_usual(tmp_path: Path, name: str, is_noted: bool) -> None:
    path = file_of(tmp_path, "a.csv", f"n,{name}\n1,one\n2,two\n")
    assert is_noted == any(f"'n', '{name}'" in note for note in look_at(path).notes)
    assert not any("first row" in note for note in look_at(path, text_field=name).notes)


def test_the_user_knows_the_names_better(tmp_path: Path) -> None:
    path = file_of(tmp_path, "a.csv", "What do you think of it.\nNot much\n")
    assert documents(path, text_field="What do you think of it.") == ["Not much"]


def test_an_object_is_no_text_but_its_columns_may_be(tmp_path: Path) -> None:
    path = file_of(tmp_path, "a.jsonl", '{"meta": {"title": "a", "n": 1}}\n')
    with pytest.raises(CorpusError, match=r"'meta.title', 'meta.n'") as caught:
        look_at(path, text_field="meta")
    assert "`data.text_field = meta.title`" in caught.value.hint
