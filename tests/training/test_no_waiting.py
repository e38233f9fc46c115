"""No update waits for the device: the host queues work ahead, so that a GPU never idles.

Tensors on torch's meta device have no values. Reading one, or choosing a shape by values, is an error there; on a GPU
the host would wait for it. Copies from and to the host are watched: they must not block.
"""

from __future__ import annotations

from contextlib import nullcontext
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gptcli.bench.target import random_dataset
from gptcli.config import RunConfig, build_config
from gptcli.config.values import nest
from gptcli.model import experts, loss
from gptcli.training import evaluation, gradients
from gptcli.training.optimizer import Optimizer
from gptcli.training.trainer import Trainer
from tests.optimizers import EACH_OPTIMIZER

KINDS: dict[str, dict[str, Any]] = {
    **EACH_OPTIMIZER,
    "float16": {"optim.optimizer": "muon", "train.dtype": "float16"},
    "spikes": {"optim.skip_spikes": 6.0},
    "experts": {"model.n_expert": 2},
    "checkpointing": {"train.activation_checkpointing": True},
}


class BlockingCopies(TorchDispatchMode):
    """Collects the operations on tensors of host and device together, which make the host wait.

    Not so a copy that is told not to block, and an operation by element on a number () of the host, which CUDA gets as
    an argument of the kernel. `torch.where` copies it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        tensors = [leaf for leaf in tree_leaves((args, kwargs, made)) if isinstance(leaf, Tensor)]
        on_host = [tensor for tensor in tensors if tensor.device.type == "cpu"]
        queued = any(value is True for value in (kwargs.get("non_blocking"), *args))
        by_element = torch.Tag.pointwise in func.tags and func is not torch.ops.aten.where.self
        as_argument = by_element and all(tensor.dim() == 0 for tensor in on_host)
        if on_host and len(on_host) < len(tensors) and not queued and not as_argument:
            self.found.append(str(func))
        return made


@pytest.fixture(autouse=True)
def meta_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the meta device take the way of a GPU through training."""
    optimizers = import_module("torch.optim.optimizer")
    monkeypatch.setattr(optimizers, "_get_fused_kernels_supported_devices", lambda: ["meta"])
    monkeypatch.setitem(loss.PLAIN_LOGITS, "meta", loss.PLAIN_LOGITS["cuda"])
    monkeypatch.setattr(gradients, "autocast", lambda device, dtype: nullcontext())
    monkeypatch.setattr(evaluation, "autocast", lambda device, dtype: nullcontext())
    monkeypatch.setattr(experts, "product_dtype", lambda x: x.dtype)


def trainer(flags: dict[str, Any]) -> Trainer:
    sizes = {"model.n_layer": 2, "model.n_embd": 32, "model.block_size": 16}
    batch = {"train.batch_size": 4, "train.micro_batch_size": 2, "train.dtype": "float32"}
    config: RunConfig = build_config("tiny", nest({**sizes, **batch, **flags}), vocab_size=65)
    return Trainer(config, random_dataset(65, 16, 0), torch.device("meta"))


def check_updates(flags: dict[str, Any]) -> None:
    training = trainer(flags)
    with BlockingCopies() as copies:
        for _ in range(2):  # the first allocates AdamW's state
            assert training.step()
    assert copies.found == []


@pytest.mark.parametrize("kind", KINDS)
def test_an_update_does_not_wait(kind: str) -> None:
    check_updates(KINDS[kind])


def test_control_a_number_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA copies a number (), which is no plain number of Python, from ordinary memory."""
    plain = Optimizer._clip

    def clip(self: Optimizer) -> Tensor:
        norm = plain(self)
        return torch.where(norm > 1, norm, torch.ones(()))

    monkeypatch.setattr(Optimizer, "_clip", clip)
    with pytest.raises(AssertionError, match="where"):
        check_updates({})


def test_control_a_value_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Optimizer._clip

    def clip(self: Optimizer) -> Tensor:
        norm = plain(self)
        return norm if norm > 1 else norm.clone()

    monkeypatch.setattr(Optimizer, "_clip", clip)
    with pytest.raises(RuntimeError, match="item"):
        check_updates({})


def test_an_evaluation_waits_only_for_its_end() -> None:
    training = trainer({})
    batches = evaluation.evaluation_batches(
        training.model, training.dataset.val, batch_size=2, max_tokens=16 * 16, dtype=torch.float32
    )
    with BlockingCopies() as copies:
        seen = [next(batches) for _ in range(1 + 8)]
    assert seen[-1] == (16, 16)
    assert copies.found == []
