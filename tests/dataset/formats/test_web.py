"""HTML, XHTML and electronic books."""

from __future__ import annotations

import pytest

from gptcli.errors import CorpusError
from tests.dataset.formats import made
from tests.dataset.formats.conftest import Read


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<p>one <b>bold</b>\n word.<p>two &amp; &eacute;&nbsp;&#8364;", "one bold word.\n\ntwo & é\u00a0€\n"),
        ("<h1>T</h1><div>a<div>b</div>c</div>d<br>e<br><br>f", "T\n\na\nb\nc\nd\ne\n\nf\n"),
        ("<ul><li>x<li>y</ul><table><tr><td>1<td>2<tr><th>3</table>z", "x\ny\n\n1\t2\n3\n\nz\n"),
        ("a<pre>\n  b\n\tc\n</pre>d", "a\n\n  b\n\tc\n\n\nd\n"),
        ("soft\u00adhyphen<script>if (a < b) x()</script><style>p {}</style><!-- c -->.", "softhyphen.\n"),
        ("<div><nav>menu</div><p>text</p><div role=navigation>menu</div><p hidden>no</p>", "text\n"),
        ("<ruby>漢<rp>(<rt>kan<rp>)</ruby>字", "漢字\n"),
        ("<button>b</button>1 < 2 & 3 <bogus>x</bogus>", "1 < 2 & 3 x\n"),
        ("<div>" * 3000 + "deep" + "</div>" * 3000 + "<p>after", "deep\n\nafter\n"),
    ],
)
def test_the_text_of_a_page(read: Read, body: str, text: str) -> None:
    page = f"<!doctype html><html><head><meta charset=utf-8><title>Left out</title></head><body>{body}</body></html>"
    assert read(page, "a.html") == [text]


def test_encodings_of_a_page(read: Read) -> None:
    page = '<html><head><meta http-equiv="content-type" content="text/html; charset={}"></head><body>{}'
    assert read(page.format("ISO-8859-1", "é “x” €").encode("cp1252"), "a.htm") == ["é “x” €\n"], "as browsers do"
    assert read(page.format("Shift_JIS", "日本語" * 50_000).encode("cp932"), "a.html") == ["日本語" * 50_000 + "\n"]
    assert read(page.format("utf-16", "é").encode(), "a.html") == ["é\n"], "it cannot be: it was readable as ASCII"
    assert read("<p>é日".encode("utf-16"), "a.html") == ["é日\n"]
    assert read("\ufeff<p>é", "a.html") == ["é\n"]
    with pytest.raises(CorpusError, match=r"not UTF-8.*0xE9"):
        read("<p>é".encode("latin-1"), "a.html")
    with pytest.raises(CorpusError, match="encoding 'rot13' is unknown"):
        read(page.format("rot13", "x"), "a.html")


def test_xhtml_is_read_as_xml_and_else_as_html(read: Read) -> None:
    assert read(made.chapter("<p>a&nbsp;b</p><p>1 &lt; 2</p>"), "a.xhtml") == ["a\u00a0b\n\n1 < 2\n"]
    assert read("<html><body><p>a<p>b &copy;<br>c", "a.xhtml") == ["a\n\nb ©\nc\n"]
    japanese = made.chapter("<p>日本語 &lt;</p>").replace("utf-8", "shift_jis").encode("cp932")
    assert read(japanese, "a.xhtml") == ["日本語 <\n"]
    with pytest.raises(CorpusError, match="encoding 'utf-0' is unknown"):
        read(made.chapter("x").replace("utf-8", "utf-0"), "a.xhtml")


def test_a_page_without_text_is_no_piece(read: Read) -> None:
    assert read("<html><!-- nothing --></html>", "a.html") == [""]
    assert read("<!-- nothing -->", "a.html") == [""]
    assert read("", "a.html") == [""]


def test_a_book(read: Read) -> None:
    chapters = {"text/b%20.xhtml": made.chapter("<h1>1</h1><p>One.</p>"), "a.xhtml": made.chapter("<p>Two.</p>")}
    other = (
        '<item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>'
        '<item id="cover" href="cover.jpg" media-type="image/jpeg"/>'
    )
    spine = '<itemref idref="nav"/><itemref idref="cover"/><itemref idref="c0"/>'
    assert read(made.epub(chapters, other, spine), "a.epub") == ["1\n\nOne.\n\nTwo.\n"]


def test_a_book_with_a_chapter_that_is_not_well_formed(read: Read) -> None:
    chapters = {"a.xhtml": "<html><body><p>One<p>Two", "b.xhtml": made.chapter("<p>Three</p>").encode("utf-16")}
    chapters["b.xhtml"] = made.chapter("<p>Three é</p>").replace("utf-8", "utf-16").encode("utf-16")
    assert read(made.epub(chapters), "a.epub") == ["One\n\nTwo\n\nThree é\n"]


def test_books_that_cannot_be_read(read: Read) -> None:
    fonts, text = "http://www.idpf.org/2008/embedding", "http://www.w3.org/2001/04/xmlenc#aes128-cbc"
    encryption = '<encryption><EncryptedData><EncryptionMethod Algorithm="{}"/></EncryptedData></encryption>'
    chapters = {"a.xhtml": made.chapter("x")}
    name = "META-INF/encryption.xml"
    assert read(made.epub(chapters, **{name: encryption.format(fonts)}), "a.epub") == ["x\n"]
    with pytest.raises(CorpusError, match="DRM"):
        read(made.epub(chapters, **{name: encryption.format(text)}), "a.epub")
    with pytest.raises(CorpusError, match=r"OEBPS/lost\.xhtml"):
        read(
            made.epub(chapters, '<item id="l" href="lost.xhtml" media-type="text/html"/>', '<itemref idref="l"/>'),
            "a.epub",
        )
    with pytest.raises(CorpusError, match="chapter 'l'"):
        read(made.epub(chapters, "", '<itemref idref="l"/>'), "a.epub")
