"""Tables at any width: cells are folded if there is no room, never cut."""

from __future__ import annotations

import pytest

from gptcli.ui.console import Output
from gptcli.ui.tables import facts, left, right, table

ROWS = [["h.*.attn.c_attn", "8 × 128 × 144", 1_234_567, "queries, keys and values"], ["wte", "65 × 48", 3, "tokens"]]
WRITTEN = "h.*.attn.c_attn 8 × 128 × 144 1,234,567 queries, keys and values wte 65 × 48 3 tokens"
COLUMNS = [*left("part"), *right("shape", "count"), *left("what")]


def shown(width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    Output().show(table("Parts", COLUMNS, ROWS, total=["total", None, 1_234_570, ""]))
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("width", [30, 40, 54, 60, 80, 200])
def test_nothing_is_cut(width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(width, monkeypatch, capsys)
    assert max(map(len, lines)) <= width
    told = "".join(lines[3:])
    assert all(told.count(char) >= WRITTEN.count(char) for char in set(WRITTEN) - {" "})
    assert "…" not in "".join(lines)


def test_numbers_stay_whole_where_there_is_room(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "1,234,567" in "\n".join(shown(60, monkeypatch, capsys))
    assert len(shown(200, monkeypatch, capsys)) == 7


def test_a_line_break_in_a_name_breaks_no_row(capsys: pytest.CaptureFixture[str]) -> None:
    Output().show(table("a\nb", left("name\n", "what"), [["one\ntwo", "x\ty"]]), facts("f", [("n\nm", "o\np")]))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    for shown in (r"a\nb", r"name\n", r"one\ntwo", r"x\ty", r"n\nm", r"o\np"):
        assert shown in "\n".join(lines)
