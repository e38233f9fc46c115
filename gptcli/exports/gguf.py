"""Writing a GGUF file for llama.cpp, or an Ollama folder: the GGUF file and a Modelfile."""

from __future__ import annotations

import re
from pathlib import Path

from gptcli.config import SamplingConfig
from gptcli.generation.loaded_model import LoadedModel
from gptcli.interop.gguf import GgufFile, GgufType, gguf_file
from gptcli.interop.gguf_vocabulary import gguf_vocabulary
from gptcli.interop.hub import model_name
from gptcli.storage import new_directory, write_file
from gptcli.tokenizer.document import END_OF_TEXT

GGUF_MAGIC = b"GGUF"
"""The first bytes of a GGUF file."""
WEIGHTS = "model.gguf"
MODELFILE = "Modelfile"
OLLAMA_FILES = (WEIGHTS, MODELFILE)


def write_gguf(loaded: LoadedModel, path: Path, type: GgufType) -> list[str]:
    """Write a GGUF file; returns the matrices that stay f16. Raises ExportError if GGUF cannot hold the model."""
    file = _gguf_file(loaded, type)
    write_file(path, file.pieces())
    return file.kept_f16


def write_ollama_folder(loaded: LoadedModel, path: Path, type: GgufType, *, force: bool) -> list[str]:
    """Write an Ollama folder; returns the matrices that stay f16. Raises ExportError if GGUF cannot hold the model."""
    file = _gguf_file(loaded, type)
    with new_directory(path, manifest=None, replace=force) as new:
        new.write(WEIGHTS, file.pieces())
        new.write(MODELFILE, modelfile(loaded).encode())
    return file.kept_f16


def modelfile(loaded: LoadedModel) -> str:
    """The Modelfile: continue the prompt instead of chatting, with the defaults of `gptcli sample`.

    `num_predict` is needed because a model without an end of text never stops, and Ollama has no limit of its own.
    """
    defaults = SamplingConfig()
    parameters: dict[str, object] = {
        "num_ctx": loaded.model.config.block_size,
        "num_predict": defaults.max_new_tokens,
        "temperature": defaults.temperature,
        "top_k": defaults.top_k,
        "top_p": defaults.top_p,
        "min_p": defaults.min_p,
        "repeat_penalty": defaults.repetition_penalty,
    }
    if loaded.end_id is not None and loaded.end_id == loaded.tokenizer.end_of_text:
        parameters["stop"] = f'"{END_OF_TEXT}"'
    lines = [f"PARAMETER {key} {value}" for key, value in parameters.items()]
    return "\n".join([f"FROM ./{WEIGHTS}", 'TEMPLATE """{{ .Prompt }}"""', *lines]) + "\n"


def ollama_name(name: str) -> str:
    """A name that Ollama accepts: `My Book` → my-book."""
    return re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._") or "model"


def _gguf_file(loaded: LoadedModel, type: GgufType) -> GgufFile:
    """The content of the GGUF file, named after the model's folder."""
    rows = loaded.model.config.vocab_size
    vocabulary = gguf_vocabulary(loaded.tokenizer, rows, loaded.start_id, loaded.end_id)
    return gguf_file(loaded.model, vocabulary, model_name(loaded.path), type)
