"""GPT-2 as a GGUF file, the format of llama.cpp and the tools that stand on it.

A GGUF file (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md) is a header with metadata and a table of
tensors, then the tensors' bytes, each aligned. llama.cpp's GPT-2 wants every bias, wants matrices stored (out, in) as
torch's linear layers have them, and takes the token embedding as the head where no head is stored. The package `gguf`
writes the header and quantises; the tensors are streamed here, one in memory at a time.
"""

from __future__ import annotations

import importlib.util
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from torch import Tensor

from gptcli.errors import ExportError
from gptcli.interop.gguf_vocabulary import MODEL, PATTERN, Vocabulary
from gptcli.model.gpt import GPT

if TYPE_CHECKING:
    from gguf import GGMLQuantizationType, GGUFWriter

ARCHITECTURE = "gpt2"
GgufType = Literal["f32", "f16", "bf16", "q8_0", "q4_0"]
QUANTIZED = ("q8_0", "q4_0")

_NAMES = {
    "wte": "token_embd",
    "wpe": "position_embd",
    "ln_f": "output_norm",
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
_PARAMETER = re.compile(r"(?:h\.(?P<block>\d+)\.)?(?P<module>.+)\.(?P<kind>weight|bias)")


@dataclass(frozen=True)
class GgufFile:
    """A GGUF file that is not written yet."""

    header: bytes
    tensors: list[_StoredTensor]
    kept_f16: list[str]
    """Matrices that stay f16, since their rows are no multiple of the quantisation's block."""

    def pieces(self) -> Iterator[bytes | memoryview]:
        """The file's content; each tensor is converted when its turn comes."""
        from gguf import GGUF_DEFAULT_ALIGNMENT, quantize

        yield self.header
        written = len(self.header)
        for tensor in self.tensors:
            yield bytes(-written % GGUF_DEFAULT_ALIGNMENT)
            yield quantize(tensor.array(), tensor.type).tobytes()
            written = tensor.bytes  # what came before was aligned
        yield bytes(-written % GGUF_DEFAULT_ALIGNMENT)


@dataclass(frozen=True)
class _StoredTensor:
    name: str
    data: Tensor
    type: GGMLQuantizationType

    @property
    def bytes(self) -> int:
        from gguf import GGML_QUANT_SIZES

        per_block, block_bytes = GGML_QUANT_SIZES[self.type]
        return self.data.numel() // per_block * block_bytes

    def array(self) -> np.ndarray:
        return self.data.detach().cpu().float().contiguous().numpy()


def require_gguf() -> None:
    """Raise ExportError that says how to install it, if the package `gguf` is not there."""
    if importlib.util.find_spec("gguf") is None:
        raise ExportError("Writing GGUF needs the package gguf.", "Install it: pip install 'gptcli[gguf]'")


def gguf_file(model: GPT, vocabulary: Vocabulary, name: str, type: GgufType) -> GgufFile:
    """The model with its matrices as `type`; vectors and the position embedding stay f32, as llama.cpp has them."""
    require_gguf()
    tensors = [
        _StoredTensor(gguf_name(key), data, _type_of(key, data, type)) for key, data in model.state_dict().items()
    ]
    kept = [tensor.name for tensor in tensors if type in QUANTIZED and tensor.type.name == "F16"]
    return GgufFile(_header(model, vocabulary, name, type, tensors), tensors, kept)


def gguf_name(name: str) -> str:
    """llama.cpp's name of a parameter: h.0.attn.c_attn.bias → blk.0.attn_qkv.bias."""
    match = _PARAMETER.fullmatch(name)
    assert match, name
    block = f"blk.{match['block']}." if match["block"] else ""
    return f"{block}{_NAMES[match['module']]}.{match['kind']}"


def _type_of(name: str, data: Tensor, wanted: GgufType) -> GGMLQuantizationType:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    if data.dim() < 2 or name == "wpe.weight":
        return GGMLQuantizationType.F32
    # The token embedding is the head too, where four bits cost most; llama.cpp's quantiser gives it more as well.
    type = (
        GGMLQuantizationType.Q8_0 if (name, wanted) == ("wte.weight", "q4_0") else GGMLQuantizationType[wanted.upper()]
    )
    per_block, _ = GGML_QUANT_SIZES[type]
    return type if data.shape[-1] % per_block == 0 else GGMLQuantizationType.F16


def _header(model: GPT, vocabulary: Vocabulary, name: str, type: GgufType, tensors: list[_StoredTensor]) -> bytes:
    """The file up to its tensors' bytes. The package writes files only, so it writes a temporary one."""
    from gguf import GGUFWriter

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "header.gguf"
        writer = GGUFWriter(path, ARCHITECTURE)
        _add_model(writer, model, name, type)
        _add_vocabulary(writer, vocabulary)
        for tensor in tensors:
            shape = list(tensor.data.shape)
            writer.add_tensor_info(tensor.name, shape, np.dtype(np.float32), tensor.bytes, raw_dtype=tensor.type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        writer.close()
        return path.read_bytes()


def _add_model(writer: GGUFWriter, model: GPT, name: str, type: GgufType) -> None:
    from gguf import GGML_QUANT_VERSION, LlamaFileType

    config = model.config
    writer.add_type("model")
    writer.add_name(name)
    writer.add_context_length(config.block_size)
    writer.add_embedding_length(config.n_embd)
    writer.add_block_count(config.n_layer)
    writer.add_feed_forward_length(config.mlp_inner)
    writer.add_head_count(config.n_head)
    writer.add_layer_norm_eps(config.norm_epsilon)
    writer.add_vocab_size(config.vocab_size)
    writer.add_file_type(LlamaFileType[{"f32": "ALL_F32"}.get(type, f"MOSTLY_{type.upper()}")])
    if type in QUANTIZED:
        writer.add_quantization_version(GGML_QUANT_VERSION)


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
