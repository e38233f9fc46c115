"""The target of a benchmark: a recipe, random tokens to train on, and a model to generate with.

Speed does not depend on the text or the weights, so that no text is needed, and for a preset no trained weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, product
from pathlib import Path

import numpy as np
import torch

from gptcli.checkpoints.model_folder import read_model_config
from gptcli.checkpoints.run_folder import is_run, read_run
from gptcli.config import DEFAULT_SEED, DtypeName, Quantization, RunConfig, build_config, nearest_preset
from gptcli.config.values import Values, nest
from gptcli.dataset.folder import Dataset, Split
from gptcli.dataset.shards import TokenStream, dtype_for
from gptcli.generation.loaded_model import LoadedModel, load
from gptcli.generation.placement import place
from gptcli.interop.hub import model_name
from gptcli.model.devices import current_gpu
from gptcli.model.gpt import GPT
from gptcli.report.model import within_context
from gptcli.report.untrained import Untrained
from gptcli.runs.completion import complete
from gptcli.runs.decision import NewRun
from gptcli.runs.request import Request
from gptcli.tokenizer.bytelevel import Tokenizer
from gptcli.tokenizer.document import entry_of_bytes, new_document

TEXT_TOKENS = 2**20
"""Number of random tokens: more than the processor's caches hold."""


@dataclass(frozen=True)
class BenchOptions:
    """Options of a benchmark; None leaves the choice to the recipe and the machine."""

    device: torch.device
    dtype: DtypeName | None = None
    batch_size: int | None = None
    """Sequences per update, and texts generated at once."""
    length: int | None = None
    """Tokens per sequence."""
    seed: int = DEFAULT_SEED
    quantize: Quantization | None = None
    """Rounding of the weights for generation."""


@dataclass(frozen=True)
class BenchTarget:
    """A model to be trained and sampled on a device."""

    name: str
    config: RunConfig
    """Complete; its batch is one micro-batch, unless a batch size was stated."""
    dataset: Dataset
    """Random tokens."""
    load: Callable[[], LoadedModel]
    """Loads the model on the device and in the dtype that `sample` uses."""
    samples: int
    """Texts to generate at once."""


def untrained_target(model: Untrained, options: BenchOptions) -> BenchTarget:
    """An untrained model with random weights. Raises ConfigError, UsageError or OutOfMemoryError."""
    config, dataset = _training(model.preset, model.values, model.vocab_size, options)
    return BenchTarget(
        model.name, config, dataset, partial(_random_model, config, dataset, options), options.batch_size or 1
    )


def folder_target(path: Path, options: BenchOptions) -> BenchTarget:
    """A run with its own recipe, or another model folder with the recipe of the nearest preset.

    Raises the errors of opening it, UsageError or OutOfMemoryError.
    """
    model = read_model_config(path)
    preset_name, recipe = nearest_preset(model), Values()
    if is_run(path):
        stored = read_run(path).config
        preset_name = stored.preset
        recipe = {"optim": stored.optim.model_dump(), "train": {"batch_size": stored.train.batch_size}}
    recipe["model"] = model.model_dump()
    config, dataset = _training(preset_name, recipe, model.vocab_size, options)
    loader = partial(load, path, device=str(options.device), dtype=options.dtype, quantize=options.quantize)
    return BenchTarget(model_name(path), config, dataset, loader, options.batch_size or 1)


def stand_in_tokenizer(vocab_size: int) -> Tokenizer:
    """A tokenizer of `vocab_size` meaningless ids: single bytes, then pairs, then triples."""
    data = chain.from_iterable(product(range(256), repeat=length) for length in (1, 2, 3))
    vocab = {entry_of_bytes(bytes(entry)): token for token, entry in enumerate(islice(data, vocab_size - 1))}
    return Tokenizer(new_document(vocab, [], vocab_size - 1))


def random_dataset(vocab_size: int, block_size: int, seed: int) -> Dataset:
    """A dataset of random tokens in memory."""
    count = max(TEXT_TOKENS, 2 * block_size)
    ids = np.random.default_rng(seed).integers(0, vocab_size, count, dtype=dtype_for(vocab_size))
    split = Split(count, count, count, TokenStream([ids]))
    return Dataset(
        path=Path(),
        name="random",
        fingerprint="",
        tokenizer=stand_in_tokenizer(vocab_size),
        start_id=0,
        documents=1,
        uses_end_of_text=False,
        sources=(),
        train=split,
        val=split,
    )


def _training(preset_name: str, recipe: Values, vocab_size: int, options: BenchOptions) -> tuple[RunConfig, Dataset]:
    """The complete config of a training by `recipe` over the preset, and its dataset."""
    context = build_config(preset_name, recipe, vocab_size=vocab_size).model.block_size
    length = within_context(options.length, context)
    dataset = random_dataset(vocab_size, length, options.seed)
    stated = {"train.batch_size": options.batch_size, "train.dtype": options.dtype, "train.seed": options.seed}
    request = Request(preset=preset_name, file=recipe, flags=nest({"model.block_size": length, **stated}))
    with current_gpu(options.device):
        completed = complete(request, NewRun(Path()), dataset, options.device, measures=False)
    if completed.refusal:
        raise completed.refusal
    config = completed.config
    at_once = config.train.model_copy(update={"batch_size": options.batch_size or config.train.micro_batch_size})
    return config.model_copy(update={"train": at_once}), dataset


def _random_model(config: RunConfig, dataset: Dataset, options: BenchOptions) -> LoadedModel:
    """An untrained model, on the device and in the dtype that `sample` uses."""
    torch.manual_seed(options.seed)
    model = GPT(config.model).requires_grad_(False).eval()
    model = place(model, options.device, options.dtype, int8=options.quantize == "int8")
    return LoadedModel(Path(config.preset), model, dataset.tokenizer, start_id=0)
