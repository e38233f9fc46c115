"""Chat exports: recognized by their content or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import gptcli
from gptcli.dataset.formats import discord, telegram
from gptcli.dataset.formats.chat import chat_text
from gptcli.dataset.sources import Source
from gptcli.errors import CorpusError
from tests.dataset.formats import made
from tests.dataset.formats.conftest import Read

PREFIXES = [
    "31.12.23, 21:15 - ",
    "12/31/23, 9:15 PM - ",
    "12/31/23, 9:15\u202fPM - ",
    "31/12/2023, 9:15 p. m. - ",
    "31/12/2023 21:15 - ",
    "31/12/2023 à 21:15 - ",
    "2023-12-31, 21:15 - ",
    "31.12.2023 21.15 - ",
    "[31.12.23, 21:15:05] ",
    "[12/31/23, 9:15:05 PM] ",
    "[2023-12-31, 21:15:05] ",
    "\u200e[31/12/2023, 21:15:05] ",
]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_whatsapp_in_several_countries(read: Read, prefix: str, end: str) -> None:
    lines = [
        f"{prefix}Messages and calls are end-to-end encrypted.",
        f"{prefix}Anna: hello: you",
        "second line",
        f"{prefix}Ben B.: hi 😀",
        f"{prefix}Ben added Cleo",
        f"{prefix}Ben B.: <Media omitted>",
        f"{prefix}Anna: \u200eimage omitted",
        f"{prefix}Anna: fine \u200e<This message was edited>",
        f"{prefix}Ben B.: ",
        "",
    ]
    assert read(end.join(lines), "_chat.txt") == ["Anna: hello: you\nsecond line\nBen B.: hi 😀\nAnna: fine\n"]


@pytest.mark.parametrize(
    "lines",
    [
        ["2023-12-31 21:15:05,123 - root - INFO: started"] * 9,
        ["2023-12-31 21:15 - INFO: started"] * 9,
        ["[2023-12-31 21:15:05] app.INFO: started"] * 9,
        ["31.12.23, 21:15 - Anna: hello"] * 3,
        ["A chat:", *["31.12.23, 21:15 - Anna: hello"] * 9],
        [f"31.12.23, 21:15 - note {number}: x" for number in range(9)],
        ["Anna: hello", "Ben: hi"] * 9,
    ],
)
def test_other_texts_stay_as_they_are(read: Read, lines: list[str]) -> None:
    text = "\n".join(lines)
    assert read(text, "a.txt") == [text]


def test_a_long_chat_is_read_in_pieces(read: Read) -> None:
    lines = [f"31.12.23, 21:15 - {'Anna' if number % 3 else 'Ben'}: {number} é" for number in range(30_000)]
    assert read("\n".join(lines), "a.txt") == ["".join(f"{line.split(' - ')[1]}\n" for line in lines)]


def test_pieces_of_a_chat_are_bounded() -> None:
    pieces = list(chat_text(("Anna", "hello") for _ in range(50_000)))
    assert len(pieces) > 5
    assert "".join(pieces) == "Anna: hello\n" * 50_000


def test_telegram(read: Read) -> None:
    chat = made.telegram(
        {"from": "Anna", "text": "hello"},
        {"type": "service", "action": "phone_call", "text": ""},
        {"from": "Ben", "text": ["see ", {"type": "link", "text": "https://x.org"}, "\nbye"], "text_entities": []},
        {"from": "Ben", "text": "", "photo": "photos/1.jpg"},
        {"from": None, "text": "gone"},
    )
    text = "Anna: hello\nBen: see https://x.org\nbye\nDeleted Account: gone\n"
    for name in ("Ben", None):
        assert read(json.dumps(chat | {"name": name}, indent=1), "result.json") == [text]
    assert read("\ufeff" + json.dumps(chat), "result.json") == [text]
    saved = {"type": "saved_messages", "id": 1, "messages": chat["messages"]}
    assert read(json.dumps(saved), "result.json") == [text]


def test_all_chats_of_telegram(read: Read) -> None:
    chats = [made.telegram({"from": "Anna", "text": name}, name=name) for name in ("one", "two")]
    empty = made.telegram({"type": "service", "text": ""})
    export = {
        "about": 'Here is the "data".',
        "contacts": {"about": "", "list": [{"messages": [{"text": "no", "type": "message"}]}]},
        "chats": {"about": "", "list": [chats[0], empty, chats[1]]},
        "left_chats": {"about": "", "list": [made.telegram({"from": "Cleo", "text": "left"})]},
    }
    assert read(json.dumps(export), "result.json") == ["Anna: one\n", "", "Anna: two\n", "Cleo: left\n"]


def test_discord(read: Read) -> None:
    anna = {"id": "1", "name": "anna_1", "nickname": "Anna"}
    export = made.discord(
        {"content": "hello\nyou", "author": anna},
        {"type": "GuildMemberJoin", "content": "Joined the server.", "author": anna},
        {"type": "Reply", "content": "hi 😀", "author": {"name": "ben", "nickname": None}},
        {"content": "", "attachments": [{"url": "x"}], "author": anna},
    )
    assert read(export, "a.json") == ["Anna: hello\nyou\nben: hi 😀\n"]


@pytest.mark.parametrize(
    "content", ['{"name": "x", "type": "module", "id": 1, "messages": []}', '{"guild": {}, "users": []}', "[1]", ""]
)
def test_other_json_is_no_chat(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    source = Source(path, "a.json", "'a.json'")
    assert not telegram.recognizes(source)
    assert not discord.recognizes(source)


def test_damaged_chats_are_refused(read: Read) -> None:
    whole = json.dumps(made.telegram({"from": "Anna", "text": "hello"}))
    deep = whole.replace('"hello"', "[" * 100_000)
    too_deep = whole.replace('"hello"', "[" * 70 + "]" * 70)
    for content in (whole[:-10], deep, too_deep, whole.replace('"hello"', "NaN")):
        with pytest.raises(CorpusError, match="Telegram") as refusal:
            read(content, "result.json")
        assert refusal.value.hint
    with pytest.raises(CorpusError, match="Discord"):
        read(made.discord({"content": "x", "author": {}})[:-10], "a.json")
    half = json.dumps(made.telegram({"from": "Anna", "text": "\ud800 x"}))
    assert read(half, "result.json")[0].encode(), "no lone surrogate"


def test_a_text_that_is_no_chat_is_not_called_empty(tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_text("Hello world\n", encoding="utf-8")
    with pytest.raises(CorpusError, match="format whatsapp") as caught:
        gptcli.tokenize(tmp_path / "plain.txt", tmp_path / "data", settings={"data.format": "whatsapp"})
    assert "empty" not in caught.value.message
    assert "`data.format = text`" in caught.value.hint
