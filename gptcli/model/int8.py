"""8-bit weights for sampling on a CPU, where reading weights takes most of the time.

The weights of an output are integers from -127 to 127 times one scale. Each input row is quantized by itself to 256
steps between its smallest and largest number, so that the products are exact integer products ("dynamic quantization";
Dettmers et al. 2022, "LLM.int8()", section 2). Norms, attention and the embedding lookup stay float32.

Letters: N rows, I inputs, O outputs, V vocabulary.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gptcli.errors import DeviceError, UsageError
from gptcli.model.experts import Experts
from gptcli.model.gpt import GPT
from gptcli.model.loss import softcapped

ENGINE = "fbgemm"
"""torch's engine for packed 8-bit weights, available on x86."""
MIN_STEP = 6.1e-5
"""Smallest quantization step of fbgemm."""
LOSS_ROWS = 512
"""Rows whose logits are in memory at once in the loss."""


class Int8Linear(nn.Module):
    """`nn.Linear` with 8-bit weights: (..., I) → (..., O).

    A single row uses torch's packed kernel, which is memory-bound; several rows use an integer matrix product. Both do
    the same arithmetic, so that a row's result does not depend on other rows.
    """

    scale: Tensor
    bias: Tensor | None
    sums: Tensor

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Quantize `weight` (O, I); it and `bias` (O) are float32 on a CPU."""
        super().__init__()
        scale = (weight.abs().amax(dim=1) / 127).clamp_(min=torch.finfo(torch.float32).tiny)  # (O)
        whole = (weight / scale[:, None]).round_().to(torch.int8)  # (O, I)
        self.weight = nn.Parameter(whole, requires_grad=False)
        self.register_buffer("scale", scale, persistent=False)
        self.register_buffer("bias", bias if bias is None else bias.detach(), persistent=False)
        self.register_buffer("sums", whole.sum(dim=1, dtype=torch.int32), persistent=False)  # (O)
        # Without VNNI instructions the kernels add pairs of products in 16 bits, which hold 7 bits times 8.
        self.seven_bits = not has_vnni()
        self._packed = _pack(whole, scale, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        if x.numel() == x.shape[-1]:
            out: Tensor = torch.ops.quantized.linear_dynamic(x, self._packed, self.seven_bits)
            return out
        return self.rows(x.flatten(0, -2)).view(*x.shape[:-1], len(self.scale))

    def rows(self, x: Tensor) -> Tensor:
        """(N, I) → (N, O), each row as in the single-row kernel, bit for bit on CPUs with fused multiply-add."""
        top = 127 if self.seven_bits else 255
        scale, zero = _steps(x, top)  # 2 of (N, 1)
        # Fused multiply-add rounds once, as a float64 product and sum do.
        steps = (x.double() * (1 / scale).double() + zero).float().round_().clamp_(0, top)  # (N, I)
        products = torch._int_mm((steps - 128).to(torch.int8), self.weight.t())  # (N, O)
        products -= (zero.to(torch.int32) - 128) * self.sums
        out = products.float().double() * (scale * self.scale).double()  # (N, O)
        return (out if self.bias is None else out.add_(self.bias)).float()


def _steps(x: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """Scale and zero point, both (N, 1), of rows (N, I) quantized to 0 … `top`.

    As in fbgemm's `ChooseQuantizationParams`: 0 is exact, counted from the end of the range that rounds it better.
    """
    low, high = x.aminmax(dim=-1, keepdim=True)  # 2 of (N, 1)
    low, high = low.clamp_(max=0).double(), high.clamp_(min=0).double()
    width = (high - low) / top
    width = torch.where(width.float() == 0, 0.1, width)
    zero = torch.where((low / width).abs() < top + (high / width).abs(), -low / width, top - high / width)
    return width.clamp_(min=MIN_STEP).float(), zero.round_().clamp_(0, top)


def _pack(whole: Tensor, scale: Tensor, bias: Tensor | None) -> object:
    """The weights packed for the single-row kernel."""
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = ENGINE
    try:
        with warnings.catch_warnings():
            # Deprecated, but the only way to pack.
            warnings.filterwarnings("ignore", "torch.quantize_per_tensor", UserWarning)
            zeros = torch.zeros(len(scale), dtype=torch.long)
            quantized = torch._make_per_channel_quantized_tensor(whole, scale.double(), zeros, 0)
            return torch.ops.quantized.linear_prepack(quantized, bias)
    finally:
        torch.backends.quantized.engine = before


def has_vnni() -> bool:
    """Whether the CPU accumulates 8-bit products in 32 bits."""
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(capabilities.get("avx512_vnni"))


class Int8GPT(GPT):
    """A model with 8-bit weights in its linear layers; their float32 weights are freed."""

    def __init__(self, model: GPT) -> None:
        """Take over the modules of `model`, which must not be used afterwards. Raises as `require_int8`."""
        require_int8(model.wte.weight.device, model.wte.weight.dtype)
        nn.Module.__init__(self)
        self.config = model.config
        for name, part in model.named_children():
            if name != "lm_head":
                self.add_module(name, part)
        for name, buffer in model._buffers.items():
            self.register_buffer(name, buffer, persistent=False)
        self.int8_head = Int8Linear(model.head_weight, None)
        for part in self.h.modules():
            _quantize_children(part)
        self.train(model.training)

    def head(self, hidden: Tensor) -> Tensor:
        """Hidden states (..., C) → logits (..., V)."""
        return softcapped(self.int8_head(hidden), self.config.logit_softcap)

    def summed_loss(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Summed cross-entropy in nats, (): hidden states (B, T, C), next tokens `targets` (B, T)."""
        parts = zip(
            torch.split(hidden.flatten(0, 1), LOSS_ROWS), torch.split(targets.flatten(), LOSS_ROWS), strict=True
        )
        return torch.stack([F.cross_entropy(self.head(rows), ids, reduction="sum") for rows, ids in parts]).sum()


def require_int8(device: torch.device, dtype: torch.dtype) -> None:
    """Raise DeviceError if weights on the device cannot be quantized, UsageError unless they are float32."""
    hint = "Leave out `quantize`."
    if device.type != "cpu":
        raise DeviceError(f"8-bit weights need a CPU; the model is on {device}.", hint)
    if dtype != torch.float32:
        raise UsageError("8-bit weights replace float32 weights only.", "Use `quantize` or `dtype`, not both.")
    if ENGINE not in torch.backends.quantized.supported_engines:
        raise DeviceError("This torch has no 8-bit kernels for this processor.", hint)


def _quantize_children(part: nn.Module) -> None:
    """Replace the linear layers of a module, except the router of experts, which is small and sensitive."""
    for name, child in part.named_children():
        if isinstance(child, nn.Linear) and not (isinstance(part, Experts) and name == "router"):
            setattr(part, name, Int8Linear(child.weight, child.bias))
