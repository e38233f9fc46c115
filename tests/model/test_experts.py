"""All experts at once, as on CUDA, against one expert after the other; nothing is read on the host."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from gptcli.generation.placement import bind_submodules
from gptcli.model import experts, grouping
from gptcli.model.cache import KVCache
from gptcli.model.experts import Experts, Routing
from gptcli.model.gpt import GPT, MLP
from gptcli.model.grouping import group_rows, has_grouped_kernel
from tests.model.reference import assert_close, random_model
from tests.model.variants import variant

MLPS: dict[str, dict[str, Any]] = {
    "gelu": {},
    "relu2 without bias": {"mlp": "relu2", "bias": False},
    "swiglu": {"mlp": "swiglu", "bias": False, "mlp_width": 24},
}


def make_experts(count: int = 4, active: int = 2, dtype: torch.dtype = torch.float64, **options: Any) -> Experts:
    config = variant("experts", n_expert=count, n_expert_active=active, **options)
    torch.manual_seed(3)
    experts = Experts(config, [MLP(config) for _ in range(count)]).to(dtype)
    for parameter in experts.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return experts


def routes(tokens: int, experts: int, active: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Random tokens (N, 16), and random weights and numbers of their experts, both (N, K)."""
    scores = torch.rand(tokens, experts, dtype=dtype)
    weights, chosen = scores.topk(active, dim=1)
    return torch.randn(tokens, 16, dtype=dtype), weights, chosen


def outcome(mix: Any, experts: Experts, tokens: Tensor, weights: Tensor, chosen: Tensor) -> list[Tensor]:
    """What the experts compute, and its gradients by tokens, weights and parameters."""
    tokens, weights = tokens.clone().requires_grad_(), weights.clone().requires_grad_()
    parameters = [parameter for name, parameter in experts.named_parameters() if "router" not in name]
    out = mix(tokens, weights, chosen)
    scale = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    return [out, *torch.autograd.grad((out * scale).sum(), [tokens, weights, *parameters], materialize_grads=True)]


def check_at_once(mixture: Experts, given: tuple[Tensor, Tensor, Tensor], tolerance: float = 1e-12) -> None:
    one = outcome(mixture.mix_one_by_one, mixture, *given)
    for known, actual in zip(one, outcome(mixture.mix_at_once, mixture, *given), strict=True):
        assert (actual - known).abs().max() <= tolerance * max(1.0, known.abs().max().item())


@pytest.mark.parametrize("tokens", [1, 2, 7, 40, 130])
@pytest.mark.parametrize(("count", "active"), [(4, 2), (3, 3), (8, 1)])
def test_at_once_is_one_by_one(count: int, active: int, tokens: int) -> None:
    check_at_once(make_experts(count, active), routes(tokens, count, active))


@pytest.mark.parametrize("options", MLPS.values(), ids=MLPS)
def test_every_mlp(options: dict[str, Any]) -> None:
    check_at_once(make_experts(**options), routes(33, 4, 2))


def test_one_expert_gets_every_token() -> None:
    tokens, weights, _ = routes(50, 4, 1)
    for number in (0, 2, 3):
        check_at_once(make_experts(4, 1), (tokens, weights, torch.full((50, 1), number)))


@pytest.fixture
def grouped_kernel(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """torch's grouped product as on Hopper; its operations on a CPU are the same. Gives the ends of its groups."""
    plain, ends = F.grouped_mm, []

    def grouped_mm(x: Tensor, weight: Tensor, *, offs: Tensor) -> Tensor:
        ends.append(offs)
        return plain(x, weight, offs=offs)

    monkeypatch.setattr(experts, "has_grouped_kernel", lambda *_given: True)
    monkeypatch.setattr(grouping.F, "grouped_mm", grouped_mm)
    return ends


@pytest.mark.parametrize("tokens", [1, 40, 130])
def test_grouped_kernel_is_one_by_one(tokens: int, grouped_kernel: list[Tensor]) -> None:
    check_at_once(make_experts(dtype=torch.float32), routes(tokens, 4, 2, torch.float32), 1e-5)
    assert len(grouped_kernel) == 2
    for ends in grouped_kernel:  # what the kernel asserts: groups aligned to 16 bytes, and no row outside of them
        assert ends.dtype == torch.int32
        assert not (ends % 8).any()
        assert (ends.diff() >= 0).all()


@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (12, 0)])
def test_grouped_kernel_by_gpu(capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: capability)
    for dtype, width in ((torch.bfloat16, 64), (torch.bfloat16, 60), (torch.float16, 64), (torch.float32, 64)):
        expected = capability[0] in (9, 10) and dtype is torch.bfloat16 and width == 64
        assert has_grouped_kernel(torch.device("cuda"), dtype, 64, width) == expected


@pytest.mark.parametrize("block", [1, 3, 8])
def test_blocks_have_one_owner_and_room_for_any_choice(block: int) -> None:
    for seed in range(20):
        torch.manual_seed(seed)
        chosen = torch.randint(5, (30,)) if seed else torch.zeros(30, dtype=torch.long)
        groups = group_rows(chosen, 5, block)
        assert len(groups.slots.unique()) == 30
        assert torch.equal(groups.owners[groups.slots // block], chosen)
        assert groups.ends[-1] == len(groups.owners) * block
        assert len(groups.owners) == min(30, 30 // block + 5)


class NoHostReads(TorchDispatchMode):
    """Fails on operations that wait for a GPU: their result, or its shape, depends on numbers on the device."""

    reads = ("_local_scalar_dense", "nonzero", "equal", "is_nonzero", "masked_select", "unique", "bincount")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__.lstrip("_")
        assert not name.startswith(tuple(read.lstrip("_") for read in self.reads)), func
        return func(*args, **(kwargs or {}))


def train(experts: Experts) -> None:
    x = torch.randn(2, 9, 16, dtype=torch.float64, requires_grad=True)
    routing = Routing()
    out = experts(x, routing)
    (out.square().sum() + routing.balance_loss()).backward()


def test_nothing_is_read_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    experts = make_experts(dropout=0.1)
    with NoHostReads(), pytest.raises(AssertionError, match="nonzero"):
        train(experts)
    monkeypatch.setattr(experts, "mix_one_by_one", experts.mix_at_once)
    with NoHostReads():
        train(experts)


def test_other_devices_than_cpu_and_mps_take_all_experts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The meta device stands for CUDA: its tensors have no numbers, and an operation that needs them fails."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _device_type: False)  # unknown for that device
    config = variant("mixtral")
    with torch.device("meta"):
        experts = Experts(config, [MLP(config) for _ in range(4)])
        routing = Routing()
        out = experts(torch.empty(2, 9, 16), routing)
        assert out.shape == (2, 9, 16)
        assert out.device.type == routing.balance_loss().device.type == "meta"
        with pytest.raises(NotImplementedError, match="nonzero"):
            experts.mix_one_by_one(*routes(5, 4, 2))


@pytest.mark.filterwarnings("ignore")  # of torch's compiler
def test_compiled_code_serves_every_choice_of_experts(monkeypatch: pytest.MonkeyPatch) -> None:
    """One graph without a break, also where torch is asked about the GPU."""
    mixture, compiled, traced = make_experts(), [], []
    asked = partial(has_grouped_kernel, torch.device("cuda"), torch.bfloat16)

    def capability(_device: torch.device) -> tuple[int, int]:
        traced.append(torch.compiler.is_dynamo_compiling())
        return 8, 0

    monkeypatch.setattr(torch.cuda, "get_device_capability", capability)
    monkeypatch.setattr(experts, "has_grouped_kernel", lambda _device, _dtype, *widths: asked(*widths))

    def backend(graph: torch.fx.GraphModule, _inputs: list[Tensor]) -> Any:
        compiled.append(graph)
        return graph

    torch.compiler.reset()
    fast = torch.compile(mixture.mix_at_once, backend=backend, fullgraph=True, dynamic=False)
    for _ in range(3):
        given = routes(40, 4, 2)
        assert torch.allclose(fast(*given), mixture.mix_one_by_one(*given))
    assert len(compiled) == 1
    assert traced == [False]  # asked once, by the compiler
    torch.compiler.reset()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models take the way of CUDA."""
    monkeypatch.setattr(Experts, "mix_one_by_one", Experts.mix_at_once)


def decoded(model: GPT, ids: Tensor) -> Tensor:
    """Logits of ids (B, T) token by token, with a cache."""
    cache = KVCache(model.config, len(ids), device=ids.device, dtype=torch.float64)
    return torch.cat([model(token, cache) for token in ids.split(1, dim=1)], dim=1)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("name", ["experts", "all experts", "mixtral windows"])
def test_cached_is_uncached(name: str) -> None:
    model = random_model(variant(name), torch.float64)
    ids = torch.randint(23, (3, 12))
    assert_close(decoded(model, ids), model(ids))


@pytest.mark.usefixtures("at_once")
def test_stacked_weights_take_no_memory_of_their_own() -> None:
    model = random_model(variant("mixtral"), torch.float64).requires_grad_(False).eval()
    ids = torch.randint(23, (2, 12))
    expected = model(ids)
    for block in model.h:
        block.mlp.keep_stacked()
    storages = {parameter.untyped_storage().data_ptr() for parameter in model.h[0].mlp.experts.parameters()}
    assert len(storages) == 2  # one for each matrix, whatever the number of experts
    assert torch.equal(model(ids), expected)
    assert torch.equal(bind_submodules(model)(ids), expected)
