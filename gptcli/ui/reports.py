"""Tables for the reports of `inspect`."""

from __future__ import annotations

import re
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from gptcli.errors import UsageError, counted, size
from gptcli.report.datasets import DatasetList
from gptcli.report.inspection import CorpusList, PresetList, Report, as_json
from gptcli.report.machine import MachineReport
from gptcli.report.model import ModelReport
from gptcli.report.run import Comparison, RunList, RunReport, RunSummary
from gptcli.report.text import DatasetReport, TextReport, TokenizerReport, TokensReport
from gptcli.ui import data_reports, model_costs
from gptcli.ui.chart import MARK, axis, curve
from gptcli.ui.console import Output, wording
from gptcli.ui.tables import abbreviated, facts, left, right, table

PLOT_WIDTH, PLOT_HEIGHT = 78, 14


def show_report(report: Report, output: Output, *, lengths: bool = False) -> None:
    """Print a report on standard output, as tables or as JSON; with `lengths`, of a model its costs by length.

    Raises UsageError for `lengths` of something that is no model.
    """
    model = report.model if isinstance(report, RunReport) else report
    if lengths and not isinstance(model, ModelReport):
        raise UsageError("`lengths` describes a model.", "Give a run, a model folder or `preset`.")
    if output.as_json:
        output.json(as_json(report))
        return
    parts = model_costs.lengths(model) if lengths and isinstance(model, ModelReport) else _tables(report)
    for number, part in enumerate(parts):
        output.show(*([""] if number else []), part)


def _tables(report: Report) -> list[RenderableType]:
    match report:
        case ModelReport():
            return model_costs.model(report)
        case RunReport():
            return [*_run(report), *model_costs.model(report.model)]
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
        ("bits per byte", _bits(summary)),
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


def _bits(summary: RunSummary) -> str | None:
    """The best validation loss in bits per byte, of three decimals, as the plan's table of models has them."""
    return None if summary.best_bits_per_byte is None else f"{summary.best_bits_per_byte:.3f}"


def _run_list(report: RunList) -> RenderableType:
    columns = [
        *left("run", "preset"),
        *right("params", "step", "tokens", "FLOPs", "per param"),
        *right("best loss", "bits/byte", "size"),
        *left("state"),
    ]
    rows = [
        (
            run.name,
            run.preset,
            _brief(run.parameters),
            _steps(run),
            _brief(run.tokens),
            _brief(run.flops),
            run.tokens_per_parameter,
            _loss_at(run.best_val_loss, None),
            _bits(run),
            size(run.bytes),
            run.problem or run.state,
        )
        for run in report.runs
    ]
    return table(f"Runs in {report.root}", columns, rows, spare=("per param", "FLOPs", "tokens", "preset"))


def _brief(count: int | None) -> str | None:
    return None if count is None else abbreviated(count)


def _steps(run: RunSummary) -> str:
    return f"{run.step or 0:,}" + (f"/{run.max_steps:,}" if run.max_steps else "")


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
        *_curves(report, one, other),
    ]


def _curves(report: Comparison, one: str, other: str) -> list[RenderableType]:
    """Both validation losses in one plot, if both runs were evaluated; bits per byte where the tokens differ."""
    per_byte = report.different_tokens
    losses = (
        [(item.step, item.bits_per_byte if per_byte else item.val_loss) for item in run] for run in report.evaluations
    )
    lines, marks = ([(float(step), loss) for step, loss in run if loss is not None] for run in losses)
    if not lines or not marks:
        return []
    x_end = max(int(step) for step, _ in (*lines, *marks))
    drawn = curve(lines, marks, x_end=x_end, width=PLOT_WIDTH, height=PLOT_HEIGHT) + axis(x_end=x_end, width=PLOT_WIDTH)
    chart = Text("\n".join(drawn), "cyan", no_wrap=True)
    chart.highlight_regex(MARK, "yellow")
    unit = " in bits per byte, as the tokens differ" if per_byte else ""
    return [Group(Text(f"Validation loss{unit}: {one} (line) and {other} ({MARK})", "bold"), chart)]


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
