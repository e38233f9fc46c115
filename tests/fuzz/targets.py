"""The targets of fuzzing: each has valid files, changes them, and hands them to the code that reads them.

The readers of documents have theirs in `document_targets`.
"""

from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

from gptcli import storage
from gptcli.checkpoints import names
from gptcli.checkpoints.checkpoint import load_checkpoint
from gptcli.checkpoints.model_folder import read_model_config
from gptcli.checkpoints.names import checkpoint_name
from gptcli.checkpoints.run_folder import newest_run, read_run
from gptcli.checkpoints.tensors import tensor_file
from gptcli.config import (
    DataConfig,
    ModelConfig,
    SamplingConfig,
    build_config,
    load_config_file,
    parse_section,
    to_toml,
)
from gptcli.config.values import parse_setting
from gptcli.dataset.finding import find_sources
from gptcli.dataset.folder import open_dataset
from gptcli.dataset.scanning import scan
from gptcli.dataset.splits import PartReader, split_parts
from gptcli.generation.context_window import require_memory
from gptcli.generation.loaded_model import open_model
from gptcli.generation.prompt import read_prompt
from gptcli.generation.stream import stream_samples
from gptcli.interop.huggingface import config_to_hf, tensors_to_hf
from gptcli.report.inspection import inspect
from gptcli.report.run import evaluations, list_runs
from gptcli.report.text import describe_text
from gptcli.runs.saving import restore
from gptcli.storage import to_json
from gptcli.tokenizer.bpe import train_bpe
from gptcli.tokenizer.char import char_tokenizer
from gptcli.tokenizer.tokenizer import load_tokenizer
from gptcli.training.trainer import Trainer
from tests.fuzz.document_targets import DOCUMENT_TARGETS
from tests.fuzz.mutation import NASTY, NUMBERS, mutated_bytes, mutated_json, mutated_text
from tests.fuzz.target import Target
from tests.model.reference import random_model
from tests.runs.small_runs import CPU, plan, run, small_dataset

TEXT = "the cat sat on the mat. 12 cats, été!\n" * 20
_first = np.array([0])
SAMPLES_MEMORY = 10_000_000
SMALL = {"model.n_embd": 4, "model.n_head": 1, "model.block_size": 8, "train.batch_size": 2}


class ConfigFile(Target):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        config = build_config("tiny", {"train": {"max_time": 90.0, "device": "cpu"}}, vocab_size=65)
        self.seeds = [
            to_toml(config),
            '[optim]\nlr = 1e-3\n[train]\nmax_time = "30m"\nepochs = 2\n[data]\ninclude = ["*.py"]\n',
        ]

    def prepare(self, random: Random) -> None:
        (self.folder / "config.toml").write_bytes(mutated_text(random.choice(self.seeds), random))

    def run(self) -> None:
        values = load_config_file(self.folder / "config.toml")
        to_toml(build_config("nano", values, vocab_size=65))


class Settings(Target):
    seeds = ("optim.lr=1e-3", "train.max_time=30m", 'data.include=["*.py", "*.md"]', "model.n_layer=2", "train.seed=5")

    def prepare(self, random: Random) -> None:
        changed = [mutated_text(random.choice(self.seeds), random) for _ in range(random.randint(1, 3))]
        self.settings = [setting.decode("utf-8", errors="surrogateescape") for setting in changed]

    def run(self) -> None:
        build_config("nano", *(parse_setting(setting) for setting in self.settings), vocab_size=65)


class DatasetFolder(Target):
    """A dataset whose manifest is changed, or another file under a manifest that agrees with it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.path = small_dataset(folder, TEXT).path
        self.valid = {path.name: path.read_bytes() for path in self.path.iterdir()}

    def prepare(self, random: Random) -> None:
        for name, content in self.valid.items():
            (self.path / name).write_bytes(content)
        name = random.choice(["dataset.json", "dataset.json", "tokenizer.json", "train-00000.npy", "val-00000.npy"])
        change = mutated_json if name.endswith(".json") else mutated_bytes
        changed = change(self.valid[name], random)
        (self.path / name).write_bytes(changed)
        if name.endswith(".npy"):
            manifest = json.loads(self.valid["dataset.json"])
            shard = manifest[name[:-10]]["shards"][0]
            shard |= asdict(storage.fingerprints(self.path, [name])[name])
            (self.path / "dataset.json").write_bytes(to_json(manifest))

    def run(self) -> None:
        dataset = open_dataset(self.path)
        for split in (dataset.train, dataset.val):
            split.stream.windows(_first, min(8, len(split.stream)))
        inspect(self.path)


class CheckpointFolder(Target):
    """A checkpoint whose manifest is changed, or another file under a manifest that agrees with it; then restored."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        dataset = small_dataset(folder, TEXT)
        run(dataset, folder / "run", SMALL | {"train.max_steps": 2, "optim.skip_spikes": 3.0})
        self.path = folder / "run/checkpoints" / checkpoint_name(2)
        self.valid = {path.name: path.read_bytes() for path in self.path.iterdir()}
        self.trainer = Trainer(read_run(folder / "run").config, dataset, CPU)

    def prepare(self, random: Random) -> None:
        change_in(self.path, self.valid, random)

    def run(self) -> None:
        try:
            restore(self.trainer, load_checkpoint(self.path))
        finally:
            torch.set_num_threads(1)


class TokenizerFile(Target):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        bpe, char = train_bpe([TEXT], 280).to_json(), char_tokenizer(TEXT).to_json()
        document = json.loads(bpe)
        split = {"type": "Split", "pattern": {"Regex": r"\w+|\s+|."}, "behavior": "Isolated", "invert": False}
        words = document["pre_tokenizer"] | {"use_regex": False}
        document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, words]}
        model = json.loads(bpe)["model"]
        self.seeds = [bpe.encode(), char.encode(), json.dumps(document).encode(), json.dumps(model["vocab"]).encode()]
        self.merges = "#version: 0.2\n" + "\n".join(" ".join(merge) for merge in model["merges"])

    def prepare(self, random: Random) -> None:
        (self.folder / "vocab.json").write_bytes(mutated_json(random.choice(self.seeds), random))
        merges = mutated_text(self.merges, random) if random.random() < 0.5 else self.merges.encode()
        (self.folder / "merges.txt").write_bytes(merges)

    def run(self) -> None:
        tokenizer = load_tokenizer(self.folder / "vocab.json")
        tokenizer.decode(tokenizer.encode(TEXT[:80], unknown="skip"))
        tokenizer.pieces("cat")
        list(tokenizer.encode_pieces(["the ", "cat 12"]))
        tokenizer.to_json()


class Weights(Target):
    """A model folder whose weights are changed: the file, its header, or one of several files and their index."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.valid = model_files(ModelConfig(vocab_size=35, n_layer=1, n_head=1, n_embd=4, block_size=8))
        for name, content in self.valid.items():
            (folder / name).write_bytes(content)
        self.weights = self.valid.pop(names.MODEL)
        self.index = {"weight_map": dict.fromkeys(header_of(self.weights), "model-1.safetensors")}
        del self.index["weight_map"]["__metadata__"]

    def prepare(self, random: Random) -> None:
        for path in self.folder.glob("model*"):
            path.unlink()
        sharded = random.random() < 0.3
        if sharded:
            (self.folder / names.MODEL_INDEX).write_bytes(mutated_json(json.dumps(self.index).encode(), random))
        whole = sharded and random.random() < 0.5
        changed = self.weights if whole else changed_tensors(self.weights, random)
        (self.folder / ("model-1.safetensors" if sharded else names.MODEL)).write_bytes(changed)

    def run(self) -> None:
        folder = open_model(self.folder)
        config = SamplingConfig(max_new_tokens=2)
        list(stream_samples(folder.model, folder.tokenizer, [folder.start_id], config, end_id=folder.end_id))


class HuggingFaceConfig(Target):
    """The small files of a model folder: GPT-2's and the modern families'."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        modern = {"position": "rope", "norm": "rmsnorm", "mlp": "swiglu", "bias": False, "tied": False}
        shape = {"vocab_size": 35, "n_layer": 1, "n_head": 2, "n_embd": 8, "block_size": 8}
        kinds: list[dict[str, Any]] = [{}, modern, modern | {"qk_norm": True, "n_kv_head": 1}, {"logit_softcap": 5.0}]
        kinds += [modern | {"n_expert": 2}, modern | {"sliding_window": 4}]
        self.seeds = [model_files(ModelConfig(**shape | kind)) for kind in kinds]

    def prepare(self, random: Random) -> None:
        self.inspected = random.random() < 0.2
        files = dict(random.choice(self.seeds))
        name = random.choice([names.CONFIG, names.CONFIG, names.CONFIG, names.GENERATION_CONFIG])
        files[name] = mutated_json(files[name], random)
        for file, content in files.items():
            (self.folder / file).write_bytes(content)

    def run(self) -> None:
        read_model_config(self.folder)
        if self.inspected:
            inspect(self.folder)
        folder = open_model(self.folder)
        config = SamplingConfig(max_new_tokens=2)
        list(stream_samples(folder.model, folder.tokenizer, [folder.start_id], config, end_id=folder.end_id))


class Corpus(Target):
    suffixes: tuple[str, ...] = (".txt", ".txt", ".md", ".py", ".gz", ".bin", "", ".parquet", ".txt.bz2", ".txt.xz")

    def prepare(self, random: Random) -> None:
        for path in self.folder.iterdir():
            path.unlink()
        seed = random.choice([TEXT, "a", "é€😀\r\n" * 5, "\ufeffx\n"])
        encoding = random.choice(["utf-8", "utf-8", "utf-8", "utf-16", "utf-32", "utf-16-le"])
        content = mutated_bytes(seed.encode(encoding), random)
        self.path = self.folder / f"text{random.choice(self.suffixes)}"
        self.path.write_bytes(content)

    def run(self) -> None:
        describe_text(self.path)
        describe_text(self.folder)


class Rows(Target):
    """A file of rows, packed or not, with any settings that say how to read it."""

    rows: tuple[dict[str, Any], ...] = (
        *({"id": number, "text": line, "a": {"b": None}} for number, line in enumerate(["one", 'a "b", c', "é😀\n"])),
        {"messages": [{"role": "user", "content": "Hi"}], "text": ""},
    )
    settings: tuple[dict[str, Any], ...] = ({}, {}, {"errors": "skip"}, {"errors": "replace"}, {"text_field": "a.b"})
    encodings = ("utf-8", "utf-8", "utf-8", "auto", "utf-16", "cp1252", "shift_jis", "utf-7", "idna", "unicode_escape")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        texts = [{"text": row["text"] or "x", "n": str(number)} for number, row in enumerate(self.rows)]
        table = "n,text\r\n" + "".join(f'{row["n"]},"{row["text"].replace(chr(34), chr(34) * 2)}"\r\n' for row in texts)
        lines = "".join(json.dumps(row) + "\n" for row in self.rows)
        self.seeds = {
            ".jsonl": lines.encode(),
            ".json": json.dumps(self.rows, indent=1, ensure_ascii=False).encode(),
            ".csv": table.encode(),
            ".tsv": table.replace(",", "\t").encode(),
        }
        if find_spec("pyarrow"):
            import pyarrow
            import pyarrow.parquet

            sink = pyarrow.BufferOutputStream()
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(texts), sink)
            self.seeds[".parquet"] = sink.getvalue().to_pybytes()

    def prepare(self, random: Random) -> None:
        for path in self.folder.iterdir():
            path.unlink()
        suffix = random.choice([*self.seeds])
        is_text = suffix != ".parquet" and random.random() < 0.5
        content = self.seeds[suffix]
        content = mutated_text(content.decode(), random) if is_text else mutated_bytes(content, random)
        if random.random() < 0.2:
            content, suffix = mutated_bytes(gzip.compress(content), random), f"{suffix}.gz"
        self.path = self.folder / f"rows{suffix}"
        self.path.write_bytes(content)
        self.data = DataConfig(**random.choice(self.settings), encoding=random.choice(self.encodings))

    def run(self) -> None:
        with find_sources([str(self.path)], self.data) as found:
            corpus = scan(found, lambda _count: None)
            for split in split_parts(corpus, corpus.characters // 2):
                reader = PartReader(corpus)
                "".join(text for part in split for text in reader.read(part)).encode()


class Prompt(Target):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for name, content in model_files(
            ModelConfig(vocab_size=35, n_layer=1, n_head=1, n_embd=4, block_size=8)
        ).items():
            (folder / name).write_bytes(content)
        self.model = open_model(folder)
        self.path = folder / "prompt.txt"

    def prepare(self, random: Random) -> None:
        content = mutated_bytes(random.choice([TEXT, "", "<|endoftext|>", "😀" * 9, TEXT * 20]).encode(), random)
        self.path.write_bytes(content)
        self.typed = content.decode("utf-8", errors="surrogateescape")
        self.unknown = random.choice(["error", "skip"])

    def run(self) -> None:
        self.model.encode(read_prompt(str(self.path)), unknown=self.unknown)  # type: ignore[arg-type]
        self.model.encode(self.typed, unknown=self.unknown)  # type: ignore[arg-type]


class SamplingOptions(Prompt):
    fields = (*SamplingConfig.model_fields, "unknown_key")
    values = (*NASTY, *NUMBERS, *map(float, NUMBERS), float("inf"), 0.9, 1.1, 5, 40, ("a",), ("", "b"), ("t", "\0"))

    def prepare(self, random: Random) -> None:
        chosen = random.sample(self.fields, random.randint(1, 4))
        self.options = {name: random.choice(self.values) for name in chosen}

    def run(self) -> None:
        config = parse_section(SamplingConfig, self.options)
        require_memory(self.model.model, config.num_samples, SAMPLES_MEMORY)
        config = config.model_copy(update={"max_new_tokens": min(3, config.max_new_tokens)})
        list(stream_samples(self.model.model, self.model.tokenizer, [1, 2], config, end_id=self.model.end_id))


class Resume(Target):
    """A run with two checkpoints and any change; then the plan to resume it, or a report."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.dataset = small_dataset(folder, TEXT)
        self.path = folder / "runs/run"
        self.flags = SMALL | {"train.max_steps": 4, "train.save_every": 2, "train.eval_every": 2}
        run(self.dataset, self.path, self.flags, stop_after=3)
        self.files = {path.relative_to(self.path): path.read_bytes() for path in self.path.rglob("*") if path.is_file()}

    def prepare(self, random: Random) -> None:
        self.reader = random.choice(["train", "train", "list", "inspect"])
        shutil.rmtree(self.path)
        for name, content in self.files.items():
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            (self.path / name).write_bytes(content)
        part = random.choice([path.parent for path in self.files])
        if part.name and random.random() < 0.1:
            strange = random.choice(["step-00000009", "step-9", "step-" + "9" * 200, "step-x", "step-٠٠٠٠٠٠٠٩"])
            (self.path / part).rename(self.path / part.parent / strange)
            return
        change_in(
            self.path / part, {name.name: data for name, data in self.files.items() if name.parent == part}, random
        )

    def run(self) -> None:
        match self.reader:
            case "train":
                plan(self.dataset, self.path, self.flags)
            case "list":
                list_runs(self.path.parent)
                newest_run(self.path.parent)
            case _:
                inspect(self.path)


class Metrics(Target):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        losses = [{"step": step, "seconds": 0.1, "val/loss": 2.5 / step, "val/bpb": 1.0} for step in range(1, 6)]
        self.lines = [json.dumps(line).encode() for line in [*losses, {"step": 3, "sample": "é\x1b"}]]

    def prepare(self, random: Random) -> None:
        lines = [mutated_json(line, random) if random.random() < 0.4 else line for line in self.lines]
        content = b"\n".join(lines) + b"\n"
        self.path = self.folder / names.METRICS
        self.path.write_bytes(mutated_bytes(content, random) if random.random() < 0.3 else content)

    def run(self) -> None:
        evaluations(self.path)


TARGETS: dict[str, type[Target]] = {
    "config-file": ConfigFile,
    "settings": Settings,
    "dataset": DatasetFolder,
    "checkpoint": CheckpointFolder,
    "tokenizer": TokenizerFile,
    "weights": Weights,
    "model-config": HuggingFaceConfig,
    "corpus": Corpus,
    "rows": Rows,
    "prompt": Prompt,
    "sampling": SamplingOptions,
    "resume": Resume,
    "metrics": Metrics,
    **DOCUMENT_TARGETS,
}


def change_in(folder: Path, valid: dict[str, bytes], random: Random) -> None:
    """Write the valid files, one of them changed; the manifest, if there is one, mostly agrees with it."""
    for name, content in valid.items():
        (folder / name).write_bytes(content)
    name = random.choice(sorted(valid))
    (folder / name).write_bytes(changed_file(name, valid[name], random))
    if storage.MANIFEST_FILE in valid and name != storage.MANIFEST_FILE and random.random() < 0.8:
        manifest = json.loads(valid[storage.MANIFEST_FILE])
        listed = [file for file in manifest["files"] if (folder / file).is_file()]
        manifest["files"] = storage.fingerprints(folder, listed)
        (folder / storage.MANIFEST_FILE).write_bytes(to_json(manifest))


def changed_file(name: str, content: bytes, random: Random) -> bytes:
    if name.endswith(".json"):
        return mutated_json(content, random)
    if name.endswith(".safetensors"):
        return changed_tensors(content, random)
    if name.endswith((".toml", ".md", ".jsonl")):
        return mutated_text(content.decode(), random)
    return mutated_bytes(content, random)


def changed_tensors(content: bytes, random: Random) -> bytes:
    """A safetensors file with another header, with or without its digest, or with other bytes."""
    if random.random() < 0.3:
        return mutated_bytes(content, random)
    header = header_of(content)
    data = content[8 + int.from_bytes(content[:8], "little") :]
    if random.random() < 0.7:
        header["__metadata__"].pop("sha256", None)
    way = random.random()
    if way < 0.2:
        data = mutated_bytes(data, random)
        encoded = json.dumps(header).encode()
    elif way < 0.4:  # a tensor more, less or of another shape, in a file that is sound
        name = random.choice([name for name in header if name != "__metadata__"])
        header[name]["shape"] = random.choice([[*header[name]["shape"], 1], header[name]["shape"][::-1], [1]])
        encoded = json.dumps(header).encode()
    else:
        encoded = mutated_json(json.dumps(header).encode(), random)
    return len(encoded).to_bytes(8, "little") + encoded + data


def header_of(content: bytes) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return header


def model_files(config: ModelConfig) -> dict[str, bytes]:
    """A model folder with random weights over a character tokenizer, by file name."""
    tokenizer = char_tokenizer(TEXT)
    assert tokenizer.vocab_size <= config.vocab_size
    model = random_model(config).float()
    return {
        names.CONFIG: to_json(config_to_hf(config, bos_token_id=0, eos_token_id=None)),
        names.GENERATION_CONFIG: to_json({"bos_token_id": 0, "eos_token_id": None}),
        names.TOKENIZER: tokenizer.to_json().encode(),
        names.MODEL: b"".join(map(bytes, tensor_file(tensors_to_hf(model.state_dict(), config), {"step": "3"}))),
    }
