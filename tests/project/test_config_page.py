"""docs/config.md is what the config tree says of itself."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import Field

from docs.generate_config import PAGE, SECTIONS, fields, flag_of_training, render
from gptcli.config import RunConfig, SamplingConfig, field_names
from gptcli.config.types import Section


def test_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "write it again: make docs"


def test_every_field_has_a_row() -> None:
    page = PAGE.read_text(encoding="utf-8")
    run = [f"| `{name}`" for name in field_names(RunConfig) if name != "preset"]
    call = [f"| `{name}`" for name in SamplingConfig.model_fields]
    assert all(row in page for row in run + call)
    assert {name.partition(".")[0] for name in field_names(RunConfig)} == {"preset", *SECTIONS}


class Example(Section):
    """A section."""

    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """A share (default: what is left)."""
    kind: Literal["one", "two"] = "one"
    """Kind `a|b`."""
    counts: tuple[Annotated[int, Field(ge=2)], ...] = ()
    """Counts."""
    needed: bool
    """Whether."""


@pytest.mark.parametrize(
    "row",
    [
        "| `example.share` | number above 0 to 1 | what is left | A share. |",
        "| `example.kind` | `one`, `two` | `one` | Kind `a\\|b`. |",
        "| `example.counts` | list of whole number from 2 | none | Counts. |",
        "| `example.needed` | `true`, `false` | from the preset | Whether. |",
    ],
)
def test_a_row(row: str) -> None:
    assert row in fields(Example, "example.", lambda key: key).splitlines()


def test_flags() -> None:
    assert flag_of_training("tokenizer.kind") == "--tokenizer"
    assert flag_of_training("optim.beta1") == "optim.beta1"
