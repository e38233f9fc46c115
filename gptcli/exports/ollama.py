"""A folder from which Ollama makes a model: the weights as GGUF, and a Modelfile.

Ollama thinks in chats. The template hands the prompt to the model as it is, so that the model continues it.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from gptcli.config import SamplingConfig
from gptcli.exports.exported import Exported
from gptcli.exports.gguf_file import as_gguf
from gptcli.generation.loaded_model import LoadedModel
from gptcli.interop.gguf import GgufType
from gptcli.interop.hub import model_name
from gptcli.storage import new_directory
from gptcli.tokenizer.document import END_OF_TEXT

WEIGHTS = "model.gguf"
MODELFILE = "Modelfile"
NAMES = (WEIGHTS, MODELFILE)


def export_ollama(folder: LoadedModel, path: Path, type: GgufType, *, force: bool) -> Exported:
    """Make the folder at `path`."""
    file = as_gguf(folder, type)
    with new_directory(path, manifest=None, replace=force) as new:
        new.write(WEIGHTS, file.pieces())
        new.write(MODELFILE, modelfile(folder).encode())
    name = ollama_name(model_name(folder.path))
    hint = f"ollama create {name} -f {shlex.quote(str(path / MODELFILE))} && ollama run {name} 'Once upon'"
    return Exported(path, type, file.kept_f16, hint)


def modelfile(folder: LoadedModel) -> str:
    """The Modelfile: complete the prompt, and choose tokens as `gptcli sample` does by default.

    A model that was not trained to end goes on for ever, and Ollama sets no limit, so there is one here.
    """
    ours = SamplingConfig()
    parameters: dict[str, object] = {
        "num_ctx": folder.model.config.block_size,
        "num_predict": ours.max_new_tokens,
        "temperature": ours.temperature,
        "top_k": ours.top_k,
        "top_p": ours.top_p,
        "min_p": ours.min_p,
        "repeat_penalty": ours.repetition_penalty,
    }
    if folder.end_id is not None and folder.end_id == folder.tokenizer.end_of_text:
        parameters["stop"] = f'"{END_OF_TEXT}"'
    lines = [f"PARAMETER {key} {value}" for key, value in parameters.items()]
    return "\n".join([f"FROM ./{WEIGHTS}", 'TEMPLATE """{{ .Prompt }}"""', *lines]) + "\n"


def ollama_name(name: str) -> str:
    """A name that Ollama takes: `My Book` → my-book."""
    return re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._") or "model"
