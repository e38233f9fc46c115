"""A trained model in memory: load it by path or name, generate text, score texts."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, get_args

import torch

from gptcli.checkpoints.finding import find_model
from gptcli.checkpoints.model_folder import read_model, read_model_config
from gptcli.config import DataConfig, DtypeName, Quantization, SamplingConfig, parse_section
from gptcli.config.values import nest
from gptcli.dataset.sources import OnProgress
from gptcli.errors import OutOfMemoryError, TokenizerError, UsageError, counted
from gptcli.generation.attention import AttentionMaps, attention_maps
from gptcli.generation.context_window import require_memory
from gptcli.generation.cuda_graphs import GraphDecoders
from gptcli.generation.lens import LogitLens, Neighbors, logit_lens, neighbors
from gptcli.generation.placement import cpu_threads, decoding_threads, place
from gptcli.generation.prompt import Prompt, encode_prompt
from gptcli.generation.scoring import Scores, score_texts
from gptcli.generation.stream import Piece, Sample, stream_samples
from gptcli.generation.surprise import Surprise, surprise_of_texts
from gptcli.interop.huggingface import tensors_from_hf
from gptcli.machine import free_memory
from gptcli.model.devices import choose_device_with_note, torch_dtype
from gptcli.model.gpt import GPT, gpt_of
from gptcli.model.int8 import Int8GPT, require_int8
from gptcli.model.resize import has_context, with_context
from gptcli.tokenizer import Unknown
from gptcli.tokenizer.tokenizer import Tokenizer

FRESH_SEEDS = 1_000_000
"""Upper limit of fresh seeds, so that they are short enough to type again."""


@dataclass(frozen=True)
class LoadedModel:
    """A trained model, ready to use, and what its folder says about it."""

    path: Path
    model: GPT
    tokenizer: Tokenizer
    start_id: int
    """The token that an empty prompt starts from (`bos_token_id`)."""
    end_id: int | None = None
    """The token that ends a text, if the model was trained with one (`eos_token_id`)."""
    step: int | None = None
    """Training step of the weights, if known."""
    val_loss: float | None = None
    """Validation loss of the weights in nats per token, if known."""
    notes: tuple[str, ...] = ()
    """Sentences for the user, such as which weights were loaded in place of missing ones, or why not on the GPU."""
    decoders: GraphDecoders = field(default_factory=GraphDecoders, repr=False, compare=False)
    """CUDA graphs of the model, kept from text to text."""

    def encode(self, prompt: str, *, unknown: Unknown = "error") -> Prompt:
        """Encode a prompt for `stream`; raises as `encode_prompt` does."""
        return encode_prompt(self.tokenizer, prompt, unknown, self.start_id, self.model.config.block_size)

    def stream(
        self,
        prompt: str | Prompt = "",
        config: SamplingConfig | None = None,
        *,
        unknown: Unknown = "error",
        **settings: Any,
    ) -> Iterator[Piece | Sample]:
        """Continue a prompt: a `Piece` of text whenever one is certain, and a `Sample` at the end of each text.

        `settings` are fields of `SamplingConfig`, such as `max_new_tokens=50, temperature=0.7, num_samples=3`; or give
        a whole `config`. Without a seed a fresh one is drawn, which `Sample.seed` holds. `unknown` is for a prompt that
        is not encoded yet: "skip" leaves out characters that the tokenizer does not know.

        On a CPU, torch computes with `decoding_threads` threads until the stream ends or is closed. Raises ConfigError,
        TokenizerError for unknown characters, OutOfMemoryError, and ModelFolderError for weights that give NaN.

        >>> for event in model.stream("ROMEO:", temperature=0.7, seed=1):  # doctest: +SKIP
        ...     if isinstance(event, Piece):
        ...         print(event.text, end="", flush=True)
        """
        assert not (config and settings), "give a config or settings, not both"
        config = config or sampling_config(**settings)
        encoded = prompt if isinstance(prompt, Prompt) else self.encode(prompt, unknown=unknown)
        self._require_memory(config.num_samples)
        return self._stream(encoded, config)

    def _require_memory(self, texts: int) -> None:
        """Raise OutOfMemoryError if there is no room for `texts` texts at once, even without the kept graphs."""
        device = self.model.wte.weight.device
        try:
            require_memory(self.model, texts, free_memory(device))
        except OutOfMemoryError:
            self.decoders.clear()
            require_memory(self.model, texts, free_memory(device))

    def _stream(self, prompt: Prompt, config: SamplingConfig) -> Iterator[Piece | Sample]:
        with cpu_threads(decoding_threads(self.model, config.num_samples)):
            yield from stream_samples(
                self.model, self.tokenizer, prompt.ids, config, end_id=self.end_id, decoders=self.decoders
            )

    def generate(
        self,
        prompt: str | Prompt = "",
        config: SamplingConfig | None = None,
        *,
        unknown: Unknown = "error",
        **settings: Any,
    ) -> list[Sample]:
        """The finished samples of `stream`, in order: `model.generate("ROMEO:", num_samples=3)[0].text`."""
        events = self.stream(prompt, config, unknown=unknown, **settings)
        return sorted((event for event in events if isinstance(event, Sample)), key=lambda sample: sample.index)

    def score(
        self,
        texts: str | Path | Sequence[str | Path],
        *,
        stride: int | None = None,
        include: Sequence[str] | None = None,
        settings: Mapping[str, Any] | None = None,
        unknown: Unknown = "error",
        on_progress: OnProgress = lambda _stage, _done, _total: None,
    ) -> Scores:
        """Loss, perplexity, and bits per byte and character of text files and folders; see `score_texts`.

        `settings` are fields of the config's section `data` by dotted name, such as {"data.encoding": "cp1252"}.
        """
        data = _data_config(include, settings)
        return score_texts(self.model, self.tokenizer, texts, data, stride, unknown=unknown, on_progress=on_progress)

    def surprise(
        self,
        texts: str | Path | Sequence[str | Path],
        *,
        stride: int | None = None,
        include: Sequence[str] | None = None,
        settings: Mapping[str, Any] | None = None,
        unknown: Unknown = "error",
        on_progress: OnProgress = lambda _stage, _done, _total: None,
    ) -> Surprise:
        """The probability of each token of text files, and what the model found likelier; arguments as for `score`.

        >>> text = model.surprise("book.txt").texts[0]  # doctest: +SKIP
        >>> [(place.line, place.token.text, place.token.bits) for place in text.places(3)]  # doctest: +SKIP
        """
        data = _data_config(include, settings)
        return surprise_of_texts(
            self.model, self.tokenizer, texts, data, stride, unknown=unknown, on_progress=on_progress
        )

    def attention(self, text: str) -> AttentionMaps:
        """The attention of each token of a text to each earlier one, in every layer and head.

        A text beyond 256 tokens or the context window is cut. Raises UsageError for a text of less than two tokens,
        and TokenizerError for unknown characters.

        >>> maps = model.attention("the cat sat")  # doctest: +SKIP
        >>> maps.probabilities[0, 1]  # layer 0, head 1: tokens × tokens  # doctest: +SKIP
        """
        return attention_maps(self.model, self.tokenizer, self._ids(text))

    def lens(self, text: str) -> LogitLens:
        """The logit lens: a prediction of the next token after each block.

        A text is cut as for `attention`. Raises TokenizerError for unknown characters.
        """
        return logit_lens(self.model, self.tokenizer, self._ids(text))

    def neighbors(self, token: str) -> Neighbors:
        """The ten tokens closest to a token in the embedding. Raises UsageError for a text of several tokens."""
        return neighbors(self.model, self.tokenizer, self._ids(token))

    def _ids(self, text: str) -> list[int]:
        """The tokens of a text to look at, no character of which is skipped."""
        try:
            return self.encode(text).ids
        except TokenizerError as error:
            raise TokenizerError(error.message, "Leave them out of the text.") from None

    def describe(self, texts: int = 1) -> str:
        """One line about the model while it decodes `texts` texts at once: weights, dtype, device, threads on a CPU."""
        weight = self.model.wte.weight
        step = "" if self.step is None else f", step {self.step:,}"
        rounded = ", 8-bit weights" if isinstance(self.model, Int8GPT) else ""
        threads = f", {counted(decoding_threads(self.model, texts), 'CPU thread')}" if weight.is_cpu else ""
        return f"{self.path}{step}: {weight.dtype}{rounded} on {weight.device}{threads}."


def _data_config(include: Sequence[str] | None, settings: Mapping[str, Any] | None) -> DataConfig:
    values = nest({"data.include": include} | dict(settings or {}))
    return parse_section(DataConfig, values.get("data", {}))


def load(
    path: str | Path | None = None,
    *,
    checkpoint: str = "best",
    device: str = "auto",
    dtype: DtypeName | None = None,
    context: int | None = None,
    quantize: Quantization | None = None,
    quiet: bool = True,
) -> LoadedModel:
    """Load a trained model on the device and in the dtype in which it generates fastest.

    `path` is a run folder, the bare name of a run below `runs/`, a Hugging Face folder, `hf://owner/name[@revision]`,
    or None for the newest run. `checkpoint` is `best`, `last` or a step; a run without an evaluation has no best
    weights, so that its last checkpoint is loaded, with a note. `context` sets another context window, in tokens.
    `quantize` "int8" rounds the weights to 8 bits (CPU only). `quiet` False shows downloads on a terminal.

    Raises ModelFolderError, TokenizerError, DeviceError, or UsageError for arguments that do not fit the model.
    """
    target, note = choose_device_with_note(device)
    require_formats(dtype, quantize, target)
    folder = find_model(path, quiet=quiet)
    if context is not None:
        _require_context(folder, context)
    opened = open_model(folder, checkpoint)
    if context is not None:
        with_context(opened.model, context)
    notes = (*opened.notes, note) if note else opened.notes
    return replace(opened, model=place(opened.model, target, dtype, int8=quantize == "int8"), notes=notes)


def require_formats(dtype: DtypeName | None, quantize: Quantization | None, device: torch.device) -> None:
    """Raise UsageError or DeviceError for a dtype or a quantization that `load` does not have on the device."""
    if dtype not in (None, *get_args(DtypeName)):
        raise UsageError(f"`dtype` cannot be '{dtype}'.", f"Use {', '.join(get_args(DtypeName))} or None.")
    if quantize not in (None, *get_args(Quantization)):
        raise UsageError(f"`quantize` cannot be '{quantize}'.", "Use int8 or None.")
    if quantize:
        require_int8(device, torch_dtype(dtype or "float32"))


def open_model(folder: Path, checkpoint: str = "best") -> LoadedModel:
    """The model in a folder as it is stored, on the CPU in float32 and in evaluation mode; raises as `load` does."""
    stored = read_model(folder, checkpoint)
    state = tensors_from_hf(stored.tensors, stored.config, f"'{stored.file}'")
    model = gpt_of(stored.config, {name: tensor.float().contiguous() for name, tensor in state.items()})
    model = model.requires_grad_(False).eval()
    facts = stored.start_id, stored.end_id, stored.step, stored.val_loss, stored.notes
    return LoadedModel(folder, model, stored.tokenizer, *facts)


def _require_context(folder: Path, context: int) -> None:
    config = read_model_config(folder)
    if not has_context(config, context):
        message = f"'{folder}' has learned positions for {config.block_size:,} tokens, and `context` is {context:,}."
        hint = f"Use `context = {config.block_size}` at most, or train another model with `model.position = rope`."
        raise UsageError(message, hint)


def sampling_config(**settings: Any) -> SamplingConfig:
    """A `SamplingConfig` from its fields; None leaves the default, and a fresh `seed` is drawn. Raises ConfigError."""
    given = {name: value for name, value in settings.items() if value is not None}
    return parse_section(SamplingConfig, {"seed": secrets.randbelow(FRESH_SEEDS)} | given)


def turns(config: SamplingConfig) -> Iterator[SamplingConfig]:
    """The same settings for one prompt after another, each with seeds of its own."""
    for turn in count():
        yield config.model_copy(update={"seed": config.seed + turn * config.num_samples})
