"""Models on the Hugging Face Hub: their names `owner/name`, addresses `hf://owner/name@revision`, and downloads."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from gptcli.dataset.remote.addresses import is_text_address
from gptcli.dataset.remote.hub import why_not
from gptcli.dataset.sources import refuse_address
from gptcli.errors import ModelFolderError, UsageError
from gptcli.paths import given_path

SCHEME = "hf://"
FILES = (
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt"),
    *("model*.safetensors", "model.safetensors.index.json", "README.md"),
)
"""Files to download from the top folder of a repository, as patterns of `fnmatch`."""

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
        if is_text_address(address):
            hint = f"It is an address of text, to train on. {hint}"
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


def local_model(thing: str | Path, *, quiet: bool = False) -> Path:
    """The local folder of a model: a path stays as it is, an `hf://` address is downloaded unless it is cached.

    The folder is a snapshot in the cache of huggingface_hub (`HF_HOME`): each file is downloaded once, and cached
    models open without a network. Pickled weights are never downloaded. On a terminal the download shows its progress,
    unless `quiet`. Raises UsageError for an invalid address, and ModelFolderError if the download fails.
    """
    if not isinstance(thing, str) or not is_address(thing):
        refuse_address(str(thing))
        return given_path(thing)
    repository, revision = split_address(thing)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # of the HTTP library that it uses
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if quiet or not sys.stderr.isatty():
        disable_progress_bars()
    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=list(FILES), library_name="gptcli"))
    except (HTTPError, OSError) as error:
        raise ModelFolderError(*why_not(error, thing, "model", revision)) from error
