"""The exception tree: every failure that a user can cause or meet.

    GptcliError                exit 1, expected failure
    ├── UsageError             exit 2, wrong arguments
    │   └── ConfigError        exit 2, an unknown config key or a bad value
    ├── CorpusError            text that cannot be read or used
    ├── TokenizerError         a bad tokenizer file, or text that it cannot encode
    ├── DatasetError           a bad dataset folder
    ├── ModelFolderError       a bad run folder, checkpoint or Hugging Face folder
    ├── ExportError            a model that a format cannot hold, or a failed upload
    ├── StorageError           disk full or read-only, or another file in the way
    ├── ClusterError           a Ray cluster that cannot be reached or used
    ├── MissingPackageError    an optional package that is not installed
    ├── DeviceError            a device or dtype that this machine does not have
    ├── OutOfMemoryError       too little memory
    ├── NonFiniteError         exit 3, the loss became NaN or infinite
    ├── LostRank               exit 75, a process of a training on several is gone: run the same command again
    └── Interrupted            exit 129, 130 or 143, stopped by a signal after saving

Each has a message and a hint, which name settings in backticks: `train.micro_batch_size = 4`, `out`. The command line
translates settings into options, and errors into text and an exit code. Nothing below it prints or exits.
"""

from __future__ import annotations

import signal

MAX_MESSAGE_CHARACTERS = 2000
OUT_OF_MEMORY = ("out of memory", "allocate memory", "_STATUS_ALLOC_FAILED")
"""Words of torch's messages about a lack of memory."""


def reason_of(error: OSError) -> str:
    """The reason of the operating system, in lower case: "no space left on device"."""
    return (error.strerror or str(error)).lower()


def first_line(error: Exception) -> str:
    """First line of an error's text, which may have pages; the name of its class if it has none."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether Python or torch failed for lack of memory, on the host or on a device.

    Only CUDA's caching allocator has an exception of its own for it. The CPU, MPS, the CUDA driver and the libraries
    that allocate by themselves, such as cuBLAS, raise a RuntimeError with the words below.
    """
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or any(words in str(error) for words in OUT_OF_MEMORY)


def install_hint(extra: str) -> str:
    """The hint for an optional package that is not installed."""
    return f"Install it: pip install 'gptcli[{extra}]'"


def clause(sentence: str) -> str:
    """A sentence as a clause: "The file is cut off." → "the file is cut off"."""
    return sentence[:1].lower() + sentence[1:].rstrip(".")


def counted(count: int, noun: str) -> str:
    """A number with its noun: "1 token", "2,000 tokens"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size(count: int) -> str:
    """1_500_000 → "1.5 MB"."""
    return with_prefix(count, "B")


def duration(seconds: float) -> str:
    """45 → "45 s", 165 → "2 min 45 s", 24_000 → "6 h 40 min", 200_000 → "2 days 7 h"."""
    units = (("days", 86_400), ("h", 3600), ("min", 60), ("s", 1))
    rest = max(1, round(seconds))
    first = next(place for place, (_, length) in enumerate(units) if rest >= length)
    parts = []
    for name, length in units[first : first + 2]:
        count, rest = divmod(rest, length)
        parts.append(f"{count:,} {'day' if count == 1 and name == 'days' else name}" if count else "")
    return " ".join(filter(None, parts))


def with_prefix(count: int, unit: str) -> str:
    """A number with three digits and the SI prefix of its size: 2_500_000, "FLOP" → "2.5 MFLOP"."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= factor:
            number = f"{count / factor:.3g}" if count < 999.5 * factor else f"{count / factor:,.0f}"
            return f"{number} {prefix}{unit}"
    return f"{count:,} {unit}"


class GptcliError(Exception):
    """An expected failure: `message` is one sentence, `hint` says what to do next ("" for none)."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        # A message may quote a file, which may have a very long line.
        message = message if len(message) <= MAX_MESSAGE_CHARACTERS else f"{message[:MAX_MESSAGE_CHARACTERS]}…"
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.unheard = False
        """Whether a rank of a training on several could not hand this to rank 0, which shows all errors."""


class UsageError(GptcliError):
    """Arguments that contradict each other or are out of range."""

    exit_code = 2


class ConfigError(UsageError):
    """An unknown config key, or a value that it cannot have."""


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
    """A full or read-only disk, or another file or folder at the place of the output."""


class ClusterError(GptcliError):
    """A Ray cluster that cannot be reached, or whose workers cannot do the work."""


class MissingPackageError(GptcliError):
    """An optional package that a setting needs is not installed."""

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(f"{what} needs the package {package}.", install_hint(extra))


class DeviceError(GptcliError):
    """A device or dtype that this machine does not have."""


class OutOfMemoryError(GptcliError):
    """Not enough free memory on the device."""


class NonFiniteError(GptcliError):
    """The loss or a gradient became NaN or infinite; the last good checkpoint is kept."""

    exit_code = 3


class LostRank(GptcliError):  # noqa: N818 - it is the others that report it
    """A process of a training on several failed unexpectedly or is gone."""

    exit_code = 75
    """EX_TEMPFAIL of sysexits.h: the same command may succeed."""

    def __init__(
        self, message: str, hint: str = "Run the same command again: it resumes from the last checkpoint."
    ) -> None:
        super().__init__(message, hint)


class Interrupted(GptcliError):  # noqa: N818 - not an error
    """Stopped by a signal, after saving. The exit code is 129 for SIGHUP, 130 for SIGINT, 143 for SIGTERM."""

    def __init__(self, message: str, hint: str = "", signum: int = signal.SIGINT) -> None:
        super().__init__(message, hint)
        self.exit_code = 128 + signum
