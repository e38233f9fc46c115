"""The run folder: a Hugging Face model folder that also remembers how it was made.

It holds no absolute path and nothing outside it is needed to sample from it. It knows its data by name and fingerprint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from gptcli.checkpoints import names
from gptcli.checkpoints.checkpoint import Progress
from gptcli.checkpoints.model_card import model_card
from gptcli.checkpoints.small_files import RESTORE, read_json
from gptcli.checkpoints.tensors import read_metadata, tensor_file
from gptcli.checkpoints.weights import stored_loss, stored_step, weights_metadata
from gptcli.config import ModelConfig, RunConfig, load_config_file, parse_config, to_toml
from gptcli.dataset.folder import Dataset
from gptcli.errors import ConfigError, ModelFolderError, StorageError
from gptcli.interop.hub import model_name
from gptcli.interop.huggingface import config_to_hf, tokenizer_settings
from gptcli.storage import MANIFEST_FILE, disk_errors, fingerprints, new_directory, to_json, write_file
from gptcli.tokenizer.document import END_OF_TEXT
from gptcli.tokenizer.tokenizer import Tokenizer

FORMAT = 1


@dataclass(frozen=True)
class StoredRun:
    """What a run folder says about itself."""

    path: Path
    config: RunConfig
    data_name: str
    data_fingerprint: str


def is_run(path: Path) -> bool:
    """Whether a folder was made by training here."""
    return (path / names.RUN_CONFIG).is_file() and (path / MANIFEST_FILE).is_file()


def missing_part(path: Path) -> str:
    """The file without which a folder that looks like a run is none; "" if it does not look like one."""
    found = {name for name in (names.RUN_CONFIG, MANIFEST_FILE) if (path / name).is_file()}
    return "".join({names.RUN_CONFIG, MANIFEST_FILE} - found) if len(found) == 1 else ""


def create_run(
    path: Path, config: RunConfig, dataset: Dataset, weights: Mapping[str, Tensor] | None = None
) -> StoredRun:
    """Make a run folder, with the weights that it starts from if they are not random.

    Raises StorageError if something else stands there.
    """
    if path.exists() and not path.is_dir():
        raise StorageError(f"'{path}' is a file; a run needs a folder of its own.", "Choose another place with --out.")
    with new_directory(path, manifest=None) as new:
        files = hugging_face_files(config.model, dataset.tokenizer, dataset.start_id, dataset.end_id)
        for name, content in files.items():
            new.write(name, content)
        new.write(names.RUN_CONFIG, to_toml(config).encode())
        new.write(names.README, model_card(model_name(path), config, dataset, Progress()).encode())
        new.make_folder(names.CHECKPOINTS)
        if weights is not None:
            new.write(names.MODEL, tensor_file(weights, weights_metadata(0)))
        new.write(MANIFEST_FILE, to_json(_manifest(new.path, dataset.name, dataset.fingerprint)))
    return StoredRun(path, config, dataset.name, dataset.fingerprint)


def hugging_face_files(
    config: ModelConfig, tokenizer: Tokenizer, start_id: int, end_id: int | None, dtype: str = "float32"
) -> dict[str, bytes]:
    """The small files of a Hugging Face model folder, by name: all but the weights, which are in `dtype`."""
    hf_config = config_to_hf(config, bos_token_id=start_id, eos_token_id=end_id, dtype=dtype)
    end_text = END_OF_TEXT if tokenizer.end_of_text is not None else None
    return {
        names.CONFIG: to_json(hf_config),
        names.GENERATION_CONFIG: to_json({"bos_token_id": start_id, "eos_token_id": end_id}),
        names.TOKENIZER: tokenizer.to_json().encode(),
        names.TOKENIZER_CONFIG: to_json(tokenizer_settings(end_text, config.block_size)),
    }


def read_run(path: Path) -> StoredRun:
    """The config and data of a run folder; raises ModelFolderError."""
    manifest = read_json(path / MANIFEST_FILE)
    if manifest.get("format") != FORMAT:
        found = manifest.get("format")
        raise ModelFolderError(f"'{path}' has format {found}, and this version reads {FORMAT}.", "Use a newer gptcli.")
    data = manifest.get("data", {})
    try:
        config = parse_config(load_config_file(path / names.RUN_CONFIG))
        return StoredRun(path, config, str(data["name"]), str(data["fingerprint"]))
    except ConfigError as error:
        raise ModelFolderError(f"'{path / names.RUN_CONFIG}' is damaged: {error.message}", RESTORE) from None
    except (KeyError, TypeError):
        raise ModelFolderError(f"'{path / MANIFEST_FILE}' does not say what the run was trained on.", RESTORE) from None


def update_config(run: StoredRun, config: RunConfig) -> StoredRun:
    """Store the config with which a run goes on.

    Two files cannot be replaced in one step: between them the manifest is silent on the config, so that a run which is
    killed there is not taken for a damaged one.
    """
    _update_manifest(run, leaving_out=names.RUN_CONFIG)
    write_file(run.path / names.RUN_CONFIG, to_toml(config).encode())
    _update_manifest(run)
    return StoredRun(run.path, config, run.data_name, run.data_fingerprint)


def replace_weights(run: StoredRun, tensors: dict[str, Tensor], *, step: int, val_loss: float) -> None:
    """Put the best weights so far into the run folder, by rename; the file verifies itself.

    Better ones of another step stay: a kill can leave weights there whose evaluation came after the last checkpoint.
    """
    standing = read_metadata(run.path / names.MODEL)
    best = stored_loss(standing)
    if stored_step(standing) != step and best is not None and best < val_loss:
        return
    write_file(run.path / names.MODEL, tensor_file(tensors, weights_metadata(step, val_loss)))
    _update_manifest(run)


def write_card(run: StoredRun, dataset: Dataset, progress: Progress) -> None:
    """Bring the model card up to date with the result; nothing is written if it is."""
    card = model_card(model_name(run.path), run.config, dataset, progress).encode()
    path = run.path / names.README
    with disk_errors(path, "Reading"):
        if path.is_file() and path.read_bytes() == card:
            return
    write_file(path, card)


def lost_checkpoints(path: Path) -> int:
    """The step of the best weights of a run whose folder of checkpoints, which it had from its start, is gone; else 0.

    Going on from the beginning would not be what its owner expects. A run that was killed before its first checkpoint,
    or whose disk refused it, has the folder.
    """
    if (path / names.CHECKPOINTS).is_dir():
        return 0
    return stored_step(read_metadata(path / names.MODEL)) or 0


def newest_run(root: Path) -> Path | None:
    """The run below `root` whose weights were written last; only where none has weights yet, the newest of those."""
    runs = [path for path in root.iterdir() if is_run(path) and not path.name.startswith(".")] if root.is_dir() else []
    return max(runs, key=_last_written, default=None)


def next_free(path: Path) -> Path:
    """`runs/book` → `runs/book-2`, or the first higher number that is free."""
    path = path if path.name else path.resolve()
    number = 2
    while (candidate := path.with_name(f"{path.name}-{number}")).exists():
        number += 1
    return candidate


def _last_written(run: Path) -> tuple[bool, float]:
    """What `newest_run` compares: a run with weights comes before any without."""
    weights = run / names.MODEL
    return weights.exists(), (weights if weights.exists() else run / names.RUN_CONFIG).stat().st_mtime


def _update_manifest(run: StoredRun, leaving_out: str = "") -> None:
    manifest = _manifest(run.path, run.data_name, run.data_fingerprint, leaving_out)
    write_file(run.path / MANIFEST_FILE, to_json(manifest))


def _manifest(folder: Path, data_name: str, data_fingerprint: str, leaving_out: str = "") -> dict[str, object]:
    small = {names.CONFIG, names.GENERATION_CONFIG, names.TOKENIZER, names.TOKENIZER_CONFIG, names.RUN_CONFIG}
    weights = {names.MODEL} if (folder / names.MODEL).exists() else set()
    data = {"name": data_name, "fingerprint": data_fingerprint}
    return {"format": FORMAT, "data": data, "files": fingerprints(folder, (small | weights) - {leaving_out})}
