"""The choice of device and dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from gptcli.config import DtypeName
from gptcli.errors import DeviceError, UsageError

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
    """The device of this name; `auto` prefers CUDA, then MPS, then the CPU.

    Raises DeviceError for a device that this machine does not have, UsageError for an unknown name.
    """
    if requested == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(requested)
    except RuntimeError:
        raise UsageError(f"There is no device called '{requested}'.", "Use auto, cpu, cuda, cuda:N or mps.") from None
    hint = "Use `device = auto`."
    if device.type == "cuda" and not torch.cuda.is_available():
        raise DeviceError("PyTorch finds no CUDA GPU on this machine.", hint)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise DeviceError(f"There is no GPU {device.index}: this machine has {torch.cuda.device_count()}.", hint)
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise DeviceError("PyTorch finds no Apple GPU on this machine.", hint)
    if device.type not in ("cpu", "cuda", "mps"):
        raise UsageError(f"The device '{requested}' is not supported.", "Use auto, cpu, cuda, cuda:N or mps.")
    return device


def choose_dtype(requested: DtypeName | None, device: torch.device, n_embd: int) -> DtypeChoice:
    """The requested dtype, or the fastest that trains well for a model of width `n_embd`.

    Raises DeviceError for a dtype that the device cannot train in.
    """
    if requested is not None:
        if requested == "bfloat16" and device.type == "cuda" and not torch.cuda.is_bf16_supported(False):
            raise DeviceError("This GPU has no bfloat16 units.", "Use `dtype = float16`.")
        in_tf32 = device.type == "cuda" and requested == "float32"
        return DtypeChoice(torch_dtype(requested), "as requested" + (", with products in TF32" if in_tf32 else ""))
    if device.type == "cuda":
        if torch.cuda.is_bf16_supported(False):
            return DtypeChoice(torch.bfloat16, "because this GPU has bfloat16 units")
        return DtypeChoice(torch.float16, "because this GPU has no bfloat16 units")
    if device.type == "mps":
        return DtypeChoice(torch.float32, "because mixed precision is untested on Apple GPUs")
    if not has_amx():
        return DtypeChoice(torch.float32, "because this CPU has no matrix units for bfloat16")
    if n_embd < AMX_PAYS_FROM_WIDTH:
        return DtypeChoice(torch.float32, "because the model is too narrow to gain from this CPU's bfloat16 units")
    return DtypeChoice(torch.bfloat16, "because this CPU has bfloat16 matrix units (AMX)")


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
