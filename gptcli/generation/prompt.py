"""The prompt: read from a file or standard input, and turned into ids."""

from __future__ import annotations

from pathlib import Path

from gptcli.checkpoints.model_folder import LoadedModel
from gptcli.dataset.plain_text import read_text
from gptcli.dataset.sources import find_texts
from gptcli.errors import CorpusError, UsageError
from gptcli.tokenizer.bytelevel import Unknown


def read_prompt(path: str) -> str:
    """The text of a prompt file, or of standard input for `-`, exactly as it is but for a byte-order mark.

    Raises CorpusError, with file and byte offset, for what is not UTF-8, and for a folder.
    """
    if Path(path).is_dir():
        raise CorpusError(f"'{path}' is a folder, not a prompt.", "Name a text file, or - for standard input.")
    with find_texts([path], ()) as files:
        return "".join(read_text(files[0], lambda read: None))


def require_unicode(text: str, flag: str) -> str:
    """The text, unless the command line held bytes that are not UTF-8, which Python keeps as lone surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise UsageError(f"{flag} is not valid UTF-8.", "Set the terminal to UTF-8, or use --prompt-file.") from None
    return text


def prompt_ids(folder: LoadedModel, text: str, unknown: Unknown) -> list[int]:
    """The ids that a text starts from; for a text without any, the model's start token.

    Raises TokenizerError, which names them, for characters that the tokenizer does not know, unless `unknown` is skip.
    """
    return folder.tokenizer.encode(text, unknown=unknown) or [folder.start_id]
