"""A model placed for decoding: the same numbers in less time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from gptcli.cli import threads
from gptcli.generation import placement
from gptcli.generation.placement import MANY_TEXTS, ONE_THREAD_BELOW, bind_submodules, decoding_threads, place
from gptcli.model.gpt import MLP
from gptcli.model.int8 import Int8GPT
from tests.model.reference import random_model
from tests.model.variants import VARIANTS, variant

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", VARIANTS)
def test_bound_submodules_compute_the_same(name: str) -> None:
    ids = torch.randint(0, 23, (2, 12), generator=torch.Generator().manual_seed(0))
    assert bind_submodules(random_model(variant(name)))(ids).equal(random_model(variant(name))(ids))


def test_the_process_is_set_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without TF32: a text in float32 is that of other programs."""
    used: list[tuple[object, ...]] = []
    monkeypatch.setattr(placement, "use_device", lambda *choice: used.append(choice))
    place(random_model(variant("gpt2")), CPU, "float32")
    assert used == [(CPU,)]


def test_submodules_are_plain_attributes() -> None:
    block = bind_submodules(random_model(variant("gpt2"))).h[0]
    assert {"ln_1", "attn", "mlp"} <= vars(block).keys()
    assert vars(block)["attn"] == block._modules["attn"].forward
    assert vars(block._modules["attn"])["c_attn"] == block._modules["attn"]._modules["c_attn"].forward


def test_a_submodule_that_is_replaced_later_is_used() -> None:
    model = bind_submodules(random_model(variant("gpt2")))
    model.h[0].mlp = MLP(model.config).double()
    ids = torch.zeros(1, 3, dtype=torch.long)
    assert not model(ids).equal(random_model(variant("gpt2"))(ids))


def test_weights_of_8_bits_only_where_asked() -> None:
    plain = place(random_model(variant("gpt2")), CPU, None)
    assert plain.wte.weight.dtype == torch.float32
    assert type(plain) is type(random_model(variant("gpt2")))
    assert isinstance(place(random_model(variant("gpt2")), CPU, None, int8=True), Int8GPT)


def test_threads_by_the_model_and_the_number_of_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)
    small = random_model(variant("gpt2"))
    large = random_model(variant("gpt2", n_embd=512))
    assert sum(parameter.numel() for parameter in large.parameters()) > ONE_THREAD_BELOW
    assert [decoding_threads(small, texts) for texts in (1, MANY_TEXTS - 1, MANY_TEXTS)] == [1, 1, 6]
    assert decoding_threads(large, 1) == 6


@pytest.mark.parametrize(("load", "count"), [("0.9 0.5 0.1 1/90 7\n", threads.ALONE), ("0 0 0 2/90 7", "1000")])
def test_threads_spin_longer_on_an_idle_machine(
    load: str, count: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "loadavg"
    file.write_text(load, encoding="utf-8")
    monkeypatch.setattr(threads, "LOAD", file)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.delenv(threads.SPIN_COUNT, raising=False)
    threads.limit_spinning()
    threads.spin_where_idle()
    assert os.environ[threads.SPIN_COUNT] == count


@pytest.mark.parametrize(("name", "value"), [("GOMP_SPINCOUNT", "77"), ("OMP_WAIT_POLICY", "PASSIVE")])
def test_a_setting_of_the_user_stays(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(threads.SPIN_COUNT, raising=False)
    monkeypatch.setenv(name, value)
    threads.limit_spinning()
    threads.spin_where_idle()
    assert os.environ.get(threads.SPIN_COUNT) == ("77" if name == threads.SPIN_COUNT else None)
