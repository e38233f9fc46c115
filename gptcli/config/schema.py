"""The sections of a run's configuration: every field with its type, range, default and meaning.

A run is described by one frozen `RunConfig`. Fields that are None after `build_config` are open: they are filled once
from the data and the machine. `SamplingConfig` belongs to a call, not to a run. Nothing here imports torch.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from gptcli.config.problems import open_if_auto

Schedule = Literal["cosine", "linear", "wsd", "constant"]
DtypeName = Literal["float32", "bfloat16", "float16"]
Compile = Literal["auto", "on", "off"]
OptimizerName = Literal["adamw", "muon"]
Position = Literal["learned", "sinusoidal", "rope"]
Norm = Literal["layernorm", "rmsnorm"]
Placement = Literal["pre", "post"]
Mlp = Literal["gelu", "relu2", "swiglu"]
WindowedLayers = Literal["all", "alternate"]


def parse_duration(value: object) -> object:
    """Seconds from a number or from text such as `90s`, `30m`, `1.5h` or `2d`; the sign and size are checked later."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
    if isinstance(value, str):
        text = value.strip().lower()
        factor = units.get(text[-1:])
        try:
            return float(text[:-1]) * factor if factor else float(text)
        except ValueError:
            raise ValueError("must be a time such as 90s, 30m, 1.5h or 2d") from None
    return value


def _off_or_two(value: float) -> float:
    if value != 0 and value < 2:  # less would skip ordinary updates, and might never let go
        raise ValueError("must be 0 (off) or at least 2")
    return value


DEFAULT_SEED = 1337
"""Of trainings and measurements."""
MAX_COUNT = 10**9
"""Upper bound of every count: no training has so many steps, and more is a typing error."""
MAX_SECONDS = 10 * 365 * 86_400

Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[Finite, Field(gt=0)]
Fraction = Annotated[Finite, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
CountOrZero = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Width = Annotated[int, Field(ge=1, le=2**16)]
Duration = Annotated[Finite, Field(gt=0, le=MAX_SECONDS), BeforeValidator(parse_duration)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, protected_namespaces=())


class TokenizerConfig(_Section):
    """How text becomes tokens."""

    kind: str = "auto"
    """`char`, `bpe`, the path of a tokenizer to use, or `auto`: characters for small text, else BPE. `auto` with a
    `vocab_size` is BPE."""
    vocab_size: Annotated[int, Field(ge=257, le=2**20)] | None = None
    """Entries of a BPE vocabulary that is trained here: 256 bytes, the merges, `<|endoftext|>`; None: 8192."""

    @property
    def entries(self) -> int:
        """Entries of a BPE vocabulary, whether stated or not."""
        return self.vocab_size or 8192

    @property
    def wanted(self) -> str:
        """The kind, as far as the text has no say in it."""
        return "bpe" if self.kind == "auto" and self.vocab_size else self.kind


class DataConfig(_Section):
    """Which text is read and what is held out."""

    val_fraction: Annotated[Finite, Field(gt=0, lt=1)] | None = None
    """Share of the text, its last part, that is held out; None: 10 %, less for large text."""
    include: Annotated[tuple[str, ...], Field(strict=False)] = ("*.txt", "*.md")
    """File name patterns that are read from folders."""


MAX_EXPERTS = 2048


class ModelConfig(_Section):
    """A decoder-only transformer; what follows `dropout` is GPT-2's unless it is set (docs/architectures.md)."""

    vocab_size: Annotated[int, Field(ge=1, le=2**24)]
    """Rows of the token embedding."""
    n_layer: Annotated[int, Field(ge=1, le=512)]
    n_head: Width
    n_embd: Width
    block_size: Annotated[int, Field(ge=1, le=2**20)]
    """Context length in tokens."""
    dropout: Fraction = 0.0
    n_kv_head: Count | None = None
    """Heads of keys and values, each shared by n_head / n_kv_head heads of queries; None becomes n_head."""
    head_dim: Width | None = None
    """Width of a head; None: n_embd / n_head."""
    qk_norm: bool = False
    """RMSNorm over each head's queries and keys."""
    sliding_window: Count | None = None
    """A token sees so many tokens, itself included; None: all before it."""
    windowed_layers: WindowedLayers = "all"
    """Layers with the sliding window; `alternate`: the first, the third and so on."""
    position: Position = "learned"
    rope_base: Positive = 10_000.0
    rope_scaling: Annotated[Finite, Field(ge=1)] = 1.0
    """Positions are divided by this, so that a longer text turns no further than those of training."""
    norm: Norm = "layernorm"
    norm_placement: Placement = "pre"
    norm_epsilon: Positive = 1e-5
    mlp: Mlp = "gelu"
    mlp_width: Annotated[int, Field(ge=1, le=2**18)] | None = None
    """Width inside the MLP; None: 4 n_embd, for swiglu 8/3 n_embd to the next multiple of 32."""
    n_expert: Annotated[int, Field(ge=0, le=256)] = 0
    """MLPs of a block, between which a router chooses for each token; 0: one, without a router."""
    n_expert_active: Count = 2
    """Experts that each token passes through."""
    bias: bool = True
    """Whether linear layers and LayerNorm have biases."""
    tied: bool = True
    """Whether the head shares the token embedding's weights."""
    logit_softcap: Annotated[Finite, Field(ge=0)] = 0.0
    """Logits stay between plus and minus this; 0: no limit."""

    @property
    def head_width(self) -> int:
        return self.head_dim or self.n_embd // self.n_head

    @property
    def kv_heads(self) -> int:
        return self.n_kv_head or self.n_head

    @property
    def qkv_rows(self) -> tuple[int, int, int]:
        """Rows of queries, keys and values in the matrix that gives all three."""
        return self.n_head * self.head_width, self.kv_heads * self.head_width, self.kv_heads * self.head_width

    @property
    def mlp_inner(self) -> int:
        """Width inside the MLP, of each expert where there are several."""
        if self.mlp_width:
            return self.mlp_width
        return 32 * -(-8 * self.n_embd // 96) if self.mlp == "swiglu" else 4 * self.n_embd

    @property
    def mlp_rows(self) -> int:
        """Rows of the matrix into the MLP: SwiGLU's has a gate beside each value."""
        return self.mlp_inner * (2 if self.mlp == "swiglu" else 1)

    def window_of(self, layer: int) -> int | None:
        """How many tokens a token sees in a layer; None: all before it."""
        windowed = self.windowed_layers == "all" or layer % 2 == 0
        return self.sliding_window if windowed else None

    @model_validator(mode="before")
    @classmethod
    def _fill_kv_heads(cls, values: object) -> object:
        if not isinstance(values, dict) or values.get("n_kv_head") is not None:
            return values  # what is no table of settings is told afterwards
        return values | {"n_kv_head": values.get("n_head")}

    @model_validator(mode="after")
    def _fits_together(self) -> ModelConfig:
        if self.n_embd % self.n_head and not self.head_dim:
            raise ValueError(f"n_embd ({self.n_embd}) must be a multiple of n_head ({self.n_head})")
        if self.n_head % self.kv_heads:
            raise ValueError(f"n_head ({self.n_head}) must be a multiple of n_kv_head ({self.n_kv_head})")
        if self.position == "rope" and self.head_width % 2:
            raise ValueError(f"position = 'rope' needs heads of an even width, and theirs is {self.head_width}")
        if self.n_layer * self.n_expert > MAX_EXPERTS:
            raise ValueError(f"n_layer ({self.n_layer}) times n_expert ({self.n_expert}) must be {MAX_EXPERTS} at most")
        if self.n_expert == 1:
            raise ValueError("n_expert must be 0 or at least 2")
        if self.n_expert and self.n_expert_active > self.n_expert:
            raise ValueError(
                f"n_expert_active ({self.n_expert_active}) must not be more than n_expert ({self.n_expert})"
            )
        return self


class OptimConfig(_Section):
    """The optimizer and its learning-rate schedule."""

    optimizer: OptimizerName = "adamw"
    """`muon`: Muon for the matrices inside the blocks, AdamW for everything else."""

    lr: Positive
    """Peak learning rate."""
    schedule: Schedule = "cosine"
    warmup_steps: CountOrZero = 100
    """Steps of linear warm-up from 0 to `lr`; at most a tenth of the run is used."""
    min_lr_fraction: Annotated[Finite, Field(ge=0, le=1)] = 0.0
    """The schedule ends at this share of `lr`."""
    decay_fraction: Annotated[Finite, Field(gt=0, le=1)] = 0.2
    """wsd only: the share of the run, at its end, over which the rate falls."""
    weight_decay: Annotated[Finite, Field(ge=0)] = 0.1
    """Decoupled decay of matrices; one-dimensional parameters are not decayed."""
    momentum: Fraction = 0.95
    """Muon's."""
    beta1: Fraction = 0.9
    """AdamW's, like beta2 and eps."""
    beta2: Fraction = 0.99
    eps: Positive = 1e-8
    grad_clip: Annotated[Finite, Field(ge=0)] = 1.0
    """Largest global gradient norm; 0 turns clipping off."""
    skip_spikes: Annotated[Finite, AfterValidator(_off_or_two)] = 0.0
    """Skip an update whose loss or gradient norm lies so many standard deviations above its running mean, at least 2;
    0: skip none."""
    expert_balance: Annotated[Finite, Field(ge=0)] = 0.01
    """Weight of the loss that spreads tokens over experts; without experts it means nothing."""


class TrainConfig(_Section):
    """Budget, batch, rhythm and machine."""

    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = DEFAULT_SEED
    batch_size: Annotated[int, Field(ge=1, le=2**20)]
    """Sequences per update, over all micro-batches."""
    micro_batch_size: Annotated[Count | None, BeforeValidator(open_if_auto)] = None
    """Sequences that go through the model at once; None, or `auto`: as many as fit. Changes memory, not the recipe."""
    init_from: str | None = None
    """Weights to start from instead of random ones: a run, a folder in Hugging Face's format, or
    hf://owner/name[@revision]. Stored without the way to it."""
    init_sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    """Digest of those weights in float32; where it is stated, no others are taken."""
    max_steps: Count | None = None
    """Updates in all, the span of the schedule; None: from `epochs`, `max_time` or the preset."""
    epochs: Annotated[Finite, Field(gt=0, le=MAX_COUNT)] | None = None
    max_time: Duration | None = None
    """Seconds of training; also as text, such as `30m`."""
    patience: Count | None = None
    """Stop after so many evaluations without a better validation loss."""
    eval_every: Count = 250
    save_every: Count = 250
    sample_every: CountOrZero = 0
    """Steps between samples of text; 0: none."""
    log_every: Count = 10
    eval_tokens: Count = 2**20
    """Validation passes over at most this many tokens, always the same ones."""
    keep_checkpoints: Annotated[int, Field(ge=2)] = 2
    activation_checkpointing: bool = False
    """Compute each block again in the backward pass instead of keeping its activations: less memory, more time."""
    device: str = "auto"
    dtype: Annotated[DtypeName | None, BeforeValidator(open_if_auto)] = None
    """Number format of the matrix products; None, or `auto`: the best that the device has."""
    compile: Compile = "auto"
    deterministic: bool = False
    """On CUDA, use only kernels that give the same bits every time (slower)."""


class RunConfig(_Section):
    """Everything that defines a run."""

    preset: str
    tokenizer: TokenizerConfig = TokenizerConfig()
    data: DataConfig = DataConfig()
    model: ModelConfig
    optim: OptimConfig
    train: TrainConfig


class SamplingConfig(_Section):
    """How one call turns logits into tokens. Belongs to a call, not to a run."""

    max_new_tokens: CountOrZero = 200
    temperature: Annotated[Finite, Field(ge=0)] = 0.8
    """0 is greedy."""
    top_k: CountOrZero = 0
    """Keep the k most likely tokens; 0: all."""
    top_p: Annotated[Finite, Field(gt=0, le=1)] = 1.0
    min_p: Annotated[Finite, Field(ge=0, le=1)] = 0.0
    """Keep tokens at least this share as likely as the most likely one."""
    repetition_penalty: Positive = 1.0
    num_samples: Count = 1
    stop: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(strict=False)] = ()
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = DEFAULT_SEED
    """Sample number i draws from its own stream, seed + i. The command line draws a fresh one where none is given."""


CHANGEABLE_ON_RESUME = frozenset(
    {
        *("train.max_steps", "train.epochs", "train.max_time", "train.patience"),
        *("train.eval_every", "train.save_every", "train.sample_every", "train.log_every", "train.keep_checkpoints"),
        *("train.device", "train.compile", "train.micro_batch_size", "train.activation_checkpointing"),
        "optim.skip_spikes",
    }
)
"""Budgets, rhythms, the machine, and help for a run that has spikes: a run may go on with other values of these, and
of nothing else."""
