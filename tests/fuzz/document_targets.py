"""The targets of fuzzing that are documents: one for each reader, and archives changed inside and outside."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from random import Random

from gptcli.dataset.readers import read_documents
from gptcli.dataset.sources import Source
from tests.dataset.formats import made
from tests.fuzz.mutation import mutated_bytes, mutated_json, mutated_text
from tests.fuzz.target import Target


class Document(Target):
    """A file that a reader of documents reads."""

    suffix: str
    seeds: tuple[bytes, ...]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.path = folder / f"document{self.suffix}"

    def prepare(self, random: Random) -> None:
        self.path.write_bytes(self.changed(random.choice(self.seeds), random))

    def changed(self, seed: bytes, random: Random) -> bytes:
        if not seed.isascii() or random.random() < 0.3:
            return mutated_bytes(seed, random)
        return mutated_text(seed.decode(), random)

    def run(self) -> None:
        for document in read_documents(Source(self.path, self.path.name, f"'{self.path.name}'"), lambda _: None):
            for piece in document:
                assert piece.encode(), "an empty piece, or a lone surrogate"


class Zipped(Document):
    """A zip file with a changed file in it, or changed itself."""

    def changed(self, seed: bytes, random: Random) -> bytes:
        if random.random() < 0.2:
            return mutated_bytes(seed, random)
        with zipfile.ZipFile(io.BytesIO(seed)) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        name = random.choice(sorted(files))
        return made.zipped(files | {name: super().changed(files[name], random)})


class Word(Zipped):
    suffix = ".docx"
    paragraph = "<w:p><w:pPr/><w:r><w:t>text</w:t><w:tab/><w:br/></w:r></w:p>"
    seeds = (made.docx(f"{paragraph}<w:tbl><w:tr><w:tc>{paragraph}</w:tc></w:tr></w:tbl>", paragraph),)


class OpenDocument(Zipped):
    suffix = ".odt"
    note = "<text:note><text:note-body><text:p>note</text:p></text:note-body></text:note>"
    seeds = (made.odt(f"<text:p>text<text:s text:c='3'/>{note}<text:tab/></text:p>", "<manifest/>"),)


class Book(Zipped):
    suffix = ".epub"
    seeds = (made.epub({"a.xhtml": made.chapter("<p>a&nbsp;b</p>"), "b.xhtml": "<pre>b<p>c<br>"}),)


class Page(Document):
    suffix = ".html"
    body = "<nav>n</nav><table><tr><td>1<td>2</table><pre>\n x</pre>&eacute;<script>1 < 2</script><p hidden>h<p>text"
    seeds = (
        f'<!doctype html><html><head><meta charset="latin1"><title>t</title></head><body>{body}'.encode(),
        f"<p>é{body}".encode(),
        f"<p>é{body}".encode("utf-16"),
    )


class StrictPage(Document):
    suffix = ".xhtml"
    seeds = (made.chapter("<p>a&nbsp;b</p><table><tr><td>c</td></tr></table>").encode(),)


class Pdf(Document):
    suffix = ".pdf"
    seeds = (made.pdf(["one\ntwo", "three"], compressed=False), made.pdf(["one\ntwo", "three"]))


class Message(Document):
    suffix = ".eml"
    seeds = (
        made.message("Subject é", "text é\n", "<p>html</p>", cte="quoted-printable"),
        made.message("S", "", "<p>é</p>", cte="base64"),
        b"Subject: =?utf-8?q?=C3=A9?=\nContent-Type: text/plain; format=flowed; charset=utf-8\n\n> a \n> b\nc \nd\n",
    )


class Mailbox(Document):
    suffix = ".mbox"
    seeds = (made.mbox(*Message.seeds), made.mbox(Message.seeds[1], Message.seeds[2]))


class WhatsApp(Document):
    suffix = ".txt"
    lines = (
        "Anna: hello",
        "Ben: hi",
        "Anna: <Media omitted>",
        "Ben added Cleo",
        "Ben: two\nlines",
        "Ben: 😀",
        "Anna: x",
    )
    seeds = (
        "\n".join(f"31.12.23, 21:15 - {line}" for line in lines).encode(),
        "\r\n".join(f"[12/31/23, 9:15:05 PM] {line}" for line in lines).encode(),
    )


class JsonChat(Document):
    """Telegram's and Discord's exports."""

    suffix = ".json"
    chat = made.telegram({"from": "Anna", "text": ["a", {"type": "link", "text": "b"}]}, {"from": "Ben", "text": "é"})
    seeds = (
        json.dumps(chat).encode(),
        json.dumps({"about": "x", "chats": {"list": [chat, chat]}}).encode(),
        made.discord({"content": "hello", "author": {"name": "anna", "nickname": "Anna"}}),
    )

    def changed(self, seed: bytes, random: Random) -> bytes:
        return mutated_json(seed, random)


DOCUMENT_TARGETS: dict[str, type[Target]] = {
    "docx": Word,
    "odt": OpenDocument,
    "epub": Book,
    "html": Page,
    "xhtml": StrictPage,
    "pdf": Pdf,
    "eml": Message,
    "mbox": Mailbox,
    "whatsapp": WhatsApp,
    "json-chat": JsonChat,
}
