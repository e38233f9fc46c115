"""Code points of a text as numpy arrays."""

from __future__ import annotations

import numpy as np

_FIRST_BEYOND_ASCII = 0x80


def code_points(text: str) -> np.ndarray:
    """The code point of each character: uint8 for ASCII, else uint32."""
    if text.isascii():
        return np.frombuffer(text.encode("ascii"), dtype=np.uint8)
    return np.frombuffer(text.encode("utf-32-le", errors="surrogatepass"), dtype="<u4")


def beyond_ascii(data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The characters beyond ASCII of a text in UTF-8, uint8 (n,): the places of their bytes, and their code points."""
    places = np.flatnonzero(data >= _FIRST_BEYOND_ASCII)
    return places, code_points(data[places].tobytes().decode())
