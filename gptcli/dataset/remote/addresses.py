"""Addresses of text: `https://…`, `http://…`, and `hf://…` on the Hugging Face Hub."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal
from urllib.parse import SplitResult, unquote, urlsplit

from gptcli.dataset.compression import inner_name
from gptcli.errors import UsageError

WEB = ("https://", "http://")
HUB = "hf://"

_HUB_ADDRESS = re.compile(
    r"hf://(?:(?P<kind>datasets|spaces|models)/)?(?!(?:datasets|spaces|models)/)(?P<repository>[\w.-]+/[\w.-]+)"
    r"(?:@(?P<revision>refs/(?:convert/[\w.-]+|pr/\d+)|[^/@]+))?(?:/(?P<path>[^\0]*))?"
)
_KINDS: dict[str | None, Literal["dataset", "space", "model"]] = {
    "datasets": "dataset", "spaces": "space", "models": "model", None: "model",
}  # fmt: skip


@dataclass(frozen=True)
class HubPlace:
    """A file, a folder or a pattern in a repository on the Hub."""

    kind: Literal["dataset", "space", "model"]
    repository: str
    """`owner/name`."""
    revision: str | None
    path: str
    """Relative to the repository; "" is all of it."""


def is_web_address(given: str) -> bool:
    return given.lower().startswith(WEB)


def is_text_address(given: str) -> bool:
    """Whether `given` is an address of text, as opposed to that of a model, `hf://owner/name`."""
    return is_web_address(given) or (bool(_HUB_ADDRESS.fullmatch(given)) and not _is_model(given))


def shown(address: str) -> str:
    """A web address as people and manifests see it: without credentials, query and fragment, which may be secret."""
    parts = _split(address)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def name_in(address: str) -> str:
    """The name of the text at an address.

    >>> name_in("https://example.com/books/a.txt.gz?key=1"), name_in("hf://datasets/owner/name/*.parquet")
    ('a', 'name')
    """
    if address.startswith(HUB):
        found = _HUB_ADDRESS.fullmatch(address)
        return found["repository"].rpartition("/")[2] if found else ""
    parts = _split(address)
    return inner_name(PurePosixPath(unquote(parts.path))).stem or parts.hostname or ""


def web_address(given: str) -> str:
    """A web address without its fragment; raises UsageError for one that leads nowhere."""
    parts = _split(given)
    if not parts.hostname or not given.isprintable() or " " in given:
        raise UsageError(f"'{shown(given)}' is not a web address.", "Write it as https://example.com/book.txt.")
    return parts._replace(scheme=parts.scheme.lower(), fragment="").geturl()


def hub_place(address: str) -> HubPlace:
    """The place on the Hub that an address names; raises UsageError for that of a model, and for an invalid one."""
    found = _HUB_ADDRESS.fullmatch(address)
    if not found or "//" in address[len(HUB) :] or ".." in address.split("/"):
        hint = "Write it as hf://datasets/owner/name, or hf://datasets/owner/name@revision/path/*.parquet."
        raise UsageError(f"'{address}' is not an address of files on the Hub.", hint)
    if _is_model(address):
        hint = f"A dataset is hf://datasets/owner/name. A model's weights are for `train.init_from = {address}`."
        raise UsageError(f"'{address}' is the address of a model, not of text.", hint)
    path = (found["path"] or "").strip("/")
    return HubPlace(_KINDS[found["kind"]], found["repository"], found["revision"], path)


def refuse_other_schemes(given: str) -> None:
    """Raise UsageError for an address of another kind, such as ftp://example.com/book.txt."""
    if not given.lower().startswith((*WEB, HUB)):
        hint = "Use an address that begins with https://, http:// or hf://, or download the text first."
        raise UsageError(f"'{shown(given)}' is an address that cannot be read.", hint)


def _is_model(address: str) -> bool:
    """Whether an address on the Hub names a whole repository of a model, as `hf://owner/name` does."""
    found = _HUB_ADDRESS.fullmatch(address)
    return found is not None and found["kind"] in (None, "models") and not (found["path"] or "").strip("/")


def _split(address: str) -> SplitResult:
    try:
        return urlsplit(address)
    except ValueError:
        raise UsageError(f"'{address.rpartition('@')[2]}' is not a web address.", "Check the address.") from None
