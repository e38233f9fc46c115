"""One GGUF file, which llama.cpp and most tools that stand on it open."""

from __future__ import annotations

import shlex
from pathlib import Path

from gptcli.exports.exported import Exported
from gptcli.generation.loaded_model import LoadedModel
from gptcli.interop.gguf import GgufFile, GgufType, gguf_file
from gptcli.interop.gguf_vocabulary import gguf_vocabulary
from gptcli.interop.hub import model_name
from gptcli.storage import write_file

MAGIC = b"GGUF"
"""What a GGUF file begins with."""


def as_gguf(folder: LoadedModel, type: GgufType) -> GgufFile:
    """The model as a GGUF file, named after its folder. Raises ExportError if GGUF cannot hold it."""
    rows = folder.model.config.vocab_size
    vocabulary = gguf_vocabulary(folder.tokenizer, rows, folder.start_id, folder.end_id)
    return gguf_file(folder.model, vocabulary, model_name(folder.path), type)


def export_gguf(folder: LoadedModel, path: Path, type: GgufType) -> Exported:
    """Write the model to `path`."""
    file = as_gguf(folder, type)
    write_file(path, file.pieces())
    return Exported(path, type, file.kept_f16, f"llama-server -m {shlex.quote(str(path))}")
