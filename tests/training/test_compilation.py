"""torch.compile: where it is used, and the fallback where it fails. No kernels are generated here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from torch import Tensor

from gptcli.dataset.folder import Dataset
from gptcli.errors import DeviceError
from gptcli.model.gpt import GPT
from gptcli.runs import completion
from gptcli.runs.events import Note
from gptcli.runs.pace import Pace
from gptcli.training import compilation
from gptcli.training.trainer import Trainer
from tests.runs.small_runs import assert_same_end, plan, run

Hidden = Callable[..., Tensor]


def failing(hidden: Hidden, dynamic: bool) -> Hidden:
    def compiled(*inputs: Any) -> Tensor:
        hidden(*inputs).sum().backward()  # a backward pass that fails half-way leaves some gradients
        raise RuntimeError("no C++ compiler\nand a long story")

    return compiled


def notes(dataset: Dataset, path: Path, mode: str) -> list[str]:
    return [event.text for event in run(dataset, path, {"train.compile": mode}) if isinstance(event, Note)]


def test_auto_on_a_cpu_says_why_not(dataset: Dataset, tmp_path: Path) -> None:
    (told,) = notes(dataset, tmp_path / "run", "auto")
    assert "Not compiled" in told
    assert "CPU" in told
    assert notes(dataset, tmp_path / "off", "off") == []


@pytest.mark.parametrize(
    ("device", "steps", "expected"),
    [("cuda", 10**6, ""), ("cuda", 299, "too short"), ("mps", 10**6, "untested")],
)
def test_where_it_pays(monkeypatch: pytest.MonkeyPatch, device: str, steps: int, expected: str) -> None:
    monkeypatch.setattr(compilation.importlib.util, "find_spec", lambda name: object())
    reason = compilation.reason_against(torch.device(device), steps)
    assert expected in reason
    assert bool(expected) == bool(reason)


def test_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation.importlib.util, "find_spec", lambda name: None)
    assert "triton" in compilation.reason_against(torch.device("cuda"), 10**6)


def test_on_that_fails_is_an_error(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", failing)
    with pytest.raises(DeviceError, match=r"torch\.compile .*no C\+\+ compiler\.$") as caught:
        run(dataset, tmp_path / "run", {"train.compile": "on"})
    assert "`train.compile = off`" in caught.value.hint


def check_fallback(dataset: Dataset, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `auto` the run trains as it would have without compiling: the failed attempt leaves no trace."""
    run(dataset, folder / "off", {"train.compile": "off"})
    monkeypatch.setattr(torch, "compile", failing)
    monkeypatch.setattr(compilation, "reason_against", lambda *_args, **_options: "")
    _, told = notes(dataset, folder / "auto", "auto")
    assert "Not compiled" in told
    assert "no C++ compiler" in told
    assert_same_end(folder / "off", folder / "auto")


def test_auto_that_fails_trains_uncompiled(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_fallback(dataset, tmp_path, monkeypatch)


def test_control_gradients_left_behind(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gptcli.model.gpt.GPT.zero_grad", lambda self: None)
    with pytest.raises(AssertionError):
        check_fallback(dataset, tmp_path, monkeypatch)


def test_an_error_without_a_message(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wordless(hidden: Hidden, dynamic: bool) -> Hidden:
        def compiled(*inputs: Any) -> Tensor:
            raise RuntimeError

        return compiled

    monkeypatch.setattr(torch, "compile", wordless)
    with pytest.raises(DeviceError, match="RuntimeError"):
        run(dataset, tmp_path / "run", {"train.compile": "on"})


@pytest.mark.parametrize("mode", ["on", "auto"])
def test_compiled_states_are_used_and_leave_no_trace(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    calls = []

    def working(hidden: Hidden, dynamic: bool) -> Hidden:
        assert not dynamic

        def compiled(ids: Tensor, *others: Any) -> Tensor:
            calls.append(ids.shape)
            return hidden(ids, *others)

        return compiled

    run(dataset, tmp_path / "off", {"train.compile": "off"})
    monkeypatch.setattr(torch, "compile", working)
    monkeypatch.setattr(compilation, "reason_against", lambda *_args, **_options: "")
    told = notes(dataset, tmp_path / mode, mode)
    assert ["Compiled" in note for note in told] == ([False, True] if mode == "auto" else [False])
    assert len(calls) > 20
    assert_same_end(tmp_path / "off", tmp_path / mode)


def test_experts_are_part_of_the_attempt(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that compiles only without the routing of tokens would fail at the first update."""

    def without_routing(hidden: Hidden, dynamic: bool) -> Hidden:
        def compiled(ids: Tensor, cache: object = None, routing: object = None) -> Tensor:
            if routing is not None:
                raise RuntimeError("no routing")
            return hidden(ids)

        return compiled

    monkeypatch.setattr(torch, "compile", without_routing)
    with pytest.raises(DeviceError, match="no routing"):
        run(dataset, tmp_path / "run", {"train.compile": "on", "model.n_expert": 2})


def test_the_evaluation_is_part_of_the_attempt(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evaluations are compiled separately; one that failed or took a minute in the middle would be a surprise."""
    modes: list[bool] = []

    def only_trains(hidden: Hidden, dynamic: bool) -> Hidden:
        def compiled(ids: Tensor, *others: Any) -> Tensor:
            modes.append(not torch.is_grad_enabled())
            if not torch.is_grad_enabled():
                raise RuntimeError("no evaluation")
            return hidden(ids, *others)

        return compiled

    monkeypatch.setattr(torch, "compile", only_trains)
    with pytest.raises(DeviceError, match="no evaluation"):
        run(dataset, tmp_path / "run", {"train.compile": "on"})
    assert modes == [False, True]


def test_a_trainer_that_does_not_evaluate_compiles_no_evaluation(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[bool] = []

    def watched(hidden: Hidden, dynamic: bool) -> Hidden:
        def compiled(ids: Tensor, *others: Any) -> Tensor:
            modes.append(not torch.is_grad_enabled())
            return hidden(ids, *others)

        return compiled

    monkeypatch.setattr(torch, "compile", watched)
    trainer = Trainer(plan(dataset, tmp_path / "run", {"train.compile": "on"}).config, dataset, torch.device("cpu"))
    assert not trainer.is_compiled
    trainer.compile(evaluates=False)
    assert trainer.is_compiled
    assert modes == [False]


@pytest.mark.parametrize("deterministic", [True, False])
def test_inductor_is_deterministic_where_training_is(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deterministic: bool
) -> None:
    given: list[dict[str, Any]] = []

    def watched(hidden: Hidden, **settings: Any) -> Hidden:
        given.append(settings)
        return hidden

    monkeypatch.setattr(torch, "compile", watched)
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: deterministic)
    run(dataset, tmp_path / "run", {"train.compile": "on"})
    (settings,) = given
    assert settings.pop("dynamic") is False
    assert settings == ({"options": {"deterministic": True}} if deterministic else {})


def test_this_torch_knows_the_option() -> None:
    options = torch._inductor.list_options()
    assert "deterministic" in options


def test_checkpointing_needs_no_compiling(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, Any]] = []
    plain = GPT.hidden

    def hidden(self: GPT, *inputs: Any, **settings: Any) -> Tensor:
        given.append(settings)
        return plain(self, *inputs, **settings)

    monkeypatch.setattr(GPT, "hidden", hidden)
    made = plan(dataset, tmp_path / "run", {"train.activation_checkpointing": True})
    Trainer(made.config, dataset, torch.device("cpu")).step()
    assert given == [{"activation_checkpointing": True}]


def compiled_graphs(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The graphs that torch.compile makes from now on, which run as they are."""
    graphs: list[object] = []
    plain = torch.compile

    def backend(graph: Any, inputs: object) -> Any:
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", lambda function, dynamic: plain(function, dynamic=dynamic, backend=backend))
    return graphs


def check_nothing_is_compiled_later(dataset: Dataset, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = compiled_graphs(monkeypatch)
    flags = {"train.compile": "on", "train.micro_batch_size": 2}
    trainer = Trainer(plan(dataset, folder / "run", flags).config, dataset, torch.device("cpu"))
    trainer.compile()
    compiled = len(graphs)
    trainer.step()
    trainer.evaluate()
    trainer.step()
    assert compiled == len(graphs) > 1


def test_nothing_is_compiled_after_the_attempt(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With torch's own tracing, but without its slow part, the generation of kernels."""
    check_nothing_is_compiled_later(dataset, tmp_path, monkeypatch)


def test_control_an_attempt_without_an_evaluation(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilation, "loss_sum", lambda *arguments: None)
    with pytest.raises(AssertionError):
        check_nothing_is_compiled_later(dataset, tmp_path, monkeypatch)


def compiling(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Let torch.compile only say that it was called; the list of calls."""
    calls: list[Any] = []

    def compile(hidden: Any, **_options: Any) -> Any:
        calls.append(hidden)
        return lambda *inputs: hidden(*inputs)

    monkeypatch.setattr(torch, "compile", compile)
    monkeypatch.setattr(compilation.shutil, "which", lambda name: f"/bin/{name}")
    return calls


def with_pace(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(completion, "measure_pace", lambda *_args, **_options: Pace(seconds))


@pytest.mark.parametrize(("seconds", "compiles"), [(1.0, False), (compilation.CPU_SECONDS / 20, True)])
def test_on_a_cpu_long_trainings_are_compiled(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, compiles: bool
) -> None:
    """The training has 20 steps."""
    calls = compiling(monkeypatch)
    with_pace(monkeypatch, seconds)
    run(dataset, tmp_path / "run", {"train.compile": "auto"})
    assert bool(calls) == compiles


def test_a_resumed_run_stays_compiled_or_not(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the speed of the machine is now: other kernels round differently."""
    calls = compiling(monkeypatch)
    for name, at_first, later in (("slow", 1e6, 1e-6), ("quick", 1e-6, 1e6)):
        with_pace(monkeypatch, at_first)
        run(dataset, tmp_path / name, {"train.compile": "auto"}, stop_after=10)
        compiled = len(calls)
        with_pace(monkeypatch, later)
        run(dataset, tmp_path / name, {"train.compile": "auto"})
        assert (len(calls) > compiled) == (name == "slow")


def test_without_a_compiler_auto_does_not_try(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = compiling(monkeypatch)
    monkeypatch.setattr(compilation.shutil, "which", lambda name: None)
    with_pace(monkeypatch, 1e6)
    notes = [
        event.text for event in run(dataset, tmp_path / "run", {"train.compile": "auto"}) if isinstance(event, Note)
    ]
    assert any("compiler" in note for note in notes)
    assert calls == []


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_blocks_are_compiled_by_themselves_where_weights_are_sharded(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the attempt, for the shape of a micro-batch; the shorter windows of an evaluation are not."""
    graphs = compiled_graphs(monkeypatch)
    flags = {"train.compile": "on", "train.micro_batch_size": 2, "model.n_layer": 2, "model.dropout": 0.0}
    config = plan(dataset, tmp_path / "run", flags).config
    trainer, eager = (Trainer(config, dataset, torch.device("cpu")) for _ in range(2))
    trainer.shards = MagicMock()
    trainer.compile()
    trainer.shards = None
    compiled = len(graphs)
    for _ in range(2):
        one, other = trainer.step(), eager.step()
        assert one
        assert other
        assert float(one.loss) == pytest.approx(float(other.loss), abs=1e-5)
        assert trainer.evaluate() == pytest.approx(eager.evaluate(), abs=1e-5)
    assert compiled == len(graphs) > 0


def test_a_failure_is_an_error_where_weights_are_sharded(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With replicated weights each rank can decide by itself; here the others would wait."""
    monkeypatch.setattr(torch, "compile", failing)
    monkeypatch.setattr(compilation, "reason_against", lambda *_arguments, **_options: "")
    trainer = Trainer(plan(dataset, tmp_path / "run", {"train.compile": "auto"}).config, dataset, torch.device("cpu"))
    assert "Not compiled" in trainer.compile()
    trainer.shards = MagicMock()
    with pytest.raises(DeviceError, match="no C\\+\\+ compiler"):
        trainer.compile()
