"""Text laid out in lines and paragraphs, from a stream of words and breaks."""

from __future__ import annotations

import re

_WHITE = re.compile(r"[ \t\n\r\f]+")  # as in HTML and OpenDocument: a no-break space is not among them
_INVISIBLE = str.maketrans("", "", "\u00ad\ufeff")  # soft hyphens and byte-order marks
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def whole_characters(text: str) -> str:
    """The text with U+FFFD for lone surrogates, which UTF-8 cannot hold."""
    return _SURROGATE.sub("\ufffd", text)


class TextFlow:
    """Collects text. White space and breaks are written only before more text, so that lines end without spaces.

    >>> flow = TextFlow()
    >>> flow.add(" a  b "), flow.end_paragraph(), flow.add("c")
    (None, None, None)
    >>> flow.finish()
    'a b\\n\\nc\\n'
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._gap = ""
        """White space to write before the next text of the line."""
        self._breaks = 0
        """Line ends to write before the next text."""
        self._has_text = False

    def add(self, text: str) -> None:
        """Append text, with each run of white space as one space."""
        text = _WHITE.sub(" ", text)
        if text.startswith(" "):
            self._space()
        if words := text.strip(" "):
            self.add_exactly(words)
            if text.endswith(" "):
                self._space()

    def add_exactly(self, text: str) -> None:
        """Append text with all its white space, but without soft hyphens."""
        text = text.translate(_INVISIBLE)
        if not text:
            return
        if self._breaks and self._has_text:
            self._parts.append("\n" * self._breaks)
        begins_line = self._breaks or not self._has_text
        if not (begins_line and self._gap == " "):
            self._parts.append(self._gap)
        self._parts.append(text)
        self._gap, self._breaks, self._has_text = "", 0, True

    def end_cell(self) -> None:
        """Append a tab, unless the line ends here."""
        self._gap = self._gap.rstrip(" ") + "\t"

    def end_line(self) -> None:
        """End the line, if it has text."""
        self._gap, self._breaks = "", max(self._breaks, 1)

    def end_paragraph(self) -> None:
        """End the line and leave a blank one."""
        self._gap, self._breaks = "", max(self._breaks, 2)

    def add_break(self) -> None:
        """End the line, even an empty one."""
        self._gap, self._breaks = "", self._breaks + 1

    def take(self) -> str:
        """The text since the last call."""
        text = "".join(self._parts)
        self._parts.clear()
        return text

    def finish(self) -> str:
        """The rest of the text, with an end of line."""
        return self.take() + ("\n" if self._has_text else "")

    def _space(self) -> None:
        if not self._gap:
            self._gap = " "
