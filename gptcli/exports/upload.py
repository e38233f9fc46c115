"""Uploading a folder to the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path

from gptcli.errors import ExportError, UsageError, first_line
from gptcli.interop.hub import is_repository

_DOCUMENTATION = "https://huggingface.co/docs/hub/security-tokens"


def require_repository_name(repository: str) -> None:
    """Raise UsageError for what cannot be `owner/name`."""
    if not is_repository(repository):
        raise UsageError(f"'{repository}' cannot be a repository on the Hub.", "Write it as owner/name.")


def push_folder(folder: Path, repository: str) -> str:
    """Upload the files of `folder` to the model repository `owner/name` as one commit; its address.

    A repository that is not there yet is made, private: a model can recite the text that it was trained on. The
    token comes from where huggingface_hub looks for it: HF_TOKEN, or the file that `hf auth login` writes. Raises
    ExportError.
    """
    from huggingface_hub import HfApi

    # HTTPError is that of the HTTP library which this version of huggingface_hub uses.
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]
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
    from huggingface_hub.errors import OfflineModeIsEnabled

    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if status in (401, 403):
        return ExportError(
            f"The Hub does not let you write to '{repository}' (status {status}).",
            f"Log in with `hf auth login` or set HF_TOKEN to a token that may write there: {_DOCUMENTATION}",
        )
    if status is not None:
        reason = getattr(error, "server_message", None) or f"status {status}"
        return ExportError(
            f"The Hub refused the upload to '{repository}': {reason}.", "Run the command again later, with --force."
        )
    if isinstance(error, OfflineModeIsEnabled):
        return ExportError(
            "HF_HUB_OFFLINE is set, so that nothing is uploaded.", "Unset it, and run the command again with --force."
        )
    return ExportError(
        f"The Hub could not be reached: {first_line(error)}.",
        "Check the network, and run the command again with --force.",
    )
