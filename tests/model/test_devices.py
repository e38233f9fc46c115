"""The choice of device and dtype, with stand-ins for GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from gptcli.errors import DeviceError
from gptcli.model import devices
from gptcli.model.devices import (
    choose_device,
    choose_device_with_note,
    choose_dtype,
    current_gpu,
    has_tf32,
    to_device,
    use_device,
)

NO_KERNELS = "CUDA error: no kernel image is available for execution on the device\nCUDA kernel errors might be …"
CAPABILITIES = {None: (7, 5), 0: (7, 5), 1: (9, 0)}
"""Of two GPUs by index, of which the first is the current one: a T4 and an H100."""


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Two GPUs that compute; the list of the process's settings for them, in order."""
    settings: list[object] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: CAPABILITIES[device.index])
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device.index or 0}")
    monkeypatch.setattr(torch.cuda, "set_device", settings.append)
    monkeypatch.setattr(torch, "set_float32_matmul_precision", settings.append)
    monkeypatch.setattr(torch, "ones", computing(None))
    return settings


def computing(error: RuntimeError | None) -> Callable[..., Tensor]:
    """`torch.ones`, on the CPU instead of a GPU; where there is an error, GPUs raise it."""
    ones = torch.ones

    def made(*shape: int, device: Any = None) -> Tensor:
        if error and torch.device(device).type == "cuda":
            raise error
        return ones(*shape)

    return made


def test_a_gpu_is_preferred(two_gpus: list[object]) -> None:
    assert choose_device_with_note("auto") == (torch.device("cuda"), "")
    assert choose_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(DeviceError, match="GPU 2"):
        choose_device("cuda:2")


@pytest.mark.parametrize("error", [RuntimeError(NO_KERNELS), torch.AcceleratorError("CUDA error: device is busy")])
def test_a_gpu_that_cannot_compute(
    two_gpus: list[object], monkeypatch: pytest.MonkeyPatch, error: RuntimeError
) -> None:
    monkeypatch.setattr(torch, "ones", computing(error))
    with pytest.raises(DeviceError) as caught:
        choose_device("cuda:1")
    assert "`device = cpu`" in caught.value.hint
    device, note = choose_device_with_note("auto")
    assert device.type != "cuda"
    facts = ("GPU 1", "9.0"), ("GPU 0", "7.5")  # of the stated GPU and of the current one
    for message, (name, capability) in zip((caught.value.message, note), facts, strict=True):
        assert "\n" not in message
        assert (name in message and capability in message) if "kernel" in str(error) else "busy" in message


def test_auto_without_a_gpu_has_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device_with_note("auto")[1] == ""


def test_the_dtype_is_that_of_the_chosen_gpu_not_of_the_current_one(two_gpus: list[object]) -> None:
    assert choose_dtype(None, torch.device("cuda", 0), 768).name == "float16"
    assert choose_dtype(None, torch.device("cuda", 1), 768).name == "bfloat16"
    assert choose_dtype("bfloat16", torch.device("cuda", 1), 768).name == "bfloat16"
    with pytest.raises(DeviceError, match="bfloat16"):
        choose_dtype("bfloat16", torch.device("cuda", 0), 768)


def test_tf32_is_where_its_units_are(two_gpus: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    assert [has_tf32(torch.device(name)) for name in ("cuda:0", "cuda:1", "cpu", "mps")] == [False, True, False, False]
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert not has_tf32(torch.device("cuda:1"))


def test_the_gpu_becomes_the_current_one(two_gpus: list[object]) -> None:
    use_device(torch.device("cuda", 1))
    use_device(torch.device("cuda"), tf32=True)
    use_device(torch.device("cpu"))
    assert two_gpus == [torch.device("cuda", 1), "highest", "high"]


def test_estimates_ask_about_the_gpu_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    @contextmanager
    def current(device: torch.device) -> Iterator[None]:
        asked.append(device)
        yield

    monkeypatch.setattr(torch.cuda, "device", current)
    for name in ("cuda:1", "cuda", "cpu"):  # `cuda` is the current one already
        with current_gpu(torch.device(name)):
            pass
    assert asked == [torch.device("cuda:1")]


def test_ids_on_their_way_to_a_gpu_are_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host waits for a copy from memory that is not pinned."""
    made: list[object] = []

    class Ids:
        def pin_memory(self) -> Ids:
            made.append("pinned")
            return self

        def to(self, device: torch.device, *, non_blocking: bool) -> Ids:
            made.append((device.type, non_blocking))
            return self

    for name in ("cpu", "cuda"):
        to_device(Ids(), torch.device(name))  # type: ignore[arg-type]
    assert made == [("cpu", True), "pinned", ("cuda", True)]
    assert devices.to_device(torch.arange(3), torch.device("cpu")).tolist() == [0, 1, 2]
