"""The reader of electronic books (.epub): the chapters in reading order, without the table of contents.

A book is a zip file. META-INF/container.xml names the package file, which lists the files and their order (EPUB 3.3).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from urllib.parse import unquote

from gptcli.dataset.formats.archive import Archive, opened_archive
from gptcli.dataset.formats.library_errors import refusing
from gptcli.dataset.formats.xhtml import xhtml_text
from gptcli.dataset.formats.xml_events import elements
from gptcli.dataset.sources import OnBytes, Source

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_HARMLESS = {None, "http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC"}
"""Encryption of fonts alone, which leaves the text readable."""
_CHAPTER_TYPES = {"application/xhtml+xml", "text/html", "text/x-oeb1-document"}


def read_documents(source: Source, on_bytes: OnBytes) -> Iterator[Iterator[str]]:
    """The reader of electronic books (see `readers`): a book is one document. Raises CorpusError."""
    yield _text(source, on_bytes)


def _text(source: Source, on_bytes: OnBytes) -> Iterator[str]:
    hint = "Use a copy without copy protection, or convert it with Calibre to a new .epub."
    with refusing(source, "an electronic book", hint), opened_archive(source, on_bytes) as archive:
        is_first = True
        for name in _chapters(archive):
            if text := xhtml_text(archive.read(name), source):
                yield text if is_first else "\n" + text
                is_first = False


def _chapters(archive: Archive) -> list[str]:
    """The names of the chapters in reading order, each once."""
    if _ENCRYPTION in archive:
        algorithms = {attributes.get("Algorithm") for _, attributes in elements(archive.read(_ENCRYPTION))}
        if not algorithms <= _HARMLESS:
            raise ValueError("it is copy-protected (DRM)")
    roots = [attributes for tag, attributes in elements(archive.read(_CONTAINER)) if tag == "rootfile"]
    if not roots:
        raise ValueError("it names no package file")
    package = roots[0].get("full-path", "")
    items: dict[str, dict[str, str]] = {}
    order: list[str] = []
    for tag, attributes in elements(archive.read(package)):
        if tag == "item":
            items[attributes.get("id", "")] = attributes
        elif tag == "itemref":
            order.append(attributes.get("idref", ""))
    if lost := [chapter for chapter in order if chapter not in items]:
        raise ValueError(f"it does not say where its chapter '{lost[0][:200]}' is")
    folder = posixpath.dirname(package)
    paths = [posixpath.join(folder, unquote(items[name].get("href", ""))) for name in order if _is_text(items[name])]
    return list(dict.fromkeys(map(posixpath.normpath, paths)))


def _is_text(item: dict[str, str]) -> bool:
    """Whether an item of the package file is a chapter, rather than a picture or the table of contents."""
    return item.get("media-type") in _CHAPTER_TYPES and "nav" not in item.get("properties", "").split()
