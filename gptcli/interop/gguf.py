"""A model as a GGUF file, the format of llama.cpp and the tools that build on it.

A GGUF file (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md) is a header with metadata and a table of
tensors, followed by the bytes of the tensors, each aligned. Matrices are stored as (out, in), like torch's linear
layers; without a stored head, llama.cpp uses the token embedding. The package `gguf` writes the header and quantizes.
The tensors are streamed here, one in memory at a time.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from gptcli.config import ModelConfig
from gptcli.errors import ExportError, install_hint
from gptcli.interop.gguf_tensors import (
    EMBEDDING,
    HEAD,
    POSITIONS,
    ROUTER,
    StoredTensor,
    gguf_architecture,
    gguf_tensors,
)
from gptcli.interop.gguf_vocabulary import MODEL, PATTERN, Vocabulary
from gptcli.model.gpt import GPT
from gptcli.storage import scratch_folder

if TYPE_CHECKING:
    from gguf import GGMLQuantizationType, GGUFWriter

GgufType = Literal["f32", "f16", "bf16", "q8_0", "q4_0"]
QUANTIZED = ("q8_0", "q4_0")


@dataclass(frozen=True)
class GgufFile:
    """The content of a GGUF file, converted while it is written."""

    header: bytes
    tensors: list[tuple[StoredTensor, GGMLQuantizationType]]
    kept_f16: list[str]
    """Matrices that stay f16, because the length of their rows is not a multiple of the quantization block."""

    def pieces(self) -> Iterator[bytes | memoryview]:
        """The bytes of the file, one tensor after another."""
        from gguf import GGUF_DEFAULT_ALIGNMENT, quantize

        yield self.header
        written = len(self.header)
        for tensor, type in self.tensors:
            yield bytes(-written % GGUF_DEFAULT_ALIGNMENT)
            yield quantize(tensor.array(), type).tobytes()
            written = _size(tensor, type)  # what came before is aligned
        yield bytes(-written % GGUF_DEFAULT_ALIGNMENT)


def require_gguf() -> None:
    """Raise ExportError if the package `gguf` is not installed."""
    if importlib.util.find_spec("gguf") is None:
        raise ExportError("Writing GGUF needs the package gguf.", install_hint("gguf"))


def gguf_file(model: GPT, vocabulary: Vocabulary, name: str, type: GgufType) -> GgufFile:
    """The model with its matrices stored as `type`; vectors, positions and routers stay f32 as in llama.cpp's files.

    Raises ExportError for a model that llama.cpp computes differently.
    """
    require_gguf()
    architecture = gguf_architecture(model.config)
    tensors = [(tensor, _type_of(tensor, type, tied=model.config.tied)) for tensor in gguf_tensors(model)]
    kept = [tensor.name for tensor, stored in tensors if type in QUANTIZED and stored.name == "F16"]
    return GgufFile(_header(model.config, architecture, vocabulary, name, type, tensors), tensors, kept)


def _type_of(tensor: StoredTensor, wanted: GgufType, *, tied: bool) -> GGMLQuantizationType:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    if len(tensor.shape) < 2 or tensor.module in (POSITIONS, ROUTER):
        return GGMLQuantizationType.F32
    # Four bits cost most accuracy in the head; llama.cpp's own quantizer gives it more as well.
    is_head = tensor.module == (EMBEDDING if tied else HEAD)
    type = GGMLQuantizationType["Q8_0" if is_head and wanted == "q4_0" else wanted.upper()]
    per_block, _ = GGML_QUANT_SIZES[type]
    return type if tensor.shape[-1] % per_block == 0 else GGMLQuantizationType.F16


def _size(tensor: StoredTensor, type: GGMLQuantizationType) -> int:
    """Bytes of a tensor in the file, before alignment."""
    from gguf import quant_shape_to_byte_shape

    return math.prod(quant_shape_to_byte_shape(tensor.shape, type))


def _header(
    config: ModelConfig,
    architecture: str,
    vocabulary: Vocabulary,
    name: str,
    type: GgufType,
    tensors: list[tuple[StoredTensor, GGMLQuantizationType]],
) -> bytes:
    """The bytes of the file before its tensors, taken from a temporary file: the package `gguf` only writes files."""
    from gguf import GGUFWriter

    with scratch_folder() as folder:
        path = folder / "header.gguf"
        writer = GGUFWriter(path, architecture)
        _add_model(writer, config, name, type)
        _add_vocabulary(writer, vocabulary)
        for tensor, stored in tensors:
            shape, size = list(tensor.shape), _size(tensor, stored)
            writer.add_tensor_info(tensor.name, shape, np.dtype(np.float32), size, raw_dtype=stored)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        writer.close()
        return path.read_bytes()


def _add_model(writer: GGUFWriter, config: ModelConfig, name: str, type: GgufType) -> None:
    from gguf import GGML_QUANT_VERSION, LlamaFileType

    writer.add_type("model")
    writer.add_name(name)
    writer.add_context_length(config.block_size)
    writer.add_embedding_length(config.n_embd)
    writer.add_block_count(config.n_layer)
    writer.add_feed_forward_length(config.mlp_width)
    writer.add_head_count(config.n_head)
    writer.add_vocab_size(config.vocab_size)
    writer.add_file_type(LlamaFileType[{"f32": "ALL_F32"}.get(type, f"MOSTLY_{type.upper()}")])
    if type in QUANTIZED:
        writer.add_quantization_version(GGML_QUANT_VERSION)
    if config.norm == "layernorm":
        writer.add_layer_norm_eps(config.norm_epsilon)
    else:
        writer.add_layer_norm_rms_eps(config.norm_epsilon)
    if config.position == "rope":
        _add_rope(writer, config)
    if config.n_expert:
        writer.add_expert_count(config.n_expert)
        writer.add_expert_used_count(config.n_expert_active)
        writer.add_expert_feed_forward_length(config.mlp_width)


def _add_rope(writer: GGUFWriter, config: ModelConfig) -> None:
    from gguf import RopeScalingType

    writer.add_head_count_kv(config.n_kv_head)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_base)
    if config.rope_scaling != 1:
        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(config.rope_scaling)


def _add_vocabulary(writer: GGUFWriter, vocabulary: Vocabulary) -> None:
    writer.add_tokenizer_model(MODEL)
    writer.add_tokenizer_pre(PATTERN)
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.types)
    writer.add_token_merges(vocabulary.merges)
    writer.add_bos_token_id(vocabulary.start_id)
    writer.add_eos_token_id(vocabulary.end_id)
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)
