"""The other programs that generate text, with the same random weights."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.competitors import Rates
from gptcli.interop.huggingface import config_to_hf, tensors_to_hf
from gptcli.model.gpt import GPT


def hf_folder(model: GPT, folder: Path) -> Path:
    """A Hugging Face folder with the model and no tokenizer, written by transformers."""
    from transformers import GPT2Config, GPT2LMHeadModel, logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    written = GPT2LMHeadModel(GPT2Config(**config_to_hf(model.config, bos_token_id=0, eos_token_id=None)))
    written.load_state_dict(tensors_to_hf(model.state_dict(), model.config), strict=False)
    written.save_pretrained(folder)
    return folder


def transformers_model(folder: Path) -> Any:
    """The model in transformers, with fused attention."""
    from transformers import GPT2LMHeadModel

    return GPT2LMHeadModel.from_pretrained(folder, attn_implementation="sdpa", dtype=torch.float32).eval()


def llama_cpp_rate(gguf: Path, prompt: list[int], new: int, timing: str) -> Callable[[], Rates]:
    """Tokens per second of llama.cpp's server, by one of its own timings."""
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = str(gguf)
    settings.port, settings.verbosity, settings.n_gpu_layers, settings.n_parallel = 0, 0, 0, 1
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = torch.get_num_threads()
    server = xllamacpp.Server(settings)
    options = {"n_predict": new, "temperature": 0.8, "top_k": 50, "top_p": 1.0, "min_p": 0.0, "ignore_eos": True}
    body = json.dumps({"prompt": prompt, "cache_prompt": False, **options}).encode()

    def run() -> Rates:
        address = server.listening_address + "/completion"
        request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return {"": float(json.load(answer)["timings"][timing])}

    return run


def ctranslate2_rate(folder: Path, scratch: Path, quantization: str, prompt: int, new: int) -> Callable[[], Rates]:
    """Tokens per second of CTranslate2, in whole calls, with a model converted from a folder without a tokenizer."""
    import ctranslate2
    from ctranslate2.converters import TransformersConverter, transformers

    class Loader(transformers.GPT2Loader):  # type: ignore[misc]
        """A loader with the ids as vocabulary."""

        def get_vocabulary(self, model: Any, tokenizer: Any) -> list[str]:
            return [str(token) for token in range(model.config.vocab_size)]

        def set_config(self, config: Any, model: Any, tokenizer: Any) -> None:
            config.bos_token = config.eos_token = config.unk_token = "0"

    transformers._MODEL_LOADERS["GPT2Config"] = Loader()
    converter = TransformersConverter(str(folder))
    converter.load_tokenizer = lambda *_arguments, **_options: None
    converted = converter.convert(str(scratch / quantization), quantization=quantization)
    threads = torch.get_num_threads()
    generator = ctranslate2.Generator(converted, device="cpu", inter_threads=1, intra_threads=threads)
    words = [str(token) for token in range(prompt)]

    def run() -> Rates:
        started = time.perf_counter()
        (result,) = generator.generate_batch(
            [words],
            max_length=new,
            min_length=new,
            sampling_topk=50,
            sampling_temperature=0.8,
            include_prompt_in_result=False,
            end_token=[],
        )
        assert len(result.sequences_ids[0]) == new
        return {"": new / (time.perf_counter() - started)}

    return run
