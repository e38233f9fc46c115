"""One model in three programs, over four kinds of tokenizer: what the contract tests have in common."""

from __future__ import annotations

import json
import string
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from torch import Tensor

from gptcli.config import ModelConfig
from gptcli.exports.gguf import write_gguf
from gptcli.exports.hf_folder import write_hf_folder
from gptcli.generation.loaded_model import LoadedModel, open_model
from gptcli.interop.gguf import GgufType
from gptcli.tokenizer.bpe import train_bpe
from gptcli.tokenizer.char import char_tokenizer
from gptcli.tokenizer.tokenizer import Tokenizer, load_tokenizer
from tests.interop.llama_cpp import LlamaCpp
from tests.model.reference import assert_close, random_model
from tests.tokenizer.text_samples import LESSON

ASCII_TEXTS = [
    "ROMEO: don't I'll we've 'tis 'S it's",
    "  two  spaces   three\n\n\nand lines \n x \t\ttabs\t\n",
    "CRLF\r\nCR\rend 1 23 456 7890 3.14 0x1F ...!?--_-",
    "<|endoftext|>a <|endoftext|> <|end|>{}[]()<>\\|`~^$#@%&*+=/",
]
UNICODE_TEXTS = [*ASCII_TEXTS, "你好，世界。😀😃! été e\u0301 naïve\u3000 Straße", "\u2028x \xa0y 12你34 't你 \u200b"]
TOKENIZERS = ("ascii", "unicode", "bpe", "published bpe")


@dataclass(frozen=True)
class Case:
    """A model in a folder, and the texts to try it on."""

    folder: LoadedModel
    texts: list[str]


def tokenizer_of(kind: str, corpus: str, path: Path) -> Tokenizer:
    if kind == "ascii":
        return char_tokenizer(string.printable)
    if kind == "unicode":
        return char_tokenizer(string.printable + "".join(UNICODE_TEXTS) + LESSON)
    if kind == "bpe":
        return train_bpe([corpus[:50_000], LESSON * 3], 400)
    # As GPT-2's tokenizer was published: two files, more merges, and its own order of ids.
    trained = json.loads(train_bpe([corpus, LESSON * 3], 2000).to_json())["model"]
    names = sorted(trained["vocab"], key=lambda entry: (len(entry), entry))
    (path / "vocab.json").write_text(json.dumps({name: row for row, name in enumerate(names)}), encoding="utf-8")
    lines = ["#version: 0.2", *(" ".join(merge) for merge in trained["merges"]), ""]
    (path / "merges.txt").write_text("\n".join(lines), encoding="utf-8")
    return load_tokenizer(path)


def build_case(kind: str, corpus: str, path: Path, config: ModelConfig) -> Case:
    """A random model over one of the four tokenizers, exported as a Hugging Face folder and opened from there."""
    tokenizer = tokenizer_of(kind, corpus, path)
    rows = tokenizer.vocab_size + (7 if kind == "published bpe" else 0)  # as padding to a round number leaves
    model = random_model(config.model_copy(update={"vocab_size": rows})).float()
    start = tokenizer.encode("\n")[0]
    made = LoadedModel(path, model, tokenizer, start_id=start)
    write_hf_folder(made, path / "hf", "f32", force=False)
    return Case(open_model(path / "hf"), ASCII_TEXTS if kind == "ascii" else UNICODE_TEXTS)


def export(case: Case, path: Path, type: GgufType = "f32") -> LlamaCpp:
    write_gguf(case.folder, path / "model.gguf", type)
    return LlamaCpp(path / "model.gguf")


def check_ids(case: Case, llama: LlamaCpp) -> None:
    """The same ids in all three, and in ours and llama.cpp's decoding the same text."""
    theirs = transformers.AutoTokenizer.from_pretrained(case.folder.path)
    for text in case.texts:
        ids = case.folder.tokenizer.encode(text)
        assert llama.encode(text) == ids
        assert theirs(text, add_special_tokens=False, split_special_tokens=True)["input_ids"] == ids
        assert llama.decode(ids) == case.folder.tokenizer.decode(ids) == text


def sequence(case: Case) -> list[int]:
    """Ids of all texts, as many as the context holds; llama.cpp wants room for one more."""
    return case.folder.tokenizer.encode("".join(case.texts))[: case.folder.model.config.block_size - 1]


def ours(case: Case) -> Tensor:
    """(T, V)."""
    return case.folder.model(torch.tensor([sequence(case)]))[0].log_softmax(-1)


def difference(case: Case, llama: LlamaCpp, share: float = 1.0) -> float:
    """The largest difference of a log-probability between us and llama.cpp, at the best `share` of the positions."""
    rows = llama.log_probabilities(sequence(case), case.folder.model.config.vocab_size)
    return (rows - ours(case)).abs().amax(1).quantile(share).item()


def check_transformers(case: Case) -> None:
    """The same logits as in transformers, up to rounding."""
    theirs = transformers.AutoModelForCausalLM.from_pretrained(case.folder.path)
    with torch.no_grad():
        assert_close(theirs(torch.tensor([sequence(case)])).logits[0].log_softmax(-1), ours(case))
