"""Devices and dtypes: the choice, the settings of the process, and the way of tensors to the device."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from gptcli.config import DtypeName
from gptcli.errors import DeviceError, UsageError, first_line

AMX_PAYS_FROM_WIDTH = 256
"""Model width from which bfloat16 products pay for their casts on CPUs with AMX (docs/log.md)."""


@dataclass(frozen=True)
class DtypeChoice:
    """The dtype of matrix products, and the reason for the choice: "because …"."""

    dtype: torch.dtype
    reason: str

    @property
    def name(self) -> DtypeName:
        return dtype_name(self.dtype)


def choose_device(requested: str) -> torch.device:
    """The device of this name; `auto` prefers a usable CUDA GPU, then MPS, then the CPU.

    `cuda` is torch's current GPU, the first one unless another was chosen. Raises DeviceError for a device that this
    machine does not have or that this PyTorch cannot use, UsageError for an unknown name.
    """
    return choose_device_with_note(requested)[0]


def choose_device_with_note(requested: str) -> tuple[torch.device, str]:
    """The device as `choose_device` gives it, and a sentence if `auto` left out a GPU that cannot be used, else ""."""
    if requested == "auto":
        return _automatic_device()
    try:
        device = torch.device(requested)
    except RuntimeError:
        raise UsageError(f"There is no device called '{requested}'.", "Use auto, cpu, cuda, cuda:N or mps.") from None
    hint = "Use `device = auto`."
    if device.type == "cuda" and not torch.cuda.is_available():
        raise DeviceError("PyTorch finds no CUDA GPU on this machine.", hint)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise DeviceError(f"There is no GPU {device.index}: this machine has {torch.cuda.device_count()}.", hint)
    if device.type == "cuda" and (problem := _gpu_problem(device)):
        raise DeviceError(problem, "Use `device = cpu`, or install a PyTorch that supports this GPU.")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise DeviceError("PyTorch finds no Apple GPU on this machine.", hint)
    if device.type not in ("cpu", "cuda", "mps"):
        raise UsageError(f"The device '{requested}' is not supported.", "Use auto, cpu, cuda, cuda:N or mps.")
    return device, ""


def _automatic_device() -> tuple[torch.device, str]:
    note = ""
    if torch.cuda.is_available():
        gpu = torch.device("cuda")
        problem = _gpu_problem(gpu)
        if not problem:
            return gpu, ""
        note = f"{problem} The CPU is used; to use the GPU, install a PyTorch that supports it."
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu"), note


def _gpu_problem(device: torch.device) -> str:
    """A sentence about the reason why torch cannot compute on a GPU, "" if it can.

    `torch.cuda.is_available` is true for a GPU for which this build of torch has no kernels, so a kernel is run.
    """
    try:
        torch.ones(1, device=device).add_(1).item()
    except RuntimeError as error:
        if "no kernel image" not in str(error):
            return f"PyTorch cannot use the GPU: {first_line(error).removesuffix('.')}."
        name, capability = torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device)
        generation = ".".join(map(str, capability))
        return f"This PyTorch ({torch.__version__}) has no kernels for the {name} (compute capability {generation})."
    return ""


def use_device(device: torch.device, *, tf32: bool = False) -> None:
    """Make a GPU the current one of this process, and choose the precision of its float32 products.

    Libraries, pinned memory and generators use the current GPU where no tensor names another. TF32 rounds the factors
    to 10 bits and is several times as fast. Training allows it; loaded models do not, since a text or a score in
    float32 is meant to equal that of other programs, and they generate in 16 bits unless float32 is asked for.
    """
    if device.type == "cuda":
        if device.index is not None:
            torch.cuda.set_device(device)
        torch.set_float32_matmul_precision("high" if tf32 else "highest")


def current_gpu(device: torch.device) -> AbstractContextManager[object]:
    """A context in which a GPU is the current one, about which memory estimates ask torch."""
    return torch.cuda.device(device) if device.index is not None and device.type == "cuda" else nullcontext()


def has_tf32(device: torch.device) -> bool:
    """Whether the device has TF32 units: NVIDIA's GPUs from Ampere on."""
    return device.type == "cuda" and not torch.version.hip and torch.cuda.get_device_capability(device) >= (8, 0)


def choose_dtype(requested: DtypeName | None, device: torch.device, n_embd: int) -> DtypeChoice:
    """The requested dtype, or the fastest that trains well for a model of width `n_embd`.

    Raises DeviceError for a dtype that the device cannot train in.
    """
    if requested is not None:
        if requested == "bfloat16" and device.type == "cuda" and not _has_bfloat16(device):
            raise DeviceError("This GPU has no bfloat16 units.", "Use `dtype = float16`.")
        return DtypeChoice(torch_dtype(requested), "as requested")
    if device.type == "cuda":
        if _has_bfloat16(device):
            return DtypeChoice(torch.bfloat16, "because this GPU has bfloat16 units")
        return DtypeChoice(torch.float16, "because this GPU has no bfloat16 units")
    if device.type == "mps":
        return DtypeChoice(torch.float32, "because mixed precision is untested on Apple GPUs")
    if not has_amx():
        return DtypeChoice(torch.float32, "because this CPU has no matrix units for bfloat16")
    if n_embd < AMX_PAYS_FROM_WIDTH:
        return DtypeChoice(torch.float32, "because the model is too narrow to gain from this CPU's bfloat16 units")
    return DtypeChoice(torch.bfloat16, "because this CPU has bfloat16 matrix units (AMX)")


def _has_bfloat16(device: torch.device) -> bool:
    """Whether a GPU has bfloat16 units. `torch.cuda.is_bf16_supported` answers for the current GPU only."""
    return bool(torch.version.hip) or torch.cuda.get_device_capability(device) >= (8, 0)


def has_amx() -> bool:
    """Whether the CPU multiplies bfloat16 matrices in hardware that is faster than float32 (AMX)."""
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(capabilities.get("amx_bf16"))


def torch_dtype(name: DtypeName) -> torch.dtype:
    """ "float32" → torch.float32."""
    dtype: torch.dtype = getattr(torch, name)
    return dtype


def dtype_name(dtype: torch.dtype) -> DtypeName:
    """torch.float32 → "float32"."""
    return cast(DtypeName, str(dtype).removeprefix("torch."))


def autocast(device: torch.device, dtype: torch.dtype) -> torch.autocast:
    """Mixed precision in `dtype`; disabled for float32 and float64."""
    return torch.autocast(device.type, dtype=dtype, enabled=dtype in (torch.bfloat16, torch.float16))


def product_dtype(x: Tensor) -> torch.dtype:
    """The dtype of matrix products with `x`: that of autocast where it is on."""
    device_type = x.device.type
    return torch.get_autocast_dtype(device_type) if torch.is_autocast_enabled(device_type) else x.dtype


def to_device(ids: Tensor, device: torch.device) -> Tensor:
    """Copy ids from the host to the device without waiting for it."""
    if device.type == "cuda":
        ids = ids.pin_memory()  # else the copy waits for the device
    return ids.to(device, non_blocking=True)
