"""Small documents of every format, made here as other programs make them."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from email.message import EmailMessage
from typing import Any

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
OFFICE = "urn:oasis:names:tc:opendocument:xmlns"


def zipped(files: Mapping[str, str | bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, compression)
    return content.getvalue()


def docx(body: str, notes: str = "", part: str = "word/document.xml") -> bytes:
    relations = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        '<Relationship Id="a" Type="http://schemas.openxmlformats.org/package/2006/relationships/metadata/core-properties"'
        ' Target="docProps/core.xml"/>'
        '<Relationship Id="b" Target="/' + part + '"'
        ' Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"/></Relationships>'
    )
    files = {"_rels/.rels": relations, part: f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>'}
    if notes:
        files["word/footnotes.xml"] = f'<w:footnotes xmlns:w="{WORD}">{notes}</w:footnotes>'
    return zipped(files)


def odt(body: str, manifest: str = "") -> bytes:
    names = "".join(f' xmlns:{prefix}="{OFFICE}:{prefix}:1.0"' for prefix in ("office", "text", "table", "drawing"))
    content = f"<office:document-content{names}><office:body><office:text>{body}</office:text></office:body>"
    files = {
        "mimetype": "application/vnd.oasis.opendocument.text",
        "content.xml": f"{content}</office:document-content>",
    }
    return zipped(files | ({"META-INF/manifest.xml": manifest} if manifest else {}))


def epub(chapters: Mapping[str, str | bytes], manifest: str = "", spine: str = "", **more: str) -> bytes:
    """A book whose spine has the chapters in their order, then the items of `spine`."""
    items = "".join(
        f'<item id="c{number}" href="{name}" media-type="application/xhtml+xml"/>'
        for number, name in enumerate(chapters)
    )
    order = "".join(f'<itemref idref="c{number}"/>' for number in range(len(chapters)))
    package = (
        '<?xml version="1.0"?><package xmlns="http://www.idpf.org/2007/opf" version="3.0">'
        f"<manifest>{items}{manifest}</manifest><spine>{order}{spine}</spine></package>"
    )
    container = (
        '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
    )
    files = {"mimetype": "application/epub+zip", "META-INF/container.xml": container, "OEBPS/book.opf": package}
    return zipped(files | {f"OEBPS/{name.replace('%20', ' ')}": text for name, text in chapters.items()} | more)


def chapter(body: str) -> str:
    return (
        '<?xml version="1.0" encoding="utf-8"?><!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.1//EN" '
        '"http://www.w3.org/TR/xhtml11/DTD/xhtml11.dtd"><html xmlns="http://www.w3.org/1999/xhtml">'
        f"<head><title/><script/></head><body>{body}</body></html>"
    )


def pdf(pages: list[str], *, trailer: str = "", compressed: bool = True) -> bytes:
    """Pages of Helvetica, each line of a page as one line of print."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects: list[bytes] = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Kids[{kids}]/Count {len(pages)}>>".encode(),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>",
    ]
    for number, page in enumerate(pages):
        lines = "".join(f"({line}) Tj T* " for line in page.split("\n") if page)
        stream = f"BT /F1 12 Tf 14 TL 72 700 Td {lines}ET".encode("cp1252")
        stream, filters = (zlib.compress(stream), b"/Filter/FlateDecode") if compressed else (stream, b"")
        resources = "/Resources<</Font<</F1 3 0 R>>>>/MediaBox[0 0 612 792]"
        objects.append(f"<</Type/Page/Parent 2 0 R{resources}/Contents {5 + 2 * number} 0 R>>".encode())
        objects.append(b"<</Length %d%b>>stream\n%b\nendstream" % (len(stream), filters, stream))
    content, offsets = b"%PDF-1.4\n", []
    for number, data in enumerate(objects, 1):
        offsets.append(len(content))
        content += b"%d 0 obj\n%b\nendobj\n" % (number, data)
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    xref = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    ending = f"trailer<</Size {len(objects) + 1}/Root 1 0 R{trailer}>>\nstartxref\n{len(content)}\n%%EOF\n"
    return content + xref.encode() + ending.encode()


def message(subject: str, text: str, html: str = "", **options: Any) -> bytes:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "anna@example.org", "ben@example.org", subject
    if text:
        mail.set_content(text, **options)
    if html:
        (mail.add_alternative if text else mail.set_content)(html, subtype="html")
    return mail.as_bytes()


def mbox(*messages: bytes) -> bytes:
    start = b"From anna@example.org Sun Dec 31 21:15:00 2023\n"
    return b"".join(start + message.replace(b"\nFrom ", b"\n>From ") + b"\n" for message in messages)


def telegram(*messages: dict[str, Any], name: str | None = "Ben") -> dict[str, Any]:
    """One chat; `json.dumps` makes the file."""
    numbered = [{"id": number, "type": "message"} | message for number, message in enumerate(messages)]
    return {"name": name, "type": "personal_chat", "id": 4321, "messages": numbered}


def discord(*messages: dict[str, Any]) -> bytes:
    numbered = [{"id": str(number), "type": "Default"} | message for number, message in enumerate(messages)]
    export = {
        "guild": {"id": "1", "name": "The guild"},
        "channel": {"id": "2", "type": "GuildTextChat", "name": "general"},
        "dateRange": {"after": None, "before": None},
        "messages": numbered,
        "messageCount": len(numbered),
    }
    return json.dumps(export, indent=2, ensure_ascii=False).encode()
