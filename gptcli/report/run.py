"""Reports on a run, a folder of runs, and the differences between two runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from gptcli.checkpoints import names
from gptcli.checkpoints.checkpoint import Progress, newest_checkpoint, read_progress
from gptcli.checkpoints.model_folder import checkpoint_steps
from gptcli.checkpoints.run_folder import StoredRun, card_step, is_run, open_run, read_run
from gptcli.checkpoints.tensors import read_metadata, verify_tensors
from gptcli.checkpoints.weights import stored_loss, stored_step
from gptcli.config import differences
from gptcli.errors import ModelFolderError
from gptcli.interop.hub import model_name
from gptcli.model.cost import parameter_count, training_flops
from gptcli.report.history import best_bits_per_byte
from gptcli.report.model import Basis, ModelReport, describe_model
from gptcli.runs.budget import why_finished
from gptcli.untrusted import strict_json

State = Literal["finished", "resumable", "no checkpoint", "damaged"]


@dataclass(frozen=True)
class RunSummary:
    """A run in one line."""

    name: str
    path: str
    state: State
    preset: str | None = None
    parameters: int | None = None
    tokens: int | None = None
    """Tokens of the training so far; None without a checkpoint."""
    flops: int | None = None
    """FLOPs of all these tokens; see `gptcli.model.cost.FLOPS_FORMULA`."""
    tokens_per_parameter: float | None = None
    """About 20 is the best use of FLOPs (Hoffmann et al. 2022, "Chinchilla")."""
    step: int | None = None
    max_steps: int | None = None
    best_val_loss: float | None = None
    best_step: int | None = None
    best_bits_per_byte: float | None = None
    """`best_val_loss` in bits per byte, which do not depend on the tokenizer; None if the log names none."""
    bytes: int = 0
    """Size of the folder."""
    problem: str = ""
    """The reason why it cannot be read; "" if it can."""


@dataclass(frozen=True)
class Evaluation:
    step: int
    val_loss: float
    """Nats per token."""
    bits_per_byte: float | None = None


@dataclass(frozen=True)
class RunReport:
    """A run: its model, recipe and results."""

    name: str
    path: str
    model: ModelReport
    summary: RunSummary
    tokens: int
    seconds: float
    val_loss: float | None
    """At the last evaluation, nats per token."""
    weights_step: int | None
    """Training step of the weights in `model.safetensors`, the best so far."""
    data: str
    data_fingerprint: str
    checkpoints: tuple[int, ...]
    evaluations: tuple[Evaluation, ...]
    config: dict[str, Any]
    why_finished: str
    notes: tuple[str, ...]
    """Damage found in weights and checkpoints."""
    kind: str = "run"


@dataclass(frozen=True)
class RunList:
    root: str
    runs: tuple[RunSummary, ...]
    kind: str = "runs"


@dataclass(frozen=True)
class Difference:
    key: str
    one: Any
    other: Any


@dataclass(frozen=True)
class Comparison:
    """Two runs and their differences."""

    one: RunSummary
    other: RunSummary
    config: tuple[Difference, ...]
    results: tuple[Difference, ...]
    evaluations: tuple[tuple[Evaluation, ...], tuple[Evaluation, ...]]
    """Validation losses of the two runs."""
    different_tokens: bool = False
    """Whether a loss per token does not say which run is better, as the tokenizers differ."""
    kind: str = "comparison"


def describe_run(path: Path, basis: Basis) -> RunReport:
    """Describe a run; its small files, best weights and newest checkpoint are verified.

    The notes name damaged weights and checkpoints. Raises ModelFolderError if the small files are damaged.
    """
    run = open_run(path)
    train = run.config.train
    checkpoint, notes = newest_checkpoint(path)
    progress = checkpoint.progress if checkpoint else Progress()
    model = describe_model(
        *(model_name(path), run.config.model, replace(basis, dtype=basis.dtype or train.dtype)),
        sequences=train.micro_batch_size or train.batch_size,
        activation_checkpointing=train.activation_checkpointing,
    )
    return RunReport(
        name=model_name(path),
        path=str(path),
        model=model,
        summary=_summary(run, checkpoint.progress if checkpoint else None),
        tokens=progress.tokens,
        seconds=progress.seconds,
        val_loss=progress.val_loss,
        weights_step=stored_step(read_metadata(path / names.MODEL)),
        data=run.data_name,
        data_fingerprint=run.data_fingerprint,
        checkpoints=tuple(checkpoint_steps(path)),
        evaluations=tuple(evaluations(path / names.METRICS)),
        config=run.config.model_dump(mode="json"),
        why_finished=why_finished(run.config, progress),
        notes=(*_damaged_weights(path / names.MODEL), *notes.values()),
    )


def _damaged_weights(file: Path) -> list[str]:
    """A sentence if the best weights do not read back as written."""
    try:
        if file.exists():
            verify_tensors(file)
    except ModelFolderError as error:
        return [f"The best weights are damaged: {error.message}"]
    return []


def list_runs(root: Path) -> RunList:
    """List the runs in a folder by name; checkpoints are read, not verified."""
    return RunList(str(root), tuple(_summary_of(path) for path in sorted(root.iterdir()) if is_run(path)))


def compare_runs(one: Path, other: Path) -> Comparison:
    """Compare two runs; raises ModelFolderError if one cannot be read."""
    runs = read_run(one), read_run(other)
    a, b = (_summary(run, read_progress(run.path)) for run in runs)
    config = [Difference(key, x, y) for key, (x, y) in differences(runs[0].config, runs[1].config).items()]
    if runs[0].data_fingerprint != runs[1].data_fingerprint:
        config.insert(0, Difference("data", runs[0].data_name, runs[1].data_name))
    fields = (
        "parameters",
        "tokens",
        "flops",
        "tokens_per_parameter",
        "step",
        "best_val_loss",
        "best_bits_per_byte",
        "best_step",
        "state",
        "bytes",
    )
    results = [Difference(key, getattr(a, key), getattr(b, key)) for key in fields]
    curves = tuple(evaluations(run.path / names.METRICS) for run in runs)
    return Comparison(
        *(a, b, tuple(config), tuple(item for item in results if item.one != item.other)),
        evaluations=(tuple(curves[0]), tuple(curves[1])),
        different_tokens=different_tokens([run.config.model_dump(mode="json") for run in runs]),
    )


def different_tokens(configs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether runs have different tokenizers, so that a loss per token says nothing about which one is better."""
    return len(set(map(_tokens, configs))) > 1


def different_texts(runs: Sequence[RunReport]) -> bool:
    """Whether runs were trained and validated on different texts: by their fingerprints, or their names where a
    fingerprint depends on the tokenizer."""
    return any(
        one.data_fingerprint != other.data_fingerprint
        and (_tokens(one.config) == _tokens(other.config) or one.data != other.data)
        for one, other in combinations(runs, 2)
    )


def _tokens(config: Mapping[str, Any]) -> tuple[int, str]:
    return config["model"]["vocab_size"], str(config["tokenizer"])


def evaluations(metrics: Path) -> list[Evaluation]:
    """The validation losses in a metrics.jsonl; damaged or unfinished lines are skipped."""
    found: list[Evaluation] = []
    if not metrics.is_file():
        return found
    with suppress(OSError), open(metrics, "rb") as lines:
        for line in lines:
            if b'"val/loss"' not in line:
                continue  # parsing every logged step of a long run would take half a minute
            with suppress(ValueError, KeyError, TypeError):
                values = strict_json(line)
                bits = values.get("val/bpb")
                bits = float(bits) if isinstance(bits, int | float) else None
                found.append(Evaluation(int(values["step"]), float(values["val/loss"]), bits))
    return found


def _summary_of(path: Path) -> RunSummary:
    try:
        return _summary(read_run(path), read_progress(path))
    except ModelFolderError as error:
        return RunSummary(path.name, str(path), "damaged", bytes=_size(path), problem=error.message)


def _summary(run: StoredRun, progress: Progress | None) -> RunSummary:
    state: State = "no checkpoint"
    if progress is not None:
        state = "finished" if why_finished(run.config, progress) else "resumable"
    counters = progress or _counters_without_checkpoint(run.path)
    model = run.config.model
    parameters = parameter_count(model)
    best = counters.best_val_loss
    return RunSummary(
        name=model_name(run.path),
        path=str(run.path),
        state=state,
        preset=run.config.preset,
        parameters=parameters,
        tokens=progress.tokens if progress else None,
        flops=progress.tokens * training_flops(model, model.block_size) if progress else None,
        tokens_per_parameter=progress.tokens / parameters if progress else None,
        step=counters.step,
        max_steps=run.config.train.max_steps,
        best_val_loss=best,
        best_step=counters.best_step,
        best_bits_per_byte=None if best is None else best_bits_per_byte(run.path, best),
        bytes=_size(run.path),
    )


def _counters_without_checkpoint(run: Path) -> Progress:
    """What the best weights and the model card of a run say about its training."""
    metadata = read_metadata(run / names.MODEL)
    best, loss = stored_step(metadata), stored_loss(metadata)
    step = max(best or 0, card_step(run))
    return Progress(step=step, best_val_loss=loss, best_step=None if loss is None else best)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
