"""The exception tree: every failure that a user can cause or meet.

    GptcliError                exit 1, expected failure
    ├── UsageError             exit 2, wrong options
    │   └── ConfigError        exit 2, a config key or value that cannot be
    ├── CorpusError            text that cannot be read or used
    ├── TokenizerError         a tokenizer file, or text that it cannot encode
    ├── DatasetError           a dataset folder
    ├── ModelFolderError       a run folder, checkpoint or Hugging Face folder
    ├── ExportError            another tool's format that cannot hold the model, or an upload
    ├── StorageError           disk full, read-only, a foreign file in the way
    ├── DeviceError            a device or precision that is not here
    ├── OutOfMemoryError       more memory than there is
    ├── NonFiniteError         exit 3, the loss became NaN or infinite
    └── Interrupted            exit 129, 130 or 143, stopped by a signal after saving

Each carries one human sentence and a hint of what to do next. The command line turns them into text and an exit code
in one place; nothing below it prints or exits.
"""

from __future__ import annotations

import signal

MAX_MESSAGE_CHARACTERS = 2000


def reason_of(error: OSError) -> str:
    """What the operating system says, for the middle of a sentence: "no space left on device"."""
    return (error.strerror or str(error)).lower()


def first_line(error: Exception) -> str:
    """What a library's error says, where it may say pages; its name if it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def clause(sentence: str) -> str:
    """A sentence as a part of another one: "The file is cut off." → "the file is cut off"."""
    return sentence[:1].lower() + sentence[1:].rstrip(".")


class GptcliError(Exception):
    """An expected failure: `message` is one human sentence, `hint` says what to do next ("" for none)."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        # What a stranger's file puts into a sentence may be endless.
        message = message if len(message) <= MAX_MESSAGE_CHARACTERS else f"{message[:MAX_MESSAGE_CHARACTERS]}…"
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(GptcliError):
    """Options that contradict each other or are out of range."""

    exit_code = 2


class ConfigError(UsageError):
    """A config file, setting or flag with an unknown key or an impossible value."""


class CorpusError(GptcliError):
    """Text that is missing, empty, not UTF-8, or too short."""


class TokenizerError(GptcliError):
    """A tokenizer that cannot be read, or text outside its alphabet."""


class DatasetError(GptcliError):
    """A dataset folder that is incomplete, altered, or of another format."""


class ModelFolderError(GptcliError):
    """A run folder, checkpoint or Hugging Face folder that cannot be opened."""


class ExportError(GptcliError):
    """A model that another tool's format cannot hold, a missing package, or an upload that failed."""


class StorageError(GptcliError):
    """The disk refused: full, read-only, or something else stands where output should go."""


class DeviceError(GptcliError):
    """A device or number format that this machine does not have."""


class OutOfMemoryError(GptcliError):
    """The work needs more memory than the device has free."""


class NonFiniteError(GptcliError):
    """The loss or a gradient became NaN or infinite; the last good checkpoint is kept."""

    exit_code = 3


class Interrupted(GptcliError):  # noqa: N818 - being told to stop is not an error
    """Stopped by a signal, after saving. The exit code is 129 for SIGHUP, 130 for SIGINT, 143 for SIGTERM."""

    def __init__(self, message: str, hint: str = "", signum: int = signal.SIGINT) -> None:
        super().__init__(message, hint)
        self.exit_code = 128 + signum
