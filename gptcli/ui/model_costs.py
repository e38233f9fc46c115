"""Tables for what a model costs: parameters, activations, memory, FLOPs, and attention by length."""

from __future__ import annotations

from dataclasses import asdict

from rich.console import Group, RenderableType
from rich.text import Text

from gptcli.errors import size
from gptcli.report.lengths import LengthCost, Lengths
from gptcli.report.model import ModelReport, Share
from gptcli.ui.tables import abbreviated, facts, left, operations, right, shape, share, table

BAR = 40
"""Columns of a bar in the plot of FLOPs by length."""
SCORES, MLP, REST = "█", "▒", "·"
"""Columns of a bar: attention scores, the MLP, and everything else."""


def model(report: ModelReport) -> list[RenderableType]:
    """Everything about a model."""
    parts = [
        (part.name, shape(part.shape), _times(part.copies), part.count, share(part.share))
        for part in report.parameters.parts
    ]
    stages = [(stage.name, shape(stage.shape), _times(stage.copies), stage.what) for stage in report.activations]
    return [
        table(
            f"Parameters of {report.name}",
            [*left("tensor"), *right("shape", "", "count", "share")],
            parts,
            total=("total", "", "", report.parameters.total, share(1.0)),
        ),
        _subtotals(report),
        table(
            "Activations, stage by stage",
            [*left("stage"), *right("shape", ""), *left("what")],
            stages,
        ),
        _memory(report),
        _arithmetic(report),
    ]


def _subtotals(report: ModelReport) -> RenderableType:
    parameters = report.parameters
    rows = [(_name(part), part.count, share(part.share)) for part in parameters.subtotals]
    notes = []
    if report.config["tied"]:
        notes.append("The head shares the weights of the token embedding.")
    if parameters.active < parameters.total:
        notes.append(
            f"A token passes through {parameters.active:,} of them ({report.config['n_expert_active']} experts)."
        )
    made = table(
        "Parameters by part",
        [*left("part"), *right("parameters", "share")],
        rows,
        total=("total", parameters.total, share(1.0)),
    )
    return Group(made, *notes)


def _name(part: Share) -> str:
    return "MLP" if part.name == "mlp" else part.name


def _memory(report: ModelReport) -> RenderableType:
    memory = report.memory
    training, sampling = asdict(memory.training), asdict(memory.sampling)
    names = list(dict.fromkeys([*training, *sampling]))
    rows = [(name, _size_of(training, name), _size_of(sampling, name)) for name in names]
    columns = f"training {memory.training_sequences:,} at once", f"sampling {memory.sampling_sequences:,}"
    notes = [f"Key-value cache: {size(memory.cache_per_token)} per token of each sequence"]
    if memory.activation_checkpointing:
        notes.append("Activation checkpointing: training keeps the activations of one block at a time.")
    return Group(
        table(
            f"Memory on {memory.device}, training in {memory.dtype}",
            [*left("for"), *right(*columns)],
            [row for row in rows if row[1:] != ("", "")],
            total=("peak", size(memory.training_total), size(memory.sampling_total)),
        ),
        *notes,
    )


def _size_of(values: dict[str, int], name: str) -> str:
    return size(values[name]) if values.get(name) else ""


def _times(copies: int) -> str:
    return f"× {copies}" if copies > 1 else ""


def _arithmetic(report: ModelReport) -> RenderableType:
    flops = report.flops
    training = f"{operations(flops.training_per_token)} per token, {flops.formula} with T = {flops.length:,}"
    rows = [("training", training)]
    if flops.recomputed_per_token:
        rows.append(("recomputed", f"{operations(flops.recomputed_per_token)} per token more, the forward pass again"))
    made = table(
        "Forward pass of a token",
        [*left("part"), *right("FLOPs", "share")],
        [(_name(part), operations(part.count), share(part.share)) for part in flops.parts],
        total=("total", operations(flops.forward_per_token), share(1.0)),
    )
    return Group(facts("Arithmetic", rows), "", made)


def lengths(report: ModelReport) -> list[RenderableType]:
    """The costs of attention by length, as a table and as a plot, and where it takes half of the FLOPs."""
    found, memory = report.lengths, report.memory
    columns = ("tokens", "T × T", "stored", "recomputed", "fused", "cache", "FLOPs/token", "scores")
    made = table(f"Attention of {report.name} by length, one sequence", right(*columns), map(_length_row, found.costs))
    kernel = (
        f"On {memory.device} training this model stores the T × T matrices: torch has no fused kernel for it there."
        if found.stores_scores
        else f"On {memory.device} attention is fused: no T × T matrix is stored, only one number per row."
    )
    return [
        made,
        "T × T: numbers in the matrices of all heads and layers. stored: every layer keeps its matrices in "
        f"{memory.dtype}. recomputed: one layer at a time (activation checkpointing). {kernel}",
        _plot(found),
    ]


def _length_row(cost: LengthCost) -> tuple[object, ...]:
    return (
        cost.length,
        abbreviated(cost.scores),
        size(cost.stored_bytes),
        size(cost.recomputed_bytes),
        size(cost.fused_bytes),
        size(cost.cache_bytes),
        operations(cost.forward_per_token),
        share(cost.attention_share),
    )


def _plot(found: Lengths) -> RenderableType:
    lines = [Text("Forward pass of a token by length", "bold")]
    for cost in found.costs:
        scores, mlp = round(BAR * cost.attention_share), round(BAR * cost.mlp_share)
        rest = max(0, BAR - scores - mlp)
        line = Text(f"{cost.length:>9,} ")
        line.append(SCORES * scores, "yellow").append(MLP * mlp, "cyan").append(REST * rest, "dim")
        lines.append(line.append(f" {share(cost.attention_share):>7}"))
    lines.append(Text(f"{SCORES} attention scores  {MLP} MLP  {REST} attention matrices, norms and head"))
    crossing = (
        "The windows keep attention scores below half of the FLOPs at every length."
        if found.crossover is None
        else f"From {found.crossover:,} tokens on, attention scores take at least half of the FLOPs."
    )
    return Group(*lines, crossing)
