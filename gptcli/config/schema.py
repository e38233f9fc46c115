"""The sections of a configuration: every field with its type, range, default and meaning.

A run is described by one frozen `RunConfig`. Fields that are None after `build_config` are filled once from the data
and the machine. `SamplingConfig` belongs to a call, not to a run. A field's docstring is its `description` too, and its
first sentence the help text of its flag. Nothing here imports torch.
"""

from __future__ import annotations

import codecs
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from gptcli.config.model import ModelConfig
from gptcli.config.types import (
    DEFAULT_SEED,
    MAX_COUNT,
    Compile,
    Count,
    CountOrZero,
    DtypeName,
    Duration,
    Finite,
    Fraction,
    Parallel,
    Positive,
    Section,
    open_if_auto,
)


class TokenizerConfig(Section):
    """How text becomes tokens."""

    kind: str = "auto"
    """Tokenizer: `char`, `bpe`, the path of a tokenizer.json or vocab.json, or `auto` (char below 1.5 MB of text, else
    bpe). `auto` with a `vocab_size` means `bpe`."""
    vocab_size: Annotated[int, Field(ge=257, le=2**20)] | None = None
    """Entries of a new BPE vocabulary (default: 8192). They are 256 bytes, the merges and `<|endoftext|>`."""

    @property
    def entries(self) -> int:
        """Entries of a BPE vocabulary, stated or default."""
        return self.vocab_size or 8192

    @property
    def wanted(self) -> str:
        """The kind, as far as it does not depend on the text."""
        return "bpe" if self.kind == "auto" and self.vocab_size else self.kind


def _codec(value: str) -> str:
    """The name under which Python lists an encoding; ValueError if it is none of text."""
    if value == "auto":
        return value
    try:
        b"\0\0\0\0".decode(value)  # an empty text is decoded without a look at the encoding
        return codecs.lookup(value).name
    except (LookupError, UnicodeError, ValueError):
        raise ValueError("must be auto, or an encoding that Python knows, such as cp1252") from None


def _unescaped(text: str) -> str:
    """A text whose line ends and tabs may be written as \\n and \\t, as on a command line."""
    return text.replace("\\n", "\n").replace("\\t", "\t")


class DataConfig(Section):
    """Files to read, how to read them, text to hold out, and the weights of several parts."""

    val_fraction: Annotated[Finite, Field(gt=0, lt=1)] | None = None
    """Share of the text held out for validation (default: 0.1, less for large text)."""
    include: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """File name patterns to read from folders (default: text and every other format that can be read)."""
    exclude: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Patterns of files and folders to leave out of folders."""
    format: str = "auto"
    """Format of every file: `text`, `jsonl`, `csv` or another, or `auto` (by the name of the file)."""
    text_field: Annotated[str, Field(min_length=1)] | None = None
    """Column of the text in rows, with dots for nested ones (default: found by its name)."""
    encoding: Annotated[str, AfterValidator(_codec)] = "utf-8"
    """Encoding of text: any of Python's, such as `cp1252`, or `auto`."""
    errors: Literal["strict", "replace", "skip"] = "strict"
    """Bytes and rows that cannot be read: `strict` refuses them, `replace` puts U+FFFD for bytes, `skip` skips both,
    and whole files of folders."""
    newline: Literal["keep", "lf"] = "keep"
    """Line ends: `keep` them, or turn CRLF and CR into `lf`."""
    doc_separator: Annotated[str, Field(min_length=1), AfterValidator(_unescaped)] | None = None
    """Text that separates the documents of a plain text, such as `<|endoftext|>` or `\\n---\\n` (default: a file is a
    document)."""
    dedup: Literal["off", "exact", "near"] = "off"
    """Documents that repeat earlier ones: keep them (`off`), or leave out `exact` or also `near` copies."""
    weights: Annotated[tuple[Positive, ...], Field(strict=False)] | None = None
    """Shares of the sequences of each part, in their order and in any unit, where the data is several datasets or
    texts: `a=0.7 b=0.3` states them with the data (default: none, one dataset of everything)."""


def _off_or_two(value: float) -> float:
    if value != 0 and value < 2:  # less would skip ordinary updates
        raise ValueError("must be 0 (off) or at least 2")
    return value


class OptimConfig(Section):
    """The optimizer and its learning-rate schedule."""

    optimizer: Literal["adamw", "muon"] = "adamw"
    """Optimizer: `adamw`, or `muon` (Muon for the matrices inside the blocks, AdamW for everything else)."""
    lr: Positive
    """Peak learning rate."""
    schedule: Literal["cosine", "linear", "wsd", "constant"] = "cosine"
    """Learning-rate schedule: `cosine`, `linear`, `wsd` or `constant`."""
    warmup_steps: CountOrZero = 100
    """Steps of linear warm-up from 0 to `lr`, at most a tenth of the run."""
    min_lr_fraction: Annotated[Finite, Field(ge=0, le=1)] = 0.0
    """Final learning rate as a share of `lr`."""
    decay_fraction: Annotated[Finite, Field(gt=0, le=1)] = 0.2
    """Share of the run, at its end, over which the `wsd` schedule decays."""
    weight_decay: Annotated[Finite, Field(ge=0)] = 0.1
    """Decoupled weight decay of matrices. One-dimensional parameters are not decayed."""
    momentum: Fraction = 0.95
    """Momentum of Muon."""
    beta1: Fraction = 0.9
    """AdamW's decay rate of the first moment."""
    beta2: Fraction = 0.99
    """AdamW's decay rate of the second moment."""
    eps: Positive = 1e-8
    """AdamW's epsilon."""
    grad_clip: Annotated[Finite, Field(ge=0)] = 1.0
    """Largest global gradient norm; 0: no clipping."""
    skip_spikes: Annotated[Finite, AfterValidator(_off_or_two)] = 0.0
    """Skip updates whose loss or gradient norm is this many standard deviations above its running mean, at least 2; 0:
    skip none."""
    expert_balance: Annotated[Finite, Field(ge=0)] = 0.01
    """Weight of the loss that balances the load of experts. Ignored without experts."""


class TrainConfig(Section):
    """Budget, batch size, intervals and machine."""

    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = DEFAULT_SEED
    """Seed of weights, batches and dropout."""
    batch_size: Annotated[int, Field(ge=1, le=2**20)]
    """Sequences per update, over all micro-batches."""
    micro_batch_size: Annotated[Count | None, BeforeValidator(open_if_auto)] = None
    """Sequences per forward pass, or `auto` (default: auto, as many as fit). It changes memory, not the result."""
    init_from: str | None = None
    """Weights to start from: a run, a Hugging Face folder, or hf://owner/name[@revision] (default: random weights).
    Stored as a name without its path."""
    init_sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    """SHA-256 of those weights in float32 (default: not checked). Other weights are refused."""
    max_steps: Count | None = None
    """Number of updates; the schedule ends there (default: from `epochs`, `max_time` or the preset)."""
    epochs: Annotated[Finite, Field(gt=0, le=MAX_COUNT)] | None = None
    """Passes over the training text (default: no limit)."""
    max_time: Duration | None = None
    """Training time in seconds, or as text such as 90s, 30m or 1.5h (default: no limit; for the choice of a model 3m on
    a CPU and 10m on a GPU)."""
    patience: Count | None = None
    """Evaluations without a better validation loss before training stops (default: no limit)."""
    eval_every: Count | None = None
    """Steps between evaluations (default: a twentieth of the run)."""
    save_every: Count | None = None
    """Steps between checkpoints (default: as `eval_every`, and at least every ten minutes)."""
    sample_every: CountOrZero = 0
    """Steps between generated samples; 0: none."""
    log_every: Count = 10
    """Steps between log entries."""
    log_layers: bool = False
    """Log the norms of activations and gradients of each layer too, for the first tokens of the validation split."""
    eval_tokens: Count | None = None
    """Largest number of validation tokens per evaluation (default: twenty evaluations take a tenth of the time). Every
    evaluation scores the same ones."""
    keep_checkpoints: Annotated[int, Field(ge=2)] = 2
    """Number of newest checkpoints to keep."""
    activation_checkpointing: bool = False
    """Recompute each block in the backward pass instead of keeping its activations: less memory, more time."""
    device: str = "auto"
    """Device: `auto`, `cpu`, `cuda`, `cuda:N` or `mps`."""
    dtype: Annotated[DtypeName | None, BeforeValidator(open_if_auto)] = None
    """Dtype of matrix products: `auto`, `float32`, `bfloat16` or `float16` (default: auto, the best for the device)."""
    compile: Compile = "auto"
    """Use of torch.compile: `auto`, `on` or `off`."""
    parallel: Annotated[Parallel | None, BeforeValidator(open_if_auto)] = None
    """Weights of several processes: `replicated` (all on each), `fsdp` (sharded: a part on each), or `auto` (default:
    auto, replicated where they fit with gradients and optimizer). It changes memory, and the result by rounding."""
    loggers: Annotated[tuple[Literal["wandb", "mlflow", "trackio"], ...], Field(strict=False)] | None = None
    """Experiment trackers that the run is logged to besides its folder: `wandb`, `mlflow` or `trackio` (default:
    none)."""
    deterministic: bool = False
    """On CUDA, use only deterministic kernels, which are slower."""


class RunConfig(Section):
    """Everything that defines a run."""

    preset: str
    """Preset of model and recipe."""
    tokenizer: TokenizerConfig = TokenizerConfig()
    data: DataConfig = DataConfig()
    model: ModelConfig
    optim: OptimConfig
    train: TrainConfig


class SamplingConfig(Section):
    """How to generate text from a model. It belongs to a call, not to a run."""

    max_new_tokens: CountOrZero = 200
    """Number of tokens to generate."""
    temperature: Annotated[Finite, Field(ge=0)] = 0.8
    """Sampling temperature; 0: always the most likely token."""
    top_k: CountOrZero = 0
    """Sample from the k most likely tokens; 0: from all."""
    top_p: Annotated[Finite, Field(gt=0, le=1)] = 1.0
    """Sample from the most likely tokens that make up this probability."""
    min_p: Annotated[Finite, Field(ge=0, le=1)] = 0.0
    """Sample from tokens at least this fraction as likely as the most likely one."""
    repetition_penalty: Positive = 1.0
    """Above 1: makes tokens that occurred before less likely."""
    num_samples: Count = 1
    """Number of samples to generate, all at once."""
    stop: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(strict=False)] = ()
    """Texts that end a sample and are left out of it."""
    logprobs: CountOrZero = 0
    """Show the most likely tokens at each step, with their probabilities before temperature and filters; 0: none."""
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = DEFAULT_SEED
    """Seed of the first sample. Sample number i uses seed + i; the command line draws a fresh seed if none is given."""


CHANGEABLE_ON_RESUME = frozenset(
    {
        *("train.max_steps", "train.epochs", "train.max_time", "train.patience"),
        *("train.eval_every", "train.save_every", "train.sample_every", "train.log_every", "train.keep_checkpoints"),
        *("train.eval_tokens", "train.log_layers"),
        *("train.device", "train.compile", "train.micro_batch_size", "train.activation_checkpointing"),
        "train.parallel",
        "train.loggers",
        "optim.skip_spikes",
    }
)
"""Settings that a resumed run may change: budgets, intervals, the machine, and the handling of spikes."""
