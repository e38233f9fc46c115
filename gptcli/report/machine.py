"""This machine: devices, dtypes, cores and tools."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import torch

from gptcli.config import DtypeName
from gptcli.errors import DeviceError
from gptcli.machine import compiler, cores, free_memory, total_memory
from gptcli.model.devices import AMX_PAYS_FROM_WIDTH, choose_device, choose_dtype


@dataclass(frozen=True)
class DeviceReport:
    device: str
    name: str
    memory: int
    free: int
    dtype: DtypeName
    """The dtype that `auto` chooses for a wide model."""
    dtype_reason: str
    dtypes: tuple[DtypeName, ...]
    """Dtypes in which the device can train."""


@dataclass(frozen=True)
class MachineReport:
    system: str
    python: str
    torch: str
    cuda: str | None
    """The CUDA version that torch was built for."""
    default_device: str
    devices: tuple[DeviceReport, ...]
    cores: int
    threads: int
    """CPU threads of torch."""
    compiler: str | None
    """The C++ compiler that torch.compile would use."""
    kind: str = "machine"


def describe_machine() -> MachineReport:
    """Describe this machine."""
    devices = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    devices += [torch.device("mps")] if torch.backends.mps.is_available() else []
    return MachineReport(
        system=f"{platform.system()} {platform.release()}, {platform.machine()}",
        python=platform.python_version(),
        torch=torch.__version__,
        cuda=torch.version.cuda,
        default_device=choose_device("auto").type,
        devices=tuple(_device(device) for device in [*devices, torch.device("cpu")]),
        cores=cores(),
        threads=torch.get_num_threads(),
        compiler=compiler(),
    )


def _device(device: torch.device) -> DeviceReport:
    chosen = choose_dtype(None, device, AMX_PAYS_FROM_WIDTH)
    return DeviceReport(
        device=str(device),
        name=device_name(device),
        memory=total_memory(device),
        free=free_memory(device),
        dtype=chosen.name,
        dtype_reason=chosen.reason,
        dtypes=tuple(dtype for dtype in get_args(DtypeName) if _can_train_in(dtype, device)),
    )


def _can_train_in(dtype: DtypeName, device: torch.device) -> bool:
    try:
        choose_dtype(dtype, device, AMX_PAYS_FROM_WIDTH)
    except DeviceError:
        return False
    return True


def device_name(device: torch.device) -> str:
    """The name of a GPU; for the CPU and Apple's GPUs, that of the processor."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()


def _processor() -> str:
    """The processor's name from /proc/cpuinfo, else from Python."""
    info = Path("/proc/cpuinfo")
    match = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE) if info.exists() else None
    return match[1].strip() if match else platform.processor() or platform.machine()
