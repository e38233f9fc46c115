"""The types of configuration values and of arguments, and the base class of every section."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

DtypeName = Literal["float32", "bfloat16", "float16"]
Compile = Literal["auto", "on", "off"]
Parallel = Literal["replicated", "fsdp"]
ResumeMode = Literal["auto", "never", "must"]
"""The treatment of an existing run: resume it if there is one, start another, or require one."""
Quantization = Literal["int8"]


def parse_duration(value: object) -> object:
    """Seconds from a number or from text such as `90s`, `30m`, `1.5h` or `2d`; the field's range is checked later."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
    if isinstance(value, str):
        text = value.strip().lower()
        factor = units.get(text[-1:])
        try:
            return float(text[:-1]) * factor if factor else float(text)
        except ValueError:
            raise ValueError("must be a time such as 90s, 30m, 1.5h or 2d") from None
    return value


def open_if_auto(value: object) -> object:
    """None, which leaves a field open, for `auto`."""
    return None if value == "auto" else value


DEFAULT_SEED = 1337
"""Seed of training and measurements unless one is set."""
MAX_COUNT = 10**9
"""Upper limit of every count: no training has more steps."""
MAX_SECONDS = 10 * 365 * 86_400

Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[Finite, Field(gt=0)]
Fraction = Annotated[Finite, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
CountOrZero = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Width = Annotated[int, Field(ge=1, le=2**16)]
Duration = Annotated[Finite, Field(gt=0, le=MAX_SECONDS), BeforeValidator(parse_duration)]


class Section(BaseModel):
    """Base of the sections: frozen, strict, unknown keys refused, docstrings as descriptions."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        protected_namespaces=(),
        use_attribute_docstrings=True,
        defer_build=True,
    )
