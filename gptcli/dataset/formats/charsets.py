"""The encodings that an HTML file or a mail may name, as Python codecs."""

from __future__ import annotations

import codecs
import re

_KNOWN = re.compile(
    r"utf-?8|utf-?16(le|be)?|us-ascii|ascii|(iso-?)?8859-\d{1,2}|latin-?\d|(windows-|cp-?)\d{3,4}|koi8-[rut]"
    r"|macintosh|mac-?roman|shift-?jis|sjis|euc-?(jp|kr|tw)|iso-2022-(jp|kr)|gb-?2312|gbk|gb18030|hz-gb-2312"
    r"|big5(-?hkscs)?|ks-c-5601-1987|tis-620"
)
"""Encodings of text. Python's table of codecs also has compression and escapes, which a file must not choose."""
_WIDER = {"ascii": "cp1252", "iso8859-1": "cp1252", "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932"}
"""The encodings that people mean by these names (WHATWG Encoding Standard, 4.2), in Python's spelling."""


def codec_of(label: str) -> str | None:
    """Python's codec for the name of an encoding: "ISO-8859-1" → "cp1252". None for an unknown one."""
    name = label.strip().lower().replace("_", "-")
    if not _KNOWN.fullmatch(name):
        return None
    try:
        codec = codecs.lookup("cp949" if name == "ks-c-5601-1987" else name).name
    except LookupError:
        return None
    return _WIDER.get(codec, codec)
