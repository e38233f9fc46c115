"""Uploads to the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path

from gptcli.dataset.remote.hub import http_status
from gptcli.errors import ExportError, first_line

_DOCUMENTATION = "https://huggingface.co/docs/hub/security-tokens"


def upload_folder(folder: Path, repository: str) -> str:
    """Upload the files of `folder` to the repository `owner/name` in one commit; returns the repository's address.

    A new repository is private, because a model can recite the text that it was trained on. huggingface_hub takes the
    token from HF_TOKEN or from the file that `hf auth login` writes. Raises ExportError.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]  # of the HTTP library that it uses
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    api = HfApi(library_name="gptcli")
    try:
        api.create_repo(repository, private=True, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=folder, commit_message="Upload by gptcli export")
    except (HTTPError, OSError) as error:
        raise _explained(error, repository) from error
    return f"{api.endpoint}/{repository}"


def _explained(error: Exception, repository: str) -> ExportError:
    """A failed upload as an error of ours."""
    from huggingface_hub.errors import OfflineModeIsEnabled

    status = http_status(error)
    if status in (401, 403):
        return ExportError(
            f"The Hub does not allow you to write to '{repository}' (status {status}).",
            f"Log in with `hf auth login`, or set HF_TOKEN to a token with write access: {_DOCUMENTATION}",
        )
    if status is not None:
        reason = getattr(error, "server_message", None) or f"status {status}"
        return ExportError(
            f"The Hub refused the upload to '{repository}': {reason}.", "Run the command again later, with `force`."
        )
    if isinstance(error, OfflineModeIsEnabled):
        return ExportError(
            "Nothing was uploaded, because HF_HUB_OFFLINE is set.", "Unset it, and run the command again with `force`."
        )
    return ExportError(
        f"The Hub could not be reached: {first_line(error)}.",
        "Check the network, and run the command again with `force`.",
    )
