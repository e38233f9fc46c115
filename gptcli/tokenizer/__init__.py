"""Character and BPE tokenizers: text to ids and back. Knows no configuration and no dataset."""

from __future__ import annotations

from typing import Literal

Unknown = Literal["error", "skip"]
"""The treatment of characters that a tokenizer does not know."""
