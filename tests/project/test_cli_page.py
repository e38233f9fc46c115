"""docs/cli.md is what the commands say of themselves."""

from __future__ import annotations

from docs.generate_cli import PAGE, render


def test_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "write it again: make docs"
