"""One export, from a model folder to another tool's file or folder."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, cast, get_args

from gptcli.checkpoints.model_folder import read_model_config
from gptcli.errors import StorageError, UsageError
from gptcli.exports import hf_folder, ollama
from gptcli.exports.exported import Exported
from gptcli.exports.gguf_file import MAGIC, export_gguf
from gptcli.exports.hf_folder import HfType, export_hf
from gptcli.exports.ollama import export_ollama
from gptcli.exports.place import require_free_file, require_free_folder
from gptcli.generation.loaded_model import open_model
from gptcli.interop.gguf import GgufType, require_gguf
from gptcli.interop.gguf_tensors import gguf_architecture
from gptcli.interop.hub import model_name

Format = Literal["gguf", "ollama", "hf"]


def default_path(source: Path, target: Format) -> Path:
    """Where an export is written unless told otherwise, in the working directory: book.gguf, book-ollama or book-hf."""
    name = model_name(source)
    return Path(f"{name}.gguf") if target == "gguf" else Path(f"{name}-{target}")


def export_model(
    source: Path, target: Format, type: GgufType, out: Path | None, checkpoint: str, *, force: bool
) -> Exported:
    """Open the model in `source` and write it as `target`, complete or not at all.

    What can be refused is refused before the weights are read. Raises UsageError, StorageError, ExportError, and what
    `open_model` raises.
    """
    path = out or default_path(source, target)
    config = read_model_config(source)
    _require(target, type, path, force=force)
    if target != "hf":
        gguf_architecture(config)  # refuses what llama.cpp does not know
    if path.resolve() == source.resolve():
        raise StorageError(f"'{path}' is the model itself.", "Choose another place with --out.")
    folder = open_model(source, checkpoint)
    if target == "gguf":
        return export_gguf(folder, path, type)
    if target == "ollama":
        return export_ollama(folder, path, type, force=force)
    return export_hf(folder, path, cast(HfType, type), force=force)


def _require(target: Format, type: GgufType, path: Path, *, force: bool) -> None:
    """Raise UsageError, ExportError or StorageError for what cannot be written."""
    if target == "hf":
        if type not in get_args(HfType):
            raise UsageError(f"--to hf has no {type}.", f"Use {', '.join(get_args(HfType))}, or another format.")
        require_free_folder(path, hf_folder.NAMES, force=force)
        return
    require_gguf()
    if target == "ollama":
        require_free_folder(path, ollama.NAMES, force=force)
    else:
        require_free_file(path, MAGIC, force=force)
