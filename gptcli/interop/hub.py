"""Names of models on the Hugging Face Hub: `owner/name`, and the address `hf://owner/name@revision`."""

from __future__ import annotations

import re
from pathlib import Path

from gptcli.errors import UsageError

SCHEME = "hf://"

_SNAPSHOT = re.compile(r"models--(.+)/snapshots/[^/]+/?$")
"""The path of a repository in huggingface_hub's cache."""


def is_address(thing: str) -> bool:
    """Whether `thing` is an address on the Hub; everything else is a path."""
    return thing.startswith(SCHEME)


def split_address(address: str) -> tuple[str, str | None]:
    """The repository and the revision of an address; raises UsageError.

    >>> split_address("hf://openai-community/gpt2@main")
    ('openai-community/gpt2', 'main')
    """
    repository, at, revision = address.removeprefix(SCHEME).partition("@")
    if not is_repository(repository) or (at and not revision):
        hint = "Write it as hf://owner/name or hf://owner/name@revision."
        raise UsageError(f"'{address}' is not an address of a model on the Hub.", hint)
    return repository, revision or None


def is_repository(name: str) -> bool:
    """Whether `name` is a valid repository name, owner/name."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # documented there

    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return "/" in name


def model_name(folder: Path) -> str:
    """The name of the model in a folder: `runs/book/` → book; for a downloaded model its repository's name."""
    snapshot = _SNAPSHOT.search(folder.absolute().as_posix())
    return snapshot[1].split("--")[-1] if snapshot else folder.resolve().name
