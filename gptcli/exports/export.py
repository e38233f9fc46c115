"""Exporting a model: check the request, write the file or folder, upload it if asked."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from gptcli.checkpoints.finding import find_model
from gptcli.checkpoints.model_folder import read_model_config
from gptcli.config import ModelConfig
from gptcli.errors import StorageError, UsageError
from gptcli.exports.gguf import GGUF_MAGIC, MODELFILE, OLLAMA_FILES, ollama_name, write_gguf, write_ollama_folder
from gptcli.exports.hf_folder import HF_FILES, HfType, write_hf_folder
from gptcli.exports.upload import upload_folder
from gptcli.generation.loaded_model import LoadedModel, open_model
from gptcli.interop.gguf import GgufType, require_gguf
from gptcli.interop.gguf_tensors import gguf_architecture
from gptcli.interop.hub import is_repository, model_name
from gptcli.interop.huggingface import compatibility_note
from gptcli.paths import output_path
from gptcli.storage import disk_errors, is_occupied, refuse_impossible_place

Format = Literal["gguf", "ollama", "hf"]

_ELSEWHERE = "Choose another place with `out`."


@dataclass(frozen=True)
class Exported:
    """The file or folder that an export wrote."""

    model: Path
    """The folder of the model."""
    path: Path
    type: GgufType
    """How the matrices are stored."""
    kept_f16: list[str]
    """Matrices that could not be quantized and are stored as f16."""
    hint: str
    """The command that opens the export."""
    notes: tuple[str, ...] = ()
    """Sentences for the user: which weights replaced missing ones, and whether only gptcli can open the model."""
    url: str | None = None
    """Address of the uploaded folder."""

    @property
    def bytes(self) -> int:
        """Size of the file, or of the files in the folder."""
        files = [self.path] if self.path.is_file() else list(self.path.iterdir())
        return sum(file.stat().st_size for file in files)


def export(
    model: str | Path | None,
    to: Format,
    *,
    type: GgufType = "f32",
    out: str | Path | None = None,
    checkpoint: str = "best",
    force: bool = False,
    push: str | None = None,
    quiet: bool = False,
) -> Exported:
    """Write a model as a GGUF file, an Ollama folder or a Hugging Face folder, complete or not at all.

    `model` is a model folder, the name of a run, an `hf://` address, whose download shows its progress unless `quiet`,
    or None for the newest run. `out` defaults to a name in the working directory: book.gguf, book-ollama or book-hf.
    `force` replaces an earlier export. `push` uploads a Hugging Face folder to the repository `owner/name`. Everything
    that can be refused is refused before the weights are read. Raises UsageError, StorageError, ExportError, and the
    errors of `open_model`.
    """
    _require_options(to, type, push)
    source = find_model(model, quiet=quiet)
    path = _default_path(source, to) if out is None else output_path(out)
    if path.resolve() == source.resolve():
        raise StorageError(f"'{path}' is the model itself.", _ELSEWHERE)
    config = read_model_config(source)
    if to != "hf":
        require_gguf()
        gguf_architecture(config)  # refuses models that llama.cpp does not support
    _require_place(path, to, force=force)
    loaded = open_model(source, checkpoint)
    kept_f16 = _write(loaded, path, to, type, force=force)
    incompatible = compatibility_note(config) if to == "hf" else ""
    notes = loaded.notes + ((incompatible,) if incompatible else ())
    url = None if push is None else upload_folder(path, push)
    return Exported(source, path, type, kept_f16, _how_to_open(path, to, source, config), notes, url)


def _write(loaded: LoadedModel, path: Path, to: Format, type: GgufType, *, force: bool) -> list[str]:
    """Write the export; returns the matrices that stay f16."""
    if to == "gguf":
        return write_gguf(loaded, path, type)
    if to == "ollama":
        return write_ollama_folder(loaded, path, type, force=force)
    write_hf_folder(loaded, path, cast(HfType, type), force=force)
    return []


def _default_path(source: Path, to: Format) -> Path:
    name = model_name(source)
    return Path(f"{name}.gguf") if to == "gguf" else Path(f"{name}-{to}")


def _how_to_open(path: Path, to: Format, source: Path, config: ModelConfig) -> str:
    quoted = shlex.quote(str(path))
    if to == "gguf":
        return f"llama-server -m {quoted}"
    if to == "ollama":
        name = ollama_name(model_name(source))
        return f"ollama create {name} -f {shlex.quote(str(path / MODELFILE))} && ollama run {name} 'Once upon'"
    transformers = "" if compatibility_note(config) else f", or transformers' from_pretrained({str(path)!r})"
    return f"gptcli sample {quoted}{transformers}"


def _require_options(to: str, type: str, push: str | None) -> None:
    """Raise UsageError for options that are unknown or do not fit together."""
    _require_one_of("to", to, Format)
    _require_one_of("type", type, GgufType)
    if to == "hf" and type not in get_args(HfType):
        raise UsageError(f"`type = {type}` is not available with `to = hf`.", f"Use {_one_of(HfType)}.")
    if push is not None:
        if to != "hf":
            raise UsageError("`push` uploads a Hugging Face folder.", "Use it with `to = hf`.")
        if not is_repository(push):
            raise UsageError(f"'{push}' is not the name of a repository on the Hub.", "Write it as owner/name.")


def _require_one_of(setting: str, value: str, choices: Any) -> None:
    if value not in get_args(choices):
        raise UsageError(f"`{setting}` cannot be {value!r}.", f"Use {_one_of(choices)}.")


def _one_of(choices: Any) -> str:
    *others, last = get_args(choices)
    return f"{', '.join(others)} or {last}"


def _require_place(path: Path, to: Format, *, force: bool) -> None:
    """Raise StorageError if the export cannot be written at `path`.

    `force` replaces only an earlier export, so that a mistyped path never deletes a text, a run or a home folder.
    """
    if to != "gguf":
        refuse_impossible_place(path)
    with disk_errors(path):
        if problem := _foreign(path, to):
            raise StorageError(f"{problem}, so it was not replaced.", _ELSEWHERE)
        if to == "gguf":  # a file, for which a folder of this name is in the way
            refuse_impossible_place(path)
            path.parent.mkdir(parents=True, exist_ok=True)
    if is_occupied(path) and not force:
        raise StorageError(f"'{path}' already exists.", "Choose another place with `out`, or replace it with `force`.")


def _foreign(path: Path, to: Format) -> str:
    """How `path` differs from an earlier export; "" for an earlier export, or if there is nothing."""
    if not path.exists() or (to == "gguf" and _is_gguf(path)):
        return ""
    if path.is_dir() == (to == "gguf"):
        return f"'{path}' is a {'folder' if path.is_dir() else 'file'}"
    if to == "gguf":
        return f"'{path}' is not an earlier export"
    names = OLLAMA_FILES if to == "ollama" else HF_FILES
    foreign = sorted(entry.name for entry in path.iterdir() if entry.name not in names)
    return f"'{path}' contains '{foreign[0]}', which no export wrote" if foreign else ""


def _is_gguf(path: Path) -> bool:
    if not path.is_file():  # reading from a pipe would block
        return False
    with open(path, "rb") as file:
        return file.read(len(GGUF_MAGIC)) == GGUF_MAGIC
