"""Tables for the reports of `inspect`."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType

from gptcli.errors import counted, size
from gptcli.report.datasets import DatasetList
from gptcli.report.inspection import CorpusList, PresetList, Report, as_json
from gptcli.report.machine import MachineReport
from gptcli.report.model import ModelReport
from gptcli.report.run import Comparison, RunList, RunReport, RunSummary
from gptcli.report.text import DatasetReport, TextReport, TokenizerReport, TokensReport
from gptcli.ui import data_reports
from gptcli.ui.console import Output, wording
from gptcli.ui.tables import facts, left, operations, right, shape, share, table


def show_report(report: Report, output: Output) -> None:
    """Print a report on standard output, as tables or as JSON."""
    if output.as_json:
        output.json(as_json(report))
        return
    for number, part in enumerate(_tables(report)):
        output.show(*([""] if number else []), part)


def _tables(report: Report) -> list[RenderableType]:
    match report:
        case ModelReport():
            return _model(report)
        case RunReport():
            return [*_run(report), *_model(report.model)]
        case RunList():
            return [_run_list(report)]
        case Comparison():
            return _comparison(report)
        case DatasetReport():
            return data_reports.dataset(report)
        case DatasetList():
            return [data_reports.dataset_list(report)]
        case TokenizerReport():
            return [data_reports.tokenizer(report)]
        case TokensReport():
            return data_reports.tokens(report)
        case TextReport():
            return [data_reports.text(report)]
        case PresetList():
            return [_presets(report)]
        case MachineReport():
            return _machine(report)
        case CorpusList():
            return data_reports.corpus_list(report)


def _model(report: ModelReport) -> list[RenderableType]:
    parts = [
        (part.name, shape(part.shape), _times(part.copies), part.count, share(part.share))
        for part in report.parameters.parts
    ]
    stages = [(stage.name, shape(stage.shape), _times(stage.copies), stage.what) for stage in report.activations]
    flops = report.flops
    return [
        table(
            f"Parameters of {report.name}",
            [*left("part"), *right("shape", "", "count", "share")],
            parts,
            total=("total", "", "", report.parameters.total, share(1.0)),
        ),
        table(
            "Activations, stage by stage",
            [*left("stage"), *right("shape", ""), *left("what")],
            stages,
        ),
        _memory(report),
        facts(
            "Arithmetic",
            [
                (
                    "training",
                    f"{operations(flops.training_per_token)} per token, {flops.formula} with T = {flops.length:,}",
                ),
                ("forward pass", f"{operations(flops.forward_per_token)} per token"),
            ],
        ),
    ]


def _memory(report: ModelReport) -> RenderableType:
    memory = report.memory
    training, sampling = asdict(memory.training), asdict(memory.sampling)
    names = list(dict.fromkeys([*training, *sampling]))
    rows = [(name, _size_of(training, name), _size_of(sampling, name)) for name in names]
    columns = f"training {memory.training_sequences:,} at once", f"sampling {memory.sampling_sequences:,}"
    return Group(
        table(
            f"Memory on {memory.device}, training in {memory.dtype}",
            [*left("for"), *right(*columns)],
            [row for row in rows if row[1:] != ("", "")],
            total=("peak", size(memory.training_total), size(memory.sampling_total)),
        ),
        f"Key-value cache: {size(memory.cache_per_token)} per token of each sequence",
    )


def _size_of(values: dict[str, int], name: str) -> str:
    return size(values[name]) if values.get(name) else ""


def _times(copies: int) -> str:
    return f"× {copies}" if copies > 1 else ""


def _run(report: RunReport) -> list[RenderableType]:
    summary = report.summary
    state = {
        "finished": f"finished: {wording.get()(report.why_finished)}",
        "resumable": "resumable: run the same train command again",
        "no checkpoint": "no checkpoint" + (" yet" if summary.best_val_loss is None else ", but the best weights"),
        "damaged": "damaged",
    }[summary.state]
    rows = [
        ("preset", summary.preset),
        ("data", f"{report.data} ({report.data_fingerprint[:8]})"),
        ("started from", _start(report.config)),
        ("state", state),
        ("step", f"{summary.step:,} of {summary.max_steps:,}" if summary.max_steps else summary.step),
        ("tokens", report.tokens),
        ("time", f"{report.seconds:,.0f} s"),
        ("best loss", _loss_at(summary.best_val_loss, summary.best_step)),
        ("last loss", _loss_at(report.val_loss, None)),
        ("recipe", _recipe(report.config)),
        ("checkpoints", ", ".join(f"{step:,}" for step in report.checkpoints) or None),
        ("size", size(summary.bytes)),
    ]
    rows += [("note", note) for note in report.notes]
    return [facts(f"Run {report.path}", rows)]


def _recipe(config: dict[str, Any]) -> str:
    train, optim, model = config["train"], config["optim"], config["model"]
    rate = f"{optim['optimizer']}, lr {optim['lr']:g} {optim['schedule']}"
    batch = f"{train['batch_size']:,} sequences per step"
    return f"{batch}, {rate}, dropout {model['dropout']:g}, {train['dtype']}, seed {train['seed']}"


def _start(config: dict[str, Any]) -> str | None:
    name, sha256 = config["train"]["init_from"], config["train"]["init_sha256"] or ""
    return None if name is None else f"{name} ({sha256[:8]})"


def _loss_at(loss: float | None, step: int | None) -> str | None:
    if loss is None:
        return None
    return f"{loss:.4f}" + ("" if step is None else f" at step {step:,}")


def _run_list(report: RunList) -> RenderableType:
    columns = [*left("run", "preset"), *right("step", "best loss", "size"), *left("state")]
    rows = [
        (
            run.name,
            run.preset,
            _steps(run),
            _loss_at(run.best_val_loss, None),
            size(run.bytes),
            run.problem or run.state,
        )
        for run in report.runs
    ]
    return table(f"Runs in {report.root}", columns, rows)


def _steps(run: RunSummary) -> str:
    return f"{run.step or 0:,}" + (f" / {run.max_steps:,}" if run.max_steps else "")


def _comparison(report: Comparison) -> list[RenderableType]:
    one, other = report.one.name, report.other.name
    if one == other:
        one, other = report.one.path, report.other.path
    columns = [*left(""), *right(one, other)]
    results = [(item.key.replace("_", " "), item.one, item.other) for item in report.results]
    config = [(item.key, _shortened(item.one), _shortened(item.other)) for item in report.config]
    same = "" if config else " (none)"
    return [
        table("Results that differ" + ("" if results else " (none)"), columns, results),
        table(f"Configuration that differs{same}", columns, config),
    ]


def _shortened(value: object) -> object:
    """A value of a config; digests are cut short."""
    return f"{value[:8]}…" if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) else value


def _presets(report: PresetList) -> RenderableType:
    names = ("layers", "heads", "width", "context", "ids", "parameters", "batch")
    rows = [
        (p.name, p.n_layer, p.n_head, p.n_embd, p.block_size, p.vocab_size, p.parameters, p.batch_size)
        for p in report.presets
    ]
    return table("Presets", [*left("preset"), *right(*names)], rows)


def _machine(report: MachineReport) -> list[RenderableType]:
    rows = [
        ("system", report.system),
        ("python", report.python),
        ("torch", report.torch + (f", for CUDA {report.cuda}" if report.cuda else ", without CUDA")),
        ("device", f"{report.default_device} by default"),
        ("cores", f"{report.cores:,} (torch uses {counted(report.threads, 'thread')})"),
        ("compiler", report.compiler or "none, so torch.compile does not work on the CPU"),
    ]
    devices = [
        facts(
            device.device,
            [
                ("name", device.name),
                ("memory", f"{size(device.memory)}, {size(device.free)} free"),
                ("trains in", ", ".join(device.dtypes)),
                ("--dtype auto", f"{device.dtype}, {device.dtype_reason}"),
            ],
        )
        for device in report.devices
    ]
    return [facts("This machine", rows), *devices]
