"""The weights of a model folder, in one safetensors file or in shards with an index.

An index (`model.safetensors.index.json`) names the file of each tensor. Folders are of unknown origin: its file names
must be plain, so that none leads out of the folder, and index and files must agree exactly. Nothing is read that is far
larger than the model which config.json describes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from gptcli.checkpoints import names
from gptcli.checkpoints.small_files import read_json
from gptcli.checkpoints.tensors import read_header, read_tensors
from gptcli.config import ModelConfig
from gptcli.errors import ModelFolderError
from gptcli.model.cost import parameter_count
from gptcli.untrusted import is_plain_name

_HINT = "Restore the folder from its source."


def has_weights(folder: Path) -> bool:
    """Whether a folder holds weights that can be opened."""
    return any((folder / name).exists() for name in (names.MODEL, names.MODEL_INDEX))


def weights_metadata(step: int | None, val_loss: float | None = None) -> dict[str, str]:
    """Metadata for the header of weights; None: not known. `stored_step` and `stored_loss` read it."""
    known = {"step": step, "val_loss": val_loss}
    return {key: repr(value) for key, value in known.items() if value is not None}


def stored_step(metadata: Mapping[str, str]) -> int | None:
    """The training step that the header of weights names, if it names one."""
    step = metadata.get("step", "")
    return int(step) if re.fullmatch("[0-9]{1,15}", step) else None


def stored_loss(metadata: Mapping[str, str]) -> float | None:
    """The validation loss that the header of weights names, if it names one: nats per token."""
    try:
        loss = float(metadata.get("val_loss", ""))
    except ValueError:
        return None
    return loss if math.isfinite(loss) else None


def read_weights(folder: Path, config: ModelConfig) -> tuple[dict[str, Tensor], dict[str, str], Path]:
    """The tensors of a model folder as they are stored, the header's metadata, and the file to name in errors.

    `config` is the model that they should make. If there is a single file, an index beside it is ignored.
    Raises ModelFolderError.
    """
    single, index = folder / names.MODEL, folder / names.MODEL_INDEX
    if not single.exists() and index.exists():
        return _read_shards(folder, index, config), {}, index
    _require_size_of([single], config, single)
    tensors, metadata = read_tensors(single)
    return tensors, metadata, single


def _require_size_of(files: list[Path], config: ModelConfig, where: Path) -> None:
    """Raise ModelFolderError if the files hold far more numbers than the model has: before they take any memory."""
    numbers, expected = sum(read_header(file).numbers for file in files), parameter_count(config)
    masks = config.n_layer * (config.block_size**2 + 1)  # old files store them
    if numbers > 2 * expected + masks:  # twice: an embedding may be stored as the head again
        message = f"'{where}' holds {numbers:,} numbers, but its config.json describes a model of {expected:,}."
        raise ModelFolderError(message, _HINT)


def _read_shards(folder: Path, index: Path, config: ModelConfig) -> dict[str, Tensor]:
    weight_map = _weight_map(read_json(index), index)
    files = sorted(set(weight_map.values()))
    _require_size_of([folder / file for file in files], config, index)
    tensors: dict[str, Tensor] = {}
    problems: list[str] = []
    for file in files:
        stored, _ = read_tensors(folder / file)
        listed = {name for name, where in weight_map.items() if where == file}
        problems += [f"{file} lacks {name}" for name in listed - stored.keys()]
        problems += [f"{file} holds {name} too" for name in stored.keys() - listed]
        tensors |= stored
    if problems:
        raise ModelFolderError(f"'{index}' does not fit its files: {'; '.join(sorted(problems))}.", _HINT)
    return tensors


def _weight_map(values: dict[str, Any], index: Path) -> dict[str, str]:
    """Tensor names and their files; raises ModelFolderError if it is no such table, or a file has no plain name."""
    weight_map = values.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelFolderError(f"'{index}' has no weight_map.", _HINT)
    for file in weight_map.values():
        if not isinstance(file, str) or not file.endswith(".safetensors") or not is_plain_name(file):
            raise ModelFolderError(f"'{index}' names {file!r}, which is no safetensors file beside it.", _HINT)
    return weight_map
